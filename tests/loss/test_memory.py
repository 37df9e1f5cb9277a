"""What users do to tensors between forward and backward, or before: right numbers or an exception, never a crash."""

import _thread
import contextlib
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from smooth_topk import smooth_topk_loss


def problem():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(512, 1000, generator=generator, requires_grad=True)
    return scores, torch.randint(1000, (512,), generator=generator)


def gradient_of(loss, scores):
    return torch.autograd.grad(loss, scores)[0]


def test_a_hook_that_compresses_what_is_saved_costs_digits_only():
    scores, labels = problem()
    expected = gradient_of(smooth_topk_loss(scores, labels), scores)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16() if t.dim() == 2 else t, lambda t: t):
        loss = smooth_topk_loss(scores, labels)
    loss.backward()
    assert (scores.grad - expected).abs().max() < 0.01 * expected.abs().max()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[:4, :10] if t.dim() == 2 else t):
        loss = smooth_topk_loss(scores, labels)
    with pytest.raises(RuntimeError, match=r"\[4, 10\].*\[512, 1000\]"):
        loss.backward()


@pytest.mark.parametrize("k", [5, 20])
def test_scores_that_change_their_dtype_or_lose_their_memory_after_the_forward_pass(k):
    for change in (lambda x: setattr(x, "data", x.data.half()), lambda x: x.untyped_storage().resize_(0)):
        scores, labels = problem()
        expected = gradient_of(smooth_topk_loss(scores, labels, k=k), scores)
        loss = smooth_topk_loss(scores, labels, k=k)
        change(scores)
        with contextlib.suppress(RuntimeError):  # torch may refuse to add a gradient of another dtype
            loss.backward()
        assert scores.grad is None or torch.allclose(scores.grad.float(), expected, rtol=2e-2, atol=1e-5)


@pytest.mark.parametrize("lost", ["scores", "labels", "weight"])
@pytest.mark.parametrize("size", [0, 8])
def test_a_tensor_without_memory_is_refused(lost, size):
    scores, labels = problem()
    tensors = {"scores": scores.detach(), "labels": labels, "weight": torch.rand(1000)}
    tensors[lost].untyped_storage().resize_(size)
    with pytest.raises(RuntimeError, match=f"{lost} .* storage, got {size}"):
        smooth_topk_loss(**tensors, backend="numba")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
def test_memory_that_runs_out_raises():
    probe = """
import resource, torch
from smooth_topk import smooth_topk_loss
smooth_topk_loss(torch.zeros(1, 30, requires_grad=True), torch.tensor([0])).backward()
scores = torch.zeros(1, 20_000_000, requires_grad=True)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 120_000_000, resource.RLIM_INFINITY))
try:
    smooth_topk_loss(scores, torch.tensor([0])).backward()
    print("finished")
except (MemoryError, RuntimeError) as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("MemoryError", "RuntimeError")


def test_a_checkpoint_with_other_random_numbers_gives_the_gradient_of_its_second_forward_pass():
    def losses_of(loss):
        def layer(x):
            return loss(F.dropout(x, 0.5) * 30, labels)

        return checkpoint(layer, scores, use_reentrant=False, preserve_rng_state=False)

    scores, labels = problem()
    for loss in (smooth_topk_loss, F.cross_entropy):
        torch.manual_seed(0)
        assert gradient_of(losses_of(loss), scores).abs().max() < 1


def test_an_interrupt_comes_after_the_kernel():
    scores, labels = problem()
    expected = smooth_topk_loss(scores, labels)

    def compute_until_interrupted():
        start = time.monotonic()
        while time.monotonic() - start < 60:
            assert torch.equal(smooth_topk_loss(scores, labels), expected)

    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        compute_until_interrupted()
    assert torch.equal(smooth_topk_loss(scores, labels), expected)

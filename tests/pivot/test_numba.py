"""The Numba kernels against 60-digit arithmetic and against the torch backend."""

import math
import os
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from kernel_accuracy import GRADIENT_TOLERANCE, LOSS_TOLERANCE, assert_exact, random_scores
from torch._subclasses.fake_tensor import FakeTensorMode

import smooth_topk
from smooth_topk import smooth_topk_loss
from smooth_topk.pivot import numba_backend, numba_runtime, torch_backend

pytestmark = pytest.mark.skipif(not numba_backend.NUMBA_INSTALLED, reason="needs Numba: pip install numba")

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def run(scores, labels, k, tau, margin=1.0, grad_loss=None, backend=numba_backend):
    """Losses and gradient."""
    losses, *state = backend.forward(scores, labels, k, tau, margin)
    grad_loss = torch.ones_like(losses) if grad_loss is None else grad_loss
    return losses, backend.backward(scores, tuple(state), grad_loss, k, tau)


@DTYPES
@pytest.mark.parametrize("tau", [10.0, 0.3, 1e-2, 1e-4])
@pytest.mark.parametrize(("k", "classes"), [(1, 2), (1, 9), (3, 17), (5, 6), (5, 33), (6, 40), (8, 11), (8, 70)])
def test_losses_and_gradients_are_exact_at_every_temperature_and_scale(k, classes, tau, dtype):
    scale = torch.tensor([[1e-2], [1.0], [100.0]], dtype=torch.float64)
    scores, labels = random_scores(3, classes, scale, dtype)
    losses, gradient = run(scores, labels, k, tau)
    assert losses.dtype == gradient.dtype == dtype
    assert_exact(scores, labels, k, tau, losses, gradient)


@pytest.mark.parametrize(
    ("k", "classes", "tau", "dtype"),
    [
        (9, 11, 10.0, torch.float32),
        (14, 16, 1e-4, torch.float32),
        (16, 45, 1.0, torch.float32),
        (16, 17, 1.0, torch.float32),
        (16, 40, 10.0, torch.float32),
        (12, 14, 1.0, torch.float64),
        (16, 40, 10.0, torch.float64),
        (16, 40, 1e-3, torch.float64),
    ],
)
def test_large_k_is_exact_also_when_it_is_close_to_the_number_of_classes(k, classes, tau, dtype):
    scores, labels = random_scores(2, classes, dtype=dtype)
    assert_exact(scores, labels, k, tau, *run(scores, labels, k, tau))


@pytest.mark.parametrize("tau", [1.0, 0.05])
@pytest.mark.parametrize("k", [1, 5, 8, 11, 16])
@pytest.mark.parametrize("classes", [100, 1023, 1024, 1025, 5000])
def test_rows_of_any_length_agree_with_plain_torch(classes, k, tau):
    scores, labels = random_scores(70, classes, scale=3.0)  # more rows than a batch has
    grad_loss = torch.rand(70, generator=torch.Generator().manual_seed(1))
    losses, gradient = run(scores, labels, k, tau, 0.7, grad_loss)
    dtype = torch.float64 if k <= torch_backend.FLOAT64_LIMIT[torch.float64] else torch.float32
    expected, expected_gradient = run(scores.to(dtype), labels, k, tau, 0.7, grad_loss.to(dtype), torch_backend)
    torch.testing.assert_close(losses.double(), expected.double(), rtol=LOSS_TOLERANCE[torch.float32], atol=2e-12)
    error = (gradient - expected_gradient).abs().amax(1) / expected_gradient.abs().amax(1)
    assert error.max() < GRADIENT_TOLERANCE[torch.float32]


@pytest.mark.parametrize("descending", [False, True])
def test_the_order_of_the_classes_does_not_matter(descending):
    scores, labels = random_scores(3, 150)
    scores = scores.sort(1, descending=descending).values
    assert_exact(scores, labels, 5, 0.5, *run(scores, labels, 5, 0.5))


@DTYPES
@pytest.mark.parametrize("tau", [1.0, 1e-3])
def test_ties_are_exact_wherever_the_head_cuts_them(tau, dtype):
    scores = torch.tensor([[1, 0, 1, 1, 0, 1, 1, 1, 0, 1], [2] * 10, [0, 0, 0, 0, 0, 0, 0, 0, 0, 5]], dtype=dtype)
    labels = torch.tensor([0, 3, 9])
    for k in (1, 3, 8):
        assert_exact(scores, labels, k, tau, *run(scores, labels, k, tau))


@DTYPES
def test_a_class_at_minus_infinity_is_a_deleted_class(dtype):
    scores, labels = random_scores(3, 80, dtype=dtype)
    labels = labels % 7
    kept = [*range(7), *range(40, 80)]
    scores[:, 7:40] = -math.inf
    losses, gradient = run(scores, labels, 4, 1.0)
    assert_exact(scores[:, kept], labels, 4, 1.0, losses, gradient[:, kept])
    assert gradient[:, 7:40].eq(0).all()


@DTYPES
def test_the_loss_is_zero_when_fewer_than_k_other_classes_exist(dtype):
    scores = torch.full((3, 6), -math.inf, dtype=dtype)
    scores[0, :3] = torch.tensor([1.0, 2.0, 3.0])
    scores[1, 0] = 1e30
    losses, gradient = run(scores, torch.tensor([0, 0, 0]), 3, 1.0)
    assert losses.tolist() == [0.0, 0.0, 0.0]
    assert gradient.eq(0).all()


@pytest.mark.parametrize("k", [1, 3, 9])
def test_a_nan_makes_its_own_row_nan_and_no_other(k):
    scores, _ = random_scores(5, 70)
    labels = torch.tensor([2] * 5)
    scores[0, 50] = math.nan
    scores[1, 2] = math.nan  # the label's own score
    scores[2] = math.nan
    scores[3] = -math.inf
    scores[3, 69] = math.nan
    losses, gradient = run(scores, labels, k, 1.0)
    assert losses.isnan().tolist() == [True] * 4 + [False]
    assert gradient[:4].isnan().all()
    assert_exact(scores[4:], labels[4:], k, 1.0, losses[4:], gradient[4:])


def test_a_label_at_minus_infinity_costs_infinitely_much():
    scores = torch.tensor([[1.0, -math.inf, 0.5, 0.0]])
    losses, gradient = run(scores, torch.tensor([1]), 2, 1.0)
    assert losses.item() == math.inf
    assert gradient.isfinite().all()


@DTYPES
def test_the_smallest_temperatures_and_the_largest_scores_give_finite_numbers(dtype):
    scores, labels = random_scores(4, 50, scale=1e30, dtype=dtype)
    scores[0] = 1.0
    for tau in (1e-300, 1e-40, 1e30):
        losses, gradient = run(scores, labels, 5, tau)
        assert losses.isfinite().all()
        assert gradient.isfinite().all()


def test_the_margin_may_cancel_the_scores():
    scores = torch.tensor([[1.0, 6.0, 0.5, 0.0]])
    labels = torch.tensor([1])
    assert_exact(scores, labels, 1, 1e-4, *run(scores, labels, 1, 1e-4, margin=5.0), margin=5.0)


def test_any_strides_are_taken():
    scores, labels = random_scores(6, 200)
    expected, expected_gradient = run(scores, labels, 5, 1.0)
    strided = scores.T.contiguous().T
    grad_loss = torch.ones(()).expand(6)
    losses, gradient = run(strided, labels.repeat_interleave(2)[::2].int(), 5, 1.0, grad_loss=grad_loss)
    assert torch.equal(losses, expected)
    assert torch.equal(gradient, expected_gradient)
    for dtype in (torch.float64, torch.bfloat16):  # of the derivatives by the losses
        assert torch.equal(run(scores, labels, 5, 1.0, grad_loss=torch.ones(6, dtype=dtype))[1], expected_gradient)


def test_no_rows_give_no_losses():
    losses, gradient = run(torch.empty(0, 10), torch.empty(0, dtype=torch.int64), 3, 1.0)
    assert losses.shape == (0,)
    assert gradient.shape == (0, 10)


@pytest.fixture
def threads():
    """Sets the number of torch's threads for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("openmp", [True, False])
def test_the_number_of_threads_changes_nothing(rows, openmp, threads, monkeypatch):
    if not openmp:
        monkeypatch.setattr(numba_runtime, "openmp_parallel", lambda: None)
    scores, labels = random_scores(rows, 12_000)
    threads(1)
    expected, expected_gradient = run(scores, labels, 5, 1.0)
    threads(5)
    losses, gradient = run(scores, labels, 5, 1.0)
    assert torch.equal(losses, expected)
    assert torch.equal(gradient, expected_gradient)


def test_calls_from_several_python_threads_do_not_disturb_each_other(threads):
    threads(2)
    problems = [random_scores(200, 300, seed=seed) for seed in range(4)]
    expected = [run(*problem, 5, 1.0) for problem in problems]
    failures = []

    def work(problem, truth):
        for _ in range(20):
            if not all(map(torch.equal, run(*problem, 5, 1.0), truth)):
                failures.append(truth)

    team = [threading.Thread(target=work, args=arguments) for arguments in zip(problems, expected, strict=True)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert not failures


def test_only_what_the_kernels_can_do_is_supported():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        assert numba_backend.supports(torch.zeros(1, 50, dtype=dtype), 16)
        assert not numba_backend.supports(torch.zeros(1, 50, dtype=dtype), 17)
    assert not numba_backend.supports(torch.zeros(1, 50, device="meta"), 5)
    with FakeTensorMode():
        assert not numba_backend.supports(torch.zeros(1, 50), 5)


def test_the_kernels_are_loaded_once():
    first = numba_runtime.load_kernels("numba_kernels", torch.float32, torch.float32)
    assert first is not None
    assert numba_runtime.load_kernels("numba_kernels", torch.float32, torch.float32) is first


@pytest.mark.parametrize("label", [-1, -62, 30, 10**9, -(10**15)])
def test_no_label_out_of_range_reaches_the_memory(label):
    scores, labels = random_scores(9, 30)
    labels[4] = label
    with pytest.raises(IndexError, match=rf"labels must lie in \[0, 30\) or be ignore_index, got the label {label}\."):
        numba_backend.forward(scores, labels, 5, 1.0, 1.0)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore_index", [-100, 3, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_fused_loss_counts_rows_as_the_general_way_does(reduction, weighted, ignore_index, dtype):
    scores, labels = random_scores(150, 12, dtype=dtype)
    if ignore_index is None:
        ignore_index = -100  # which no label is
    else:
        labels[::7] = ignore_index
    weight = torch.rand(24, dtype=dtype, generator=torch.Generator().manual_seed(1))[::2] if weighted else None
    options = {"k": 4, "tau": 0.3, "weight": weight, "ignore_index": ignore_index, "reduction": reduction}
    results = []
    for algorithm in ("auto", "pivot"):
        leaf = scores.clone().requires_grad_()
        value = smooth_topk_loss(leaf, labels, algorithm=algorithm, **options)
        results.append((value.detach(), *torch.autograd.grad(value.square().sum(), leaf)))
    assert type(smooth_topk_loss(leaf, labels, **options).grad_fn).__name__ == "FusedLossBackward"
    assert type(value.grad_fn).__name__ == "PivotLossBackward"
    for fused, general in zip(*results, strict=True):
        torch.testing.assert_close(fused, general)


def test_a_mean_over_many_threads_is_always_the_same(threads):
    scores, labels = random_scores(500, 300)
    threads(1)
    expected = smooth_topk_loss(scores, labels)
    threads(4)
    assert all(torch.equal(smooth_topk_loss(scores, labels), expected) for _ in range(20))


@pytest.mark.parametrize("reason", ["NUMBA_DISABLE_JIT is set", "ImportError: no llvmlite"])
def test_numba_that_does_not_work_is_replaced_by_plain_torch_with_one_warning(reason, tmp_path):
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    if "ImportError" in reason:
        (tmp_path / "numba.py").write_text("raise ImportError('no llvmlite')")
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(Path(smooth_topk.__file__).parents[1])])
    probe = """
import warnings, torch
from smooth_topk import smooth_topk_loss
from smooth_topk.pivot import backend_for
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for k in (2, 20, 2):
        smooth_topk_loss(torch.zeros(3, 30), torch.tensor([0, 1, 2]), k=k)
print([str(warning.message) for warning in caught])
print([backend_for(torch.zeros(3, 30), k).__name__ for k in (2, 20, 29)])
"""
    run = partial(subprocess.run, capture_output=True, text=True, check=True, env=environment)
    warned, backends = run([sys.executable, "-c", probe]).stdout.splitlines()
    assert warned.count("plain torch is used instead") == 1
    assert reason in warned
    assert "numba" not in backends


@pytest.mark.slow
def test_a_second_process_loads_what_the_first_compiled_and_computes_the_same_bits(tmp_path):
    probe = """
import hashlib, torch
from smooth_topk import smooth_topk_loss
from smooth_topk.pivot.numba_runtime import load_kernels
small_k = load_kernels("numba_kernels", torch.float32, torch.float32).machine_code
large_k = load_kernels("numba_large_k_kernels", torch.float32).machine_code
print([kernel.cache_hits for kernel in (*small_k, *large_k)])
random = torch.Generator().manual_seed(0)
for k in (2, 5, 20):
    scores, labels = torch.randn(200, 100, generator=random), torch.randint(100, (200,), generator=random)
    losses = smooth_topk_loss(scores.requires_grad_(), labels, k=k, tau=0.3, reduction="none")
    losses.sum().backward()
    print(*(hashlib.sha256(t.detach().numpy().tobytes()).hexdigest() for t in (losses, scores.grad)))
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    run = partial(subprocess.run, [sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    (compiled, *bits), (loaded, *same_bits) = (run(env=environment).stdout.splitlines() for _ in range(2))
    assert [compiled, loaded] == ["[0, 0, 0, 0]", "[1, 1, 1, 1]"]
    assert len(bits) == 3
    assert same_bits == bits


def test_the_exponential_is_within_two_roundings():
    import numpy as np
    from numba import njit

    from smooth_topk.pivot.numba_kernels import exp2_of_product

    @njit
    def exp2(x, scale, out):
        for i in range(len(x)):
            out[i] = exp2_of_product(x[i], scale)

    for dtype, smallest in ((np.float32, -125), (np.float64, -1021)):
        x = np.linspace(smallest, 0, 20_001).astype(dtype)
        out = np.empty_like(x)
        exp2(x, dtype(1), out)
        truth = np.exp2(x.astype(np.longdouble))
        assert np.max(np.abs(out - truth) / truth) < 2 * np.finfo(dtype).eps
        special = np.array([0.0, -np.inf, np.nan, 4 * smallest], dtype)
        out = np.empty_like(special)
        exp2(special, dtype(1), out)
        np.testing.assert_array_equal(out, np.array([1, 0, np.nan, 0], dtype))


PROBE_OF_THE_CACHE = """
import os, resource, sys, torch
from numba.core.caching import IndexDataCacheFile
from smooth_topk import smooth_topk_loss
from smooth_topk.pivot.numba_runtime import NUMBA_BROKEN
if "killed" in sys.argv:  # after the index of the cache is written, before the machine code is
    IndexDataCacheFile._save_data = lambda *_: os._exit(9)
if "full" in sys.argv:  # no file may have more than so many bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
print(float(smooth_topk_loss(torch.zeros(1, 30), torch.tensor([0]), k=2)), NUMBA_BROKEN)
"""


def probe_cache(folder, *how):
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", PROBE_OF_THE_CACHE, *how]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


@pytest.mark.slow
def test_machine_code_of_another_source_is_never_taken_for_this_one(tmp_path):
    """Numba writes the index first, and the machine code under a number that an older source may have used, too."""
    package = Path(smooth_topk.__file__).parent
    shutil.copytree(package, tmp_path / "smooth_topk", ignore=shutil.ignore_patterns("study", "__pycache__"))
    source = tmp_path / "smooth_topk" / "pivot" / "numba_kernels.py"
    text, line = source.read_text(), "losses[row] = (smooth_margin"
    assert text.count(line) == 1
    source.write_text(text.replace(line, line.replace("=", "= 2.0 +")))
    other = probe_cache(tmp_path).stdout
    source.write_text(text)
    assert probe_cache(tmp_path, "killed").returncode == 9
    expected = float(smooth_topk_loss(torch.zeros(1, 30), torch.tensor([0]), k=2))
    assert other == f"{expected + 2.0} []\n"
    assert probe_cache(tmp_path).stdout == f"{expected} []\n"


@pytest.mark.slow
def test_a_full_disk_or_a_damaged_cache_does_not_change_the_kernels(tmp_path):
    (tmp_path / "smooth_topk").symlink_to(Path(smooth_topk.__file__).parent)
    full, written = probe_cache(tmp_path, "full"), probe_cache(tmp_path)
    files = [path for path in tmp_path.rglob("*.nbc") if path.stat().st_size]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[:1000])
    damaged = probe_cache(tmp_path)
    assert full.stdout == written.stdout == damaged.stdout
    assert written.stdout.endswith(" []\n")
    assert full.stderr == damaged.stderr == ""


PROBE_OF_THE_BOUNDS = """
import torch
from smooth_topk import smooth_topk_loss
from smooth_topk.pivot import numba_large_k
labels = torch.tensor([0, 1, 0])
for k, classes in ((1, 2), (5, 1030), (15, 17), (16, 60)):
    for scores in (torch.zeros(3, classes), torch.randn(3, classes)):
        for reduction in ("none", "mean", "sum"):
            smooth_topk_loss(scores.requires_grad_(), labels, k=k, reduction=reduction).sum().backward()
        _, *state = numba_large_k.forward(scores.detach(), labels, k, 1.0, 1.0)
        numba_large_k.backward(scores.detach(), tuple(state), torch.ones(3), k, 1.0)
"""


@pytest.mark.slow
def test_no_kernel_leaves_its_arrays(tmp_path):
    """With this setting Numba checks every index, and prints an error where one is outside."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROBE_OF_THE_BOUNDS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stderr == ""


def test_more_classes_than_one_thread_takes_at_a_time():
    scores, labels = random_scores(3, numba_backend.SERIAL_ELEMENTS + 9)
    for found, expected in zip(
        run(scores, labels, 5, 1.0), run(scores, labels, 5, 1.0, backend=torch_backend), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-9)


def test_labels_of_another_shape_never_reach_the_kernels():
    with pytest.raises(ValueError, match=r"labels must be a plain tensor of shape \(3,\) on the CPU"):
        numba_runtime.check_labels(torch.zeros(3, 5), torch.zeros(2, dtype=torch.int64))


def test_a_team_without_openmp_is_waited_for(monkeypatch):
    monkeypatch.setattr(numba_runtime, "openmp_parallel", lambda: None)
    done = []

    def work(argument):
        time.sleep(0.1)
        done.append(argument)

    numba_runtime.in_parallel(work, "task", threads=3)
    assert done == ["task"] * 3

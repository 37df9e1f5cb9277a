"""What only Numba does: machine code on the disk, broken installations, threads, and memory that it keeps to."""

import os
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from accuracy import random_scores

import smooth_topk
from smooth_topk import smooth_topk_loss
from smooth_topk.pivot import numba_backend
from smooth_topk.targets import checked_settings

pytestmark = pytest.mark.skipif(not numba_backend.NUMBA_INSTALLED, reason="needs Numba: pip install numba")
SETTINGS = checked_settings(5, 1.0, 1.0, -100, "none", 0.0)


def probe(code, **environment):
    command = [sys.executable, "-c", code]
    environment = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True)


@pytest.mark.parametrize("reason", ["NUMBA_DISABLE_JIT is set", "ImportError: no llvmlite"])
def test_numba_that_does_not_work_is_replaced_by_plain_torch_with_one_warning(reason, tmp_path):
    environment = {"NUMBA_DISABLE_JIT": "1"}
    if "ImportError" in reason:
        (tmp_path / "numba.py").write_text("raise ImportError('no llvmlite')")
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(Path(smooth_topk.__file__).parents[1])])
    code = """
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
    warned, backends = probe(code, **environment).stdout.splitlines()
    assert warned.count("plain torch is used instead") == 1
    assert reason in warned
    assert "numba" not in backends


@pytest.mark.slow
def test_machine_code_is_loaded_again_and_compiled_anew_where_a_file_of_it_is_damaged(tmp_path):
    code = """
import hashlib, torch
from smooth_topk import smooth_topk_loss
from smooth_topk.pivot import numba_backend
random = torch.Generator().manual_seed(0)
for k in (2, 20):
    scores, labels = torch.randn(200, 100, generator=random), torch.randint(100, (200,), generator=random)
    losses = smooth_topk_loss(scores.requires_grad_(), labels, k=k, tau=0.3, reduction="none")
    losses.sum().backward()
    print(*(hashlib.sha256(t.detach().numpy().tobytes()).hexdigest() for t in (losses, scores.grad)))
from smooth_topk.pivot import numba_kernels as kernels
hits = [sum(f.stats.cache_hits.values()) for f in (kernels.pivot_rows, kernels.balanced_rows)]
print(hits, numba_backend.NUMBA_BROKEN)
"""
    run = partial(probe, code, NUMBA_CACHE_DIR=str(tmp_path))
    compiled, loaded = run().stdout.splitlines(), run().stdout.splitlines()
    assert compiled[:2] == loaded[:2]
    assert [compiled[2], loaded[2]] == ["[0, 0] []", "[1, 1] []"]
    for damage in (lambda data: data[:1000], lambda data: b""):
        for path in tmp_path.rglob("*.nb[ic]"):
            path.write_bytes(damage(path.read_bytes()))
        damaged, mended = run(), run()
        assert damaged.stdout.splitlines() == compiled
        assert damaged.stderr == ""
        assert mended.stdout.splitlines() == loaded


@pytest.mark.slow
def test_no_kernel_leaves_its_arrays(tmp_path):
    """With this setting Numba checks every index, and raises IndexError where one is outside."""
    code = """
import torch
from smooth_topk import smooth_topk_loss
from smooth_topk.pivot import numba_backend
labels = torch.tensor([0, 1, 0])
for k, classes in ((1, 2), (5, 1030), (15, 17), (16, 60), (17, 18), (40, 1030)):
    for scores in (torch.zeros(3, classes), torch.randn(3, classes), torch.full((3, classes), -torch.inf)):
        for reduction in ("none", "mean", "sum"):
            smooth_topk_loss(scores.requires_grad_(), labels, k=k, reduction=reduction).sum().backward()
assert not numba_backend.NUMBA_BROKEN, numba_backend.NUMBA_BROKEN
"""
    assert probe(code, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path)).stderr == ""


def test_calls_from_several_python_threads_do_not_disturb_each_other(threads):
    threads(2)
    problems = [(k, *random_scores(200, 300, seed=k)) for k in (3, 5, 20, 30)]
    run = numba_backend.loss_and_gradient
    expected = [run(scores, labels, None, SETTINGS._replace(k=k)) for k, scores, labels in problems]
    failures = []

    def work(problem, truth):
        k, scores, labels = problem
        for _ in range(20):
            if not all(map(torch.equal, run(scores, labels, None, SETTINGS._replace(k=k)), truth)):
                failures.append(k)

    team = [threading.Thread(target=work, args=arguments) for arguments in zip(problems, expected, strict=True)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert not failures


def test_a_forked_process_computes_alone(threads):
    threads(2)
    scores, labels = random_scores(200, 300)
    smooth_topk_loss(scores, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking a process that has threads
        child = os.fork()
    if child == 0:
        losses, _ = numba_backend.loss_and_gradient(scores, labels, None, SETTINGS)
        os._exit(7 if losses.isfinite().all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_labels_of_another_length_never_reach_the_kernels():
    scores, labels = random_scores(3, 30)
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        numba_backend.loss_and_gradient(scores, labels[:2], None, SETTINGS)


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

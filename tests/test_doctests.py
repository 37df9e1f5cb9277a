"""The examples in docstrings and in the README print what they say."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import smooth_topk

ROOT = Path(__file__).resolve().parents[1]
NEEDS_A_GPU = {"smooth_topk.fused.triton_kernels"}  # compiled by Triton, not by Python
MODULES = [
    name for _, name, _ in pkgutil.walk_packages(smooth_topk.__path__, "smooth_topk.") if name not in NEEDS_A_GPU
]


@pytest.mark.parametrize("name", ["smooth_topk", *MODULES])
def test_the_examples_of_a_module_run(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def test_the_public_losses_have_examples():
    finder = doctest.DocTestFinder()
    for function in (smooth_topk.smooth_topk_loss, smooth_topk.hard_topk_loss, smooth_topk.topk_probabilities):
        assert any(test.examples for test in finder.find(function)), function.__name__


def test_the_readme_shows_a_real_session():
    results = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0

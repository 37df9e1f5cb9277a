"""The examples in the docstrings of the losses and in the README print what they say."""

import doctest
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import smooth_topk

ROOT = Path(__file__).resolve().parents[1]
NEEDS_A_GPU = {"smooth_topk.pivot.triton_kernels"}  # compiled by Triton, not by Python
PACKAGES = ("smooth_topk", "smooth_topk.pivot", "smooth_topk.polynomials")
MODULES = [
    module.name
    for subpackage in PACKAGES
    for module in pkgutil.iter_modules(importlib.import_module(subpackage).__path__, f"{subpackage}.")
    if module.name not in {"smooth_topk.study", *NEEDS_A_GPU}  # tests/study has the examples of the study
]


WITH_EXAMPLES = [
    name for name in ("smooth_topk", *MODULES) if ">>> " in Path(importlib.util.find_spec(name).origin).read_text()
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_run(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0, "its source has examples"
    assert results.failed == 0


def test_the_public_losses_have_examples():
    finder = doctest.DocTestFinder()
    for function in (smooth_topk.smooth_topk_loss, smooth_topk.hard_topk_loss, smooth_topk.topk_probabilities):
        assert any(test.examples for test in finder.find(function)), function.__name__


def test_the_readme_shows_a_real_session():
    results = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0

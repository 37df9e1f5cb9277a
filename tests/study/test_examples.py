"""The examples in the docstrings of the study print what they say."""

import doctest
import importlib.util
import pkgutil
from pathlib import Path

import pytest

from smooth_topk import study

MODULES = [
    module.name
    for subpackage in pkgutil.iter_modules(study.__path__, f"{study.__name__}.")
    for module in pkgutil.iter_modules(
        [f"{study.__path__[0]}/{subpackage.name.rpartition('.')[2]}"], f"{subpackage.name}."
    )
    if not module.name.endswith("__main__")
]
WITH_EXAMPLES = [name for name in MODULES if ">>> " in Path(importlib.util.find_spec(name).origin).read_text()]


def test_every_room_has_modules():
    assert {name.split(".")[2] for name in MODULES} >= {"experiments", "records", "training", "measure", "figures"}


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_run(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0, "its source has examples"
    assert results.failed == 0

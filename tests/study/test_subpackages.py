"""The subpackages of the study are the same in the folders, in the contracts of imports and on the page about them."""

import re
import tomllib
from pathlib import Path

import pytest

from smooth_topk import study

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {path.parent.name for path in Path(study.__path__[0]).glob("*/__init__.py")}


def contract() -> list[str]:
    """The subpackages from the first to the last, as import-linter has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(found["layers"] for found in contracts if found["id"] == "subpackages")[::-1]


def test_every_folder_of_the_study_has_its_place_among_the_layers():
    assert set(contract()) == FOLDERS


def test_the_study_lists_its_subpackages_in_the_order_of_the_layers():
    assert re.findall(r"^    (\w+) ", study.__doc__, re.MULTILINE) == contract()


def test_the_page_on_the_subpackages_lists_them_in_the_order_of_the_layers():
    page = (ROOT / "book" / "subpackages.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == contract()


@pytest.mark.parametrize("subpackage", sorted(FOLDERS))
def test_a_room_says_what_it_is_for_and_has_tests(subpackage):
    text = (ROOT / "smooth_topk" / "study" / subpackage / "__init__.py").read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert list((ROOT / "tests" / "study" / subpackage).glob("test_*.py"))

"""What the book is made of, before and around Sphinx; the built book is read in tests/browser and test_real_book."""

import importlib
import inspect
import re
from fnmatch import fnmatch
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

import smooth_topk
from smooth_topk.study.book import build

ROOT = Path(__file__).parents[3]


def page(name: str) -> str:
    return (ROOT / "book" / name).read_text(encoding="utf-8")


def notation_rows() -> list[tuple[str, str]]:
    """(name in code, where defined) of every row of the notation page."""
    text = re.sub(r"`(\w+)` in `([\w.]+)`", r"`\2.\1`", page("notation.md"))  # a function in its module
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()]
    return [
        (row[1].strip("`"), row[3].strip("` |"))
        for row in rows
        if len(row) == 4 and row[1].startswith("`") and "chapter" not in row[3]
    ]


def find(path: str) -> object:
    """The module, function or class of a dotted path."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{path} does not exist")


def test_every_name_of_the_notation_page_exists_where_it_says():
    assert len(notation_rows()) >= 15
    for name, where in notation_rows():
        owner = find(where)
        if inspect.isfunction(owner):
            code = owner.__code__
            assert name in (*inspect.signature(owner).parameters, *code.co_varnames, *code.co_cellvars), where
        else:
            assert hasattr(owner, name), where


def test_the_reference_documents_every_public_name():
    documented = re.findall(r"(?:auto(?:function|class):: |`)smooth_topk\.(\w+)\b(?!\.)", page("api.md"))
    assert sorted(documented) == sorted(smooth_topk.__all__)


def test_every_page_is_in_the_table_of_contents():
    pages = {path.stem for path in (ROOT / "book").glob("*.md")}
    assert {"errata", "index"} <= pages
    for name in pages - {"index"}:
        assert re.search(rf"^{name}$", page("index.md"), re.MULTILINE), name


def test_every_reference_is_cited_and_every_citation_has_a_reference():
    entries = set(re.findall(r"^@\w+\{(\w+),", page("references.bib"), re.MULTILINE))
    pages = "".join(page(path.name) for path in (ROOT / "book").glob("*.md"))
    assert entries == {key for keys in re.findall(r"\{cite(?::\w)?\}`([^`]+)`", pages) for key in keys.split(",")}


def test_the_chapters_follow_each_other_in_the_table_of_contents():
    contents = re.findall(r"```\{toctree\}(.*?)```", page("index.md"), re.DOTALL)
    entries = re.findall(r"^chapters/.*$", "\n".join(contents), re.MULTILINE)
    names = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.py"))
    assert [name for entry in entries for name in names if fnmatch(f"chapters/{name}", entry)] == names


def executed(folder: Path) -> Path:
    """A folder with one executed chapter."""
    folder.mkdir()
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# 0 · Title")])
    nbformat.write(notebook, folder / "00_start_here.ipynb")
    return folder


@pytest.mark.parametrize("damage", ["no notebooks", "output is a file"])
def test_what_cannot_be_built_is_refused(tmp_path, capsys, damage):
    notebooks = tmp_path if damage == "no notebooks" else executed(tmp_path / "notebooks")
    output = tmp_path / "html"
    if damage == "output is a file":
        output.touch()
    assert build.main(["--notebooks", str(notebooks), "--output", str(output)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert not output.is_dir()


def test_a_damaged_notebook_is_named(tmp_path):
    (tmp_path / "00_start_here.ipynb").write_text('{"cells": 3}')
    with pytest.raises(ValueError, match="00_start_here"):
        build.build([tmp_path / "00_start_here.ipynb"], tmp_path / "html")
    assert [path.name for path in tmp_path.iterdir()] == ["00_start_here.ipynb"]


@pytest.mark.parametrize("code", [0, 1])
def test_a_new_book_replaces_the_old_one_only_if_sphinx_has_no_complaint(tmp_path, monkeypatch, code):
    notebooks = executed(tmp_path / "notebooks")
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "index.html").write_text("old")

    def sphinx(command, **_):
        html = Path(command[-1])
        (html / "_static/scripts").mkdir(parents=True)
        (html / "index.html").write_text("new")
        return code

    monkeypatch.setattr(build.subprocess, "call", sphinx)
    assert build.main(["--notebooks", str(notebooks), "--output", str(tmp_path / "html")]) == code
    assert (tmp_path / "html" / "index.html").read_text() == ("new" if code == 0 else "old")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["html", "notebooks"]

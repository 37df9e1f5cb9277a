"""Executed notebooks as pages: captions, folded code, evidence and links."""

import nbformat
import pytest
from nbformat import v4

from smooth_topk.study.book.chapter_pages import prepare_chapter

FIGURE = v4.new_output("display_data", data={"image/png": "iVBORw0KGgo="})
TABLE = v4.new_output("display_data", data={"text/html": "<table></table>"})
WIDGET = "application/vnd.jupyter.widget-state+json"


@pytest.fixture
def chapter(tmp_path):
    """Prepares cells as the executed chapter 4 and returns the cells below its title and provenance."""

    def prepare(*cells: nbformat.NotebookNode, **metadata) -> list[nbformat.NotebookNode]:
        source, target = tmp_path / "04_log_space.ipynb", tmp_path / "chapter" / "04_log_space.ipynb"
        target.parent.mkdir()
        notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# 4 · Title"), *cells])
        notebook.metadata.update(metadata)
        nbformat.write(notebook, source)
        prepare_chapter(source, target)
        found = nbformat.read(target, as_version=4)
        assert "widgets" not in found.metadata
        return found.cells[1:]

    return prepare


def test_captions_are_numbered_by_chapter_and_describe_their_figures(chapter):
    text = "A sentence.\n\n**Figure.** The *curve* falls\nas $\\tau$ falls."
    _, first, code, second = chapter(
        v4.new_markdown_cell(text),
        v4.new_code_cell("ax = figures.curve()", outputs=[FIGURE]),
        v4.new_markdown_cell("**Figure.** Bars.\n\nMore text."),
    )
    assert first.source == (
        "A sentence.\n\n:::{div} figure-caption\n**Figure 4.1.** The *curve* falls\nas $\\tau$ falls.\n:::"
    )
    assert second.source == ":::{div} figure-caption\n**Figure 4.2.** Bars.\n:::\n\nMore text."
    assert code.metadata["mystnb"]["image"]["alt"] == "Figure. The curve falls as tau falls."


@pytest.mark.parametrize(
    ("source", "outputs", "tags", "expected"),
    [
        ("import torch\nx = 1", [], [], ["evidence"]),
        ("from torch import nn\nnotebook.start(profile)", [], [], ["evidence"]),
        ("profile = 'quick'", [], ["parameters"], ["evidence"]),
        ("profile = 'smoke'", [], ["injected-parameters"], ["evidence"]),
        ("assert 1 == 1", [], [], ["evidence", "hide-input"]),
        ("for n in (1, 2):\n    assert n", [], [], ["evidence", "hide-input"]),
        ("x = f()\nassert x", [TABLE], [], []),
        ("ax = figures.curve()", [FIGURE], [], ["hide-input"]),
        ("controls.explore(draw, tau=1.0)", [TABLE], [], ["hide-input"]),
        ("tables.show(table)", [TABLE], [], ["hide-input"]),
        ("ax = figures.curve()", [FIGURE], ["show-input"], []),
        ("def summation(e):\n    return e\n\nax = figures.curve()", [FIGURE], [], []),
        ("def draw(ax):\n    pass\n\ncontrols.explore(draw)", [TABLE], [], ["hide-input"]),
        ("table = measure()", [], [], []),
        ("%time x", [], [], []),
    ],
)
def test_evidence_and_the_code_of_figures_are_told_from_the_lesson(chapter, source, outputs, tags, expected):
    cell = v4.new_code_cell(source, outputs=outputs, metadata={"tags": tags})
    assert chapter(cell)[1].metadata["tags"] == tags + expected


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("# The sum\n# is zero.\nassert total == 0", "✓ checked: The sum is zero."),
        ("assert f(2) == 2", "✓ checked: f(2) == 2"),
        ("if complete:\n    assert total == 0", "Show the check"),
    ],
)
def test_only_a_check_that_ran_is_called_checked(chapter, source, words):
    assert chapter(v4.new_code_cell(source))[1].metadata["mystnb"]["code_prompt_show"] == words


def test_a_page_says_where_its_outputs_come_from_as_far_as_it_is_known(chapter):
    made = {"profile": "smoke", "machine": "<b>A machine</b>", "date": "2026-02-13T00:00:00+00:00", "seconds": 7.2}
    note, _ = chapter(v4.new_markdown_cell("x"), smooth_topk=made, widgets={WIDGET: {"state": {}}})
    assert "**smoke** · \\<b\\>A machine\\</b\\> · 13 February 2026 · 7 s." in note.source
    assert "mean nothing" in note.source


def test_a_page_without_metadata_and_links_to_pages(chapter):
    note, text = chapter(v4.new_markdown_cell("[notation](../book/notation.md), [5](05_backward_pass.ipynb#a)"))
    assert note.source.count("not recorded") == 3
    assert text.source == "[notation](../notation.md), [5](05_backward_pass.ipynb#a)"

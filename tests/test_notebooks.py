"""Every chapter runs from top to bottom with the profile smoke, and is written in the book's form."""

import re

import jupytext
import pytest

from smooth_topk.study.book import plan
from smooth_topk.study.experiments import profiles

CHAPTERS = plan.chapters()
TABLE_RULE = re.compile(r"\|\s*:?-{3,}:?\s*\|")  # the line under the headings of a Markdown table
each_chapter = pytest.mark.parametrize("name", CHAPTERS)


@pytest.mark.slow
@each_chapter
def test_the_chapter_runs_with_the_smoke_profile(name, smoke_chapter, capfd):
    notebook = smoke_chapter(name)
    assert notebook.exists(), "".join(capfd.readouterr())
    executed = jupytext.read(notebook)
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code" and cell.source)


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_every_chapter_and_parameter_of_the_profile_exists(profile):
    assert set(profiles.chapter_parameters(profile)) <= set(CHAPTERS)
    assert {chapter.name for chapter in plan.make_plan(profile)} == set(CHAPTERS)


@each_chapter
def test_the_chapter_opens_and_closes_like_the_others(name):
    cells = jupytext.read(CHAPTERS[name]).cells
    first = cells[0].source
    assert first.startswith(f"# {int(name[:2])} · ")
    assert [word for word in ("**Question", "**You will", "**Paper", "**Time") if word not in first] == []
    texts = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert [heading for heading in ("## What we saw", "## Questions") if heading not in texts] == []
    assert "## Next" in texts or name == list(CHAPTERS)[-1]


@each_chapter
def test_no_line_of_text_begins_with_a_percent_sign(name):
    """The book would take such a line, and the rest of its paragraph, for a comment."""
    texts = [cell.source for cell in jupytext.read(CHAPTERS[name]).cells if cell.cell_type == "markdown"]
    assert [line for text in texts for line in text.splitlines() if line.lstrip().startswith("%")] == []


@each_chapter
def test_no_table_is_squeezed_into_a_paragraph(name):
    """An editor that fills paragraphs joins the rows of a table; a reader then sees its bars and dashes as text."""
    texts = [cell.source for cell in jupytext.read(CHAPTERS[name]).cells if cell.cell_type == "markdown"]
    rules = [line for text in texts for line in text.splitlines() if TABLE_RULE.search(line)]
    assert [line for line in rules if line.strip("|:- ")] == []


@each_chapter
def test_the_chapter_starts_with_its_profile(name):
    code = "\n".join(cell.source for cell in jupytext.read(CHAPTERS[name]).cells if cell.cell_type == "code")
    assert "notebook.start(profile)" in code
    assert plan.read_parameters(CHAPTERS[name])[0]["profile"] == "quick"

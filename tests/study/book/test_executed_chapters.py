"""Executed notebooks as chapters: captions with their numbers, and figures that move with their files of frames."""

import base64
import io

import nbformat
import numpy as np
import pytest
from nbformat import v4
from PIL import Image

from smooth_topk.study.book.executed_chapters import has_photographs, prepare_chapter


def png(picture: Image.Image) -> nbformat.NotebookNode:
    file = io.BytesIO()
    picture.save(file, "png")
    return v4.new_output("display_data", data={"image/png": base64.b64encode(file.getvalue()).decode()})


@pytest.fixture
def chapter(tmp_path):
    """Writes cells as the executed chapter 4, prepares it and returns its cells."""

    def prepare(*cells: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
        (tmp_path / "book" / "chapters").mkdir(parents=True)
        source, target = tmp_path / "04_log_space.ipynb", tmp_path / "book" / "chapters" / "04_log_space.ipynb"
        nbformat.write(v4.new_notebook(cells=[v4.new_markdown_cell("# 4 · Title"), *cells]), source)
        prepare_chapter(source, target, {"04_log_space"})
        return nbformat.read(target, as_version=4).cells[2:]

    return prepare


WHITE = Image.new("RGB", (4, 3), "white")


def test_figures_are_numbered_by_chapter_and_take_their_captions_from_the_text_above(chapter):
    cells = chapter(
        v4.new_markdown_cell("A sentence.\n\n**Figure.** The *curve* falls\nas $\\tau$ falls."),
        v4.new_code_cell("draw()", outputs=[png(WHITE)]),
        v4.new_code_cell("print(1)", outputs=[v4.new_output("stream", text="1")]),
        v4.new_code_cell("# Figure: Every bar\n# is a class.\ndraw()", outputs=[png(WHITE)]),
    )
    sources = [cell.source for cell in cells]
    assert sources == [
        "A sentence.",
        "draw()",
        ":::{div} figure-caption\n**Figure 4.1.** The *curve* falls as $\\tau$ falls.\n:::",
        "print(1)",
        "draw()",
        ":::{div} figure-caption\n**Figure 4.2.** Every bar is a class.\n:::",
    ]
    assert cells[1].metadata["mystnb"]["image"]["alt"] == "The curve falls as tau falls."


def test_a_caption_waits_for_its_figure_while_other_cells_compute_it(chapter):
    text, _, _, caption = chapter(
        v4.new_markdown_cell("A sentence.\n\n**Figure.** The curve falls."),
        v4.new_code_cell("table = measure()"),
        v4.new_code_cell("draw(table)", outputs=[png(WHITE)]),
    )
    assert text.source == "A sentence."
    assert caption.source == ":::{div} figure-caption\n**Figure 4.1.** The curve falls.\n:::"


def test_a_figure_without_a_caption_still_has_its_number(chapter):
    *_, caption = chapter(v4.new_markdown_cell("Look."), v4.new_code_cell("draw()", outputs=[png(WHITE)]))
    assert "**Figure 4.1.**" in caption.source


def test_photographs_are_told_from_drawings():
    random = np.random.default_rng(0)
    noise = Image.fromarray(random.integers(0, 256, (100, 100, 3), dtype=np.uint8))
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (50, 1))).convert("RGB")
    assert has_photographs(png(noise))
    assert not has_photographs(png(ramp))
    assert not has_photographs(v4.new_output("stream", text="1"))

"""Executed chapters in, one small PNG per figure with sliders out: what GitHub and nbviewer show in its place.

    python scripts/book_pictures.py --notebooks runs/quick/notebooks       draws them again into notebooks/pictures

A twin in `notebooks` has no outputs. So the cell above each `controls.explore(...)` holds the picture of the starting
values as a Markdown image. The cell carries the tag `start-picture`; the book leaves it out, because there the figure
itself moves. A picture remembers the source of its cell, and a test compares the two.
"""

import base64
import io
from hashlib import blake2s
from pathlib import Path

import jupytext
from nbformat import NotebookNode
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from smooth_topk.study.records.files import write_whole

TAG = "start-picture"
DOTS_PER_INCH, DRAWN_PER_INCH = 110, 200  # of the picture kept, and of the one in an executed notebook
COLOURS = 64
SOURCE = "cell"  # the entry of a PNG that holds `fingerprint` of its cell


def moving_figures(chapter: str, cells: list[NotebookNode]) -> dict[str, NotebookNode]:
    """Returns the cells of a chapter whose figures have sliders, by the file name of their pictures."""
    moving = [cell for cell in cells if cell.cell_type == "code" and "controls.explore(" in cell.source]
    return {f"{chapter}-{number}.png": cell for number, cell in enumerate(moving, 1)}


def fingerprint(cell: NotebookNode) -> str:
    """Returns what changes with the source of a cell.

    Example:
        >>> fingerprint(NotebookNode(source="controls.explore(draw, tau=1.0)"))
        '6ef69591c1'
    """
    return blake2s(cell.source.encode(), digest_size=5).hexdigest()


def write_start_pictures(executed: Path, folder: Path) -> list[Path]:
    """Writes the starting picture of every figure with sliders and returns the paths.

    Args:
        executed: folder of executed chapters.
        folder: of the pictures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for notebook in sorted(executed.glob("*.ipynb")):
        for name, cell in moving_figures(notebook.stem, jupytext.read(notebook).cells).items():
            written.append(folder / name)
            write_whole(written[-1], _small_picture(_png(cell), fingerprint(cell)))
    return written


def _png(cell: NotebookNode) -> bytes:
    found = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
    return base64.b64decode(found[-1])


def _small_picture(png: bytes, source: str) -> bytes:
    """The picture with fewer dots and colours, and the fingerprint of the cell it was drawn by."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    width, height = (length * DOTS_PER_INCH // DRAWN_PER_INCH for length in picture.size)
    entries, file = PngInfo(), io.BytesIO()
    entries.add_text(SOURCE, source)
    small = picture.resize((width, height), Image.Resampling.LANCZOS).quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(file, "png", optimize=True, pnginfo=entries)
    return file.getvalue()

"""Executed notebooks in, chapters of the static book out: where each was run is said, and no widget is left dead."""

import base64
import io
import re
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from PIL import Image

from smooth_topk.study.book.folding import fold
from smooth_topk.study.book.plain_text import plain

WIDGET = "application/vnd.jupyter.widget-view+json"
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<chapter>\w+)\.ipynb(?:#[^)]*)?\)")
CAPTION = re.compile(r"\*\*Figure\.\*\*\s+(?P<words>.+)", re.DOTALL)
CAPTION_COMMENT = re.compile(r"^# Figure: (?P<words>.+(?:\n# .+)*)", re.MULTILINE)
MANY_COLOURS = 3000  # in a picture: photographs have more, drawings fewer
NEEDS_KERNEL = "*Open this chapter in JupyterLab (`bash scripts/lab.sh`) to move these controls.*"


def read_executed(path: Path) -> nbformat.NotebookNode:
    """Returns a notebook; raises ValueError in a full sentence where the file holds something else."""
    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, KeyError, AttributeError, TypeError, nbformat.ValidationError) as error:
        raise ValueError(
            f"{path} cannot be read as a notebook ({type(error).__name__}): delete it, then run bash scripts/study.sh, "
            "which runs its chapter again."
        ) from None


def prepare_chapter(source: Path, target: Path, chapters: set[str]) -> None:
    """Writes the notebook as a chapter of the book.

    Args:
        source: an executed notebook.
        target: the chapter.
        chapters: names of the chapters in this book; a link to another chapter becomes plain text.
    """
    notebook = read_executed(source)
    pages = _Page(target)
    cells, above = [], None
    for cell in notebook.cells:
        cells.append(cell)
        if cell.cell_type == "markdown":
            above = cell
            cell.source = mended_links(cell.source, chapters)
        elif cell.cell_type == "code":
            fold(cell)
            cell.outputs = [output for output in cell.outputs if not says_where_it_ran(cell, output)]
            caption = pages.show(cell, above)
            cells += [caption] if caption else []
            if caption or not ends_with_caption(above):  # a caption waits for its figure
                above = None
    notebook.cells = cells
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(provenance(notebook.metadata), id="provenance"))
    notebook.metadata.pop("widgets", None)
    nbformat.write(notebook, target)


def says_where_it_ran(cell: NotebookNode, output: NotebookNode) -> bool:
    """Returns whether an output is the line of `notebook.start`: the note under the chapter's title says the same."""
    return "notebook.start(" in cell.source and output.output_type == "stream" and output.text.startswith("Profile ")


class _Page:
    """What the cells of one chapter share: its number, and how many figures it has so far."""

    def __init__(self, target: Path):
        self.target = target
        self.chapter, self.figures = target.stem.split("_")[0].lstrip("0") or "0", 0

    def show(self, cell: NotebookNode, above: NotebookNode | None) -> NotebookNode | None:
        """Makes a cell's outputs ready for the page; returns the caption of its figure, if it has one."""
        text = above.source if above else ""
        has_figure = any(is_figure(output.get("data", {})) for output in cell.outputs)
        caption = taken_caption(cell, above) if has_figure else ""
        words = plain_words(caption or text)
        cell.outputs = [self.without_widget(output) for output in cell.outputs]
        cell.metadata.setdefault("mystnb", {})["image"] = image_options(cell.outputs, words)
        if not has_figure:
            return None
        self.figures += 1
        text = f":::{{div}} figure-caption\n**Figure {self.chapter}.{self.figures}.** {caption}\n:::"
        return nbformat.v4.new_markdown_cell(text, id=f"caption-{self.figures}")

    def without_widget(self, output: NotebookNode) -> NotebookNode:
        """The output as a page without a kernel can show it: explorers and figures with controls stay alive."""
        data = output.get("data", {})
        if WIDGET not in data:
            return output
        kept = {kind: data[kind] for kind in ("image/png", "text/markdown", "text/html") if kind in data}
        shown = kept or {"text/markdown": NEEDS_KERNEL}
        return nbformat.v4.new_output("display_data", data=shown, metadata=output.get("metadata", {}))


def is_figure(data: dict) -> bool:
    """Returns whether an output is a picture or a figure with controls."""
    return "image/png" in data or 'class="live-figure"' in data.get("text/html", "")


def taken_caption(cell: NotebookNode, above: NotebookNode | None) -> str:
    """Takes the caption of a cell's figure from where the notebook has it, or returns an empty text.

    It is the last paragraph above the cell if that begins with **Figure.**, or a comment `# Figure: ...` in the cell.
    Cells that compute what the figure shows may stand between the two.
    """
    if above and (found := ends_with_caption(above)):
        above.source = above.source.rstrip().rpartition("\n\n")[0]
        return " ".join(found["words"].split())
    if found := CAPTION_COMMENT.search(cell.source):
        cell.source = cell.source.replace(found[0], "").lstrip("\n")
        return " ".join(found["words"].replace("\n#", "").split())
    return ""


def ends_with_caption(above: NotebookNode | None) -> re.Match[str] | None:
    return CAPTION.match(above.source.rstrip().rpartition("\n\n")[2]) if above else None


def mended_links(text: str, chapters: set[str]) -> str:
    """Links as they are in the book, where chapters lie one folder below the pages, and some may be missing."""
    text = text.replace("](../book/", "](../")
    return LINK.sub(lambda link: link[0] if link["chapter"] in chapters else link["text"], text)


def image_options(outputs: list[NotebookNode], words: str) -> dict[str, str]:
    """What Sphinx is told about the figures of a cell: alternative text, and which hold photographs."""
    photographs = any(has_photographs(output) for output in outputs)
    return {"alt": words} | ({"classes": "photographs"} if photographs else {})


def has_photographs(output: NotebookNode) -> bool:
    """Returns whether a picture has so many colours that its lightness must not be turned round on a dark page."""
    png = output.get("data", {}).get("image/png")
    if png is None:
        return False
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    if picture.getcolors(MANY_COLOURS) is not None:
        return False
    pixels = picture.width * picture.height
    ground = max(count for count, _ in picture.getcolors(pixels) or ())
    return ground < pixels / 2  # many smooth curves have many colours, on white paper


def plain_words(text: str) -> str:
    """The last paragraph of a text without its markup: what a screen reader says of the figure below it.

    Example:
        >>> plain_words("# Title\\n\\nEach *point* is a [sample](x.md), $s_y > 0$.")
        'Each point is a sample, s_y > 0.'
    """
    last = re.sub(r"^- ", "", text.strip().split("\n\n")[-1], flags=re.MULTILINE)
    last = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", last)
    return re.sub(r"\s+", " ", re.sub(r"[*`$#\\{}]", "", last)).strip() or "Figure"


def provenance(metadata: NotebookNode) -> str:
    """The note under a chapter's title: profile, machine, date, time and versions, as far as it knows them."""
    made = metadata.get("smooth_topk", {})
    papermill = metadata.get("papermill", {})
    date = made.get("date") or papermill.get("end_time") or ""
    seconds = made.get("seconds") or papermill.get("duration")
    versions = made.get("versions", {})
    facts = [
        f"profile **{made['profile']}**" if "profile" in made else "profile not recorded",
        plain(made.get("machine") or "machine not recorded"),
        f"{datetime.fromisoformat(date):%d %B %Y}".lstrip("0") if date else "date not recorded",
        f"{seconds:.0f}\N{NO-BREAK SPACE}s" if seconds else "",
        ", ".join(f"{name} {versions[name]}" for name in ("smooth_topk", "torch", "python") if name in versions),
    ]
    warning = " The numbers of a smoke run mean nothing: it only shows that every cell runs."
    text = " · ".join(fact for fact in facts if fact) + ("." + warning if made.get("profile") == "smoke" else ".")
    return f":::{{admonition}} Where these outputs come from\n:class: provenance\n{text}\n:::"

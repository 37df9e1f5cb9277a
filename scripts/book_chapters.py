"""Executed notebooks in, chapters of the static book out: where each was run is said, and no widget is left dead."""

import re
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from smooth_topk.study.tau_explorer import VALUES, live_figure

WIDGET = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<chapter>\w+)\.ipynb(?:#[^)]*)?\)")
WIDE = 750  # pixels; a figure of one panel has 650
NEEDS_KERNEL = "*Open this chapter in JupyterLab (`bash scripts/lab.sh`) to move these controls.*"


def prepare_chapter(source: Path, target: Path, chapters: set[str]) -> None:
    """Writes the notebook as a chapter of the book.

    Args:
        source: an executed notebook.
        target: the chapter.
        chapters: names of the chapters in this book; a link to another chapter becomes plain text.
    """
    notebook = nbformat.read(source, as_version=4)
    states = notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    text = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = cell.source
            cell.source = mended_links(cell.source, chapters)
        elif cell.cell_type == "code":
            cell.outputs = [without_widget(output, states) for output in cell.outputs]
            cell.metadata["mystnb"] = {"image": image_options(cell.outputs, text)}
            if "injected-parameters" in cell.metadata.get("tags", []):
                cell.metadata["tags"] = [*cell.metadata["tags"], "hide-cell"]
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(provenance(notebook.metadata), id="provenance"))
    notebook.metadata.pop("widgets", None)
    nbformat.write(notebook, target)


def mended_links(text: str, chapters: set[str]) -> str:
    """Links as they are in the book, where chapters lie one folder below the pages, and some may be missing."""
    text = text.replace("](../book/", "](../")
    return LINK.sub(lambda link: link[0] if link["chapter"] in chapters else link["text"], text)


def image_options(outputs: list[NotebookNode], text: str) -> dict[str, str]:
    """What Sphinx is told about the figures of a cell: their alternative text, and which do not fit a phone."""
    widths = [output.get("metadata", {}).get("image/png", {}).get("width", 0) for output in outputs]
    return {"alt": plain_words(text)} | ({"classes": "wide"} if max(widths, default=0) > WIDE else {})


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
        made.get("machine") or "machine not recorded",
        f"{datetime.fromisoformat(date):%d %B %Y}".lstrip("0") if date else "date not recorded",
        f"{seconds:.0f} s" if seconds else "",
        ", ".join(f"{name} {versions[name]}" for name in ("smooth_topk", "torch") if name in versions),
    ]
    warning = " The numbers of a smoke run mean nothing: it only shows that every cell runs."
    text = " · ".join(fact for fact in facts if fact) + ("." + warning if made.get("profile") == "smoke" else ".")
    return f":::{{admonition}} Where these outputs come from\n:class: provenance\n{text}\n:::"


def without_widget(output: NotebookNode, states: dict) -> NotebookNode:
    """The output as a page without a kernel can show it: an explorer stays alive, other controls leave a sentence."""
    data = output.get("data", {})
    if WIDGET not in data:
        return output
    state = states.get(data[WIDGET]["model_id"], {}).get("state", {})
    if {"tau", "scores", "label"} <= state.keys():
        shown = {"text/html": live_figure(**{name: state[name] for name in VALUES if name in state})}
    elif data.get("text/plain", "").startswith("TauExplorer("):
        shown = {"text/html": live_figure()}
    else:
        kept = {kind: value for kind, value in data.items() if kind in ("text/markdown", "text/html")}
        shown = kept or {"text/markdown": NEEDS_KERNEL}
    return nbformat.v4.new_output("display_data", data=shown)

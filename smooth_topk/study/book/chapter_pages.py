"""An executed notebook as a page of the book: numbered captions, folded code, and evidence that a switch shows.

Parameters, imports and checks carry the tag `evidence`, the code of figures and tables the tag `hide-input`. The tag
`show-input` on a cell keeps its code open.
"""

import ast
import itertools
import re
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from smooth_topk.study.book.plain_text import plain

LONGEST = 110  # characters of a check on its line
CAPTION = re.compile(r"^\*\*Figure\.\*\*\s(?P<words>.+?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
SHOWS = re.compile(r"^(?:display\()?(?:\w+(?:, \w+)* = )?(?:figures|controls|tables)\.\w+\(", re.MULTILINE)
LESSON = re.compile(r"^(?:class|def (?!draw\b))", re.MULTILINE)


def prepare_chapter(source: Path, target: Path) -> None:
    """Writes an executed notebook as a chapter of the book."""
    try:
        notebook = nbformat.read(source, as_version=4)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{source} is not a notebook: delete it, and run the study again ({error}).") from None
    numbers, above = itertools.count(1), ""
    chapter = target.stem.split("_")[0].lstrip("0") or "0"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            above = cell.source
            cell.source = CAPTION.sub(
                lambda found: f":::{{div}} figure-caption\n**Figure {chapter}.{next(numbers)}.** {found['words']}\n:::",
                cell.source.replace("](../book/", "](../"),
            )
        elif cell.cell_type == "code":
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), *added_tags(cell)]
            cell.metadata.setdefault("mystnb", {})["image"] = {"alt": plain_words(above)}
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(provenance(notebook.metadata), id="provenance"))
    notebook.metadata.pop("widgets", None)  # what widgets showed is in the outputs
    nbformat.write(notebook, target)


def added_tags(cell: NotebookNode) -> list[str]:
    """Returns the tags that say how the page shows a code cell; a check also gets the words of its line."""
    tags = cell.metadata.get("tags", [])
    if {"parameters", "injected-parameters"} & set(tags) or re.match(r"import |from ", cell.source):
        return ["evidence"]
    if words := check_words(cell):
        cell.metadata.setdefault("mystnb", {}).update(code_prompt_show=words, code_prompt_hide=words)
        return ["evidence", "hide-input"]
    has_view = any({"image/png", "text/html"} & output.get("data", {}).keys() for output in cell.outputs)
    folded = has_view and SHOWS.search(cell.source) and not LESSON.search(cell.source)
    return ["hide-input"] if folded and not {"show-input", "hide-input"} & set(tags) else []


def check_words(cell: NotebookNode) -> str:
    """Returns what a cell that only asserts has checked, or an empty text for another cell.

    It is the comment on the first line or the assertion itself. An assertion below an `if` may not have run: the line
    does not call it checked.

    Example:
        >>> check_words(NotebookNode(source="# The gradient sums to zero.\\nassert total == 0"))
        '✓ checked: The gradient sums to zero.'
    """
    try:
        statements = ast.parse(cell.source).body
    except SyntaxError:  # a magic of IPython
        return ""
    allowed = ast.Assert | ast.Assign | ast.For | ast.If | ast.With | ast.Expr
    asserts = [part for part in ast.walk(ast.Module(statements, [])) if isinstance(part, ast.Assert)]
    if not asserts or cell.get("outputs") or not all(isinstance(statement, allowed) for statement in statements):
        return ""
    if any(isinstance(part, ast.If) for part in ast.walk(ast.Module(statements, []))):
        return "Show the check"
    comment = re.match(r"(?:#[^\n]*\n)+", cell.source)
    words = " ".join(line.lstrip("# ") for line in comment[0].splitlines()) if comment else ""
    words = words or "; ".join(ast.unparse(check.test) for check in asserts)
    return f"✓ checked: {words if len(words) <= LONGEST else words[:LONGEST].rsplit(' ', 1)[0] + ' …'}"


def plain_words(text: str) -> str:
    """The last paragraph of a text without its markup: what a screen reader says of the figure below it.

    Example:
        >>> plain_words("# Title\\n\\nEach *point* is a [sample](x.md), $s_y > 0$.")
        'Each point is a sample, s_y > 0.'
    """
    last = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text.strip().split("\n\n")[-1])
    return re.sub(r"\s+", " ", re.sub(r"[*`$#\\{}]", "", last)).strip() or "Figure"


def provenance(metadata: NotebookNode) -> str:
    """The line under a chapter's title: profile, machine, date, time and versions, as far as they are known."""
    made, versions = metadata.get("smooth_topk", {}), metadata.get("smooth_topk", {}).get("versions", {})
    facts = [
        f"profile **{made['profile']}**" if "profile" in made else "profile not recorded",
        plain(made.get("machine") or "machine not recorded"),
        f"{datetime.fromisoformat(made['date']):%d %B %Y}" if made.get("date") else "date not recorded",
        f"{made['seconds']:.0f} s" if "seconds" in made else "",
        ", ".join(f"{name} {versions[name]}" for name in ("smooth_topk", "torch", "python") if name in versions),
    ]
    smoke = "\n\n**The numbers of a smoke run mean nothing**: it only shows that every cell runs."
    line = ":::{div} provenance\nThese outputs: " + " · ".join(fact for fact in facts if fact) + ".\n:::"
    return line + (smoke if made.get("profile") == "smoke" else "")

"""Builds the static book from executed notebooks.

    python scripts/build_book.py                                          the chapters of runs/quick
    python scripts/build_book.py --notebooks runs/laptop/notebooks        those of another profile

The book opens from its folder or from any server, and asks no other host for anything. It is built in a temporary
folder and takes the place of the old one when it is whole; a warning of Sphinx is an error.

Exit codes: 0 the book is built, 1 Sphinx complained, 2 refused; after Ctrl-C 130, after SIGTERM 143, after a closed
terminal 129, and 141 when nobody reads the output any more. With all but the first, the old book is as it was.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path

from smooth_topk.study.book.cost_page import write_costs
from smooth_topk.study.book.executed_chapters import prepare_chapter
from smooth_topk.study.book.pictures import draw_pictures
from smooth_topk.study.book.results_page import results_page
from smooth_topk.study.records.endings import as_sentence
from smooth_topk.study.records.files import exclusive, make_folder
from smooth_topk.study.records.paths import path_option, project_root

ROOT = project_root()
OUTPUT = ROOT / "book/_build/html"
BUILDING = ".building-"
PAGES = ("*.md", "*.bib", "conf.py", "_static", "_templates", "recipes")
CHAPTER_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\(\.\./notebooks/(?P<name>\w+)\.ipynb\)")
ROOM = re.compile(r"^ {4}(\w+) {2,}(.+)$", re.MULTILINE)  # a line of the list in the docstring of smooth_topk.study


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--notebooks", type=path_option, default=ROOT / "runs/quick/notebooks", help="folder of executed notebooks"
    )
    parser.add_argument("--output", type=path_option, default=OUTPUT, help="folder of the book")
    options = parser.parse_args(arguments)
    started, output = time.monotonic(), Path(os.path.realpath(options.output))
    try:
        notebooks = sorted(options.notebooks.glob("*.ipynb"))
        if not notebooks:
            raise ValueError(f"{options.notebooks} holds no executed notebook: run bash scripts/study.sh first.")
        if not build(notebooks, output):
            print("!! The book was not built: Sphinx names the reasons above.", file=sys.stderr)
            return 1
    except (OSError, ValueError) as error:
        print(f"!! {as_sentence(error)}", file=sys.stderr)
        return 2
    print(f"== The book is built ({time.monotonic() - started:.0f} s): open {output / 'index.html'}")
    return 0


def build(notebooks: list[Path], output: Path, book: Path = ROOT / "book") -> bool:
    """Builds the book and puts it in the place of the old one; returns whether Sphinx had no complaint.

    Args:
        notebooks: executed notebooks, the chapters.
        output: folder of the new book.
        book: folder of the pages, settings and results.
    """
    if (output.exists() or output.is_symlink()) and not output.is_dir():  # a link may lead nowhere, or to itself
        raise ValueError(f"{output} is not a folder: choose another place for the book with --output FOLDER.")
    make_folder(output.parent)
    with (
        exclusive(output.parent / ".building.lock", wait=True),
        tempfile.TemporaryDirectory(prefix=BUILDING, dir=output.parent) as work,
    ):
        for left in output.parent.glob(f"{BUILDING}*"):  # by a build that was killed: this one holds the lock
            if left != Path(work):
                shutil.rmtree(left, ignore_errors=True)
        source, html = Path(work) / "source", Path(work) / "html"
        stage(notebooks, source, book)
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
        doctrees = ["-d", str(Path(work) / "doctrees")]
        settings = {**os.environ, "PYTHONUTF8": "1"}
        # In a session of its own: Ctrl-C reaches this process alone, which ends Sphinx and says so.
        if subprocess.call([*command, *doctrees, str(source), str(html)], env=settings, start_new_session=True) != 0:
            return False
        swap(html, output, Path(work) / "old")
    return True


def stage(notebooks: list[Path], source: Path, book: Path) -> None:
    """Puts everything Sphinx reads into one folder: the pages, the chapters, and what is made from code and results."""
    source.mkdir()
    for path in [path for pattern in PAGES for path in book.glob(pattern)]:
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, source / path.name)
    (source / "chapters").mkdir()
    names = {notebook.stem for notebook in notebooks}
    for notebook in notebooks:
        prepare_chapter(notebook, source / "chapters" / notebook.name, names)
    for page in source.glob("*.md"):
        page.write_text(with_chapter_links(page.read_text(encoding="utf-8"), names), encoding="utf-8")
    index = source / "index.md"
    index.write_text(without_empty_parts(index.read_text(encoding="utf-8"), names), encoding="utf-8")
    (source / "results.md").write_text(results_page(book / "results", names), encoding="utf-8")
    for name, text in study_reference().items():
        (source / f"{name}.md").write_text(text, encoding="utf-8")
    draw_pictures(source / "_static" / "pictures")
    write_costs(source / "generated", book / "results")


def with_chapter_links(page: str, names: set[str]) -> str:
    """Links to notebooks as they are in the book; one to a chapter that this book does not have becomes plain text.

    Example:
        >>> with_chapter_links("[Chapter 5](../notebooks/05_backward_pass.ipynb)", {"05_backward_pass"})
        '[Chapter 5](chapters/05_backward_pass.ipynb)'
        >>> with_chapter_links("[Chapter 5](../notebooks/05_backward_pass.ipynb)", set())
        'Chapter 5'
    """
    return CHAPTER_LINK.sub(
        lambda link: f"[{link['text']}](chapters/{link['name']}.ipynb)" if link["name"] in names else link["text"], page
    )


def without_empty_parts(index: str, names: set[str]) -> str:
    """Leaves out of the tables of contents what matches no chapter: a book of a few chapters is a book too."""

    def kept(line: str) -> bool:
        return not line.startswith("chapters/") or any(fnmatch(f"chapters/{name}", line) for name in names)

    index = "\n".join(line for line in index.split("\n") if kept(line))
    return re.sub(r"```\{toctree\}\n(:.*\n)*\n```\n+", "", index)


def study_reference(package: Path = ROOT / "smooth_topk" / "study") -> dict[str, str]:
    """The reference of smooth_topk.study by the name of its page: api_study with a list of the rooms, and one per room.

    A room's page has one section per module that has documented functions or classes.
    """
    opening = (
        "What the chapters use: `smooth_topk.study`, needs the extra `study`. Its rooms, in the order the data flows:"
    )
    pages = {"api_study": f"# API of the study\n\n{opening}\n"}
    for room, words in ROOM.findall((package / "__init__.py").read_text(encoding="utf-8")):
        lines = [
            f"# The room {room}",
            "",
            capitalised(words),
            "",
            "```{contents}",
            ":local:",
            ":backlinks: none",
            "```",
            "",
        ]
        for path in sorted((package / room).rglob("*.py")):
            members = public_names(path)
            if members:
                name = ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
                heading = name.replace("__", r"\_\_")  # two underscores would make a word bold
                lines += [f"## {heading}", "", "```{eval-rst}", f".. automodule:: smooth_topk.study.{name}"]
                lines += [f"   :members: {', '.join(members)}", "```", ""]
        pages[f"api_study_{room}"] = "\n".join(lines)
        pages["api_study"] += f"\n- [{room}](api_study_{room}): {words}"
    contents = "\n".join(name for name in pages if name != "api_study")
    pages["api_study"] += f"\n\n```{{toctree}}\n:hidden:\n\n{contents}\n```\n"
    return pages


def capitalised(words: str) -> str:
    """Returns words with a capital and a full stop; a file name at their beginning keeps its own letters.

    Example:
        >>> capitalised("many runs"), capitalised("runs.csv, as a table")
        ('Many runs.', 'runs.csv, as a table.')
    """
    first = words.split()[0].rstrip(",;:")
    return f"{words if '.' in first else words[0].upper() + words[1:]}."


def public_names(path: Path) -> list[str]:
    """The functions and classes a module defines for others, in its order."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    definitions = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [node.name for node in definitions if not node.name.startswith("_") and ast.get_docstring(node)]


def swap(new: Path, place: Path, aside: Path) -> None:
    """Puts a folder in the place of another; the old one goes aside, to be removed, and comes back after a failure."""
    try:
        if place.exists():
            os.rename(place, aside)
        os.rename(new, place)
    except BaseException:  # also Ctrl-C between the two
        if aside.exists() and not place.exists():
            os.rename(aside, place)
        raise

"""Builds the static book from executed notebooks.

    python scripts/build_book.py                                          the chapters of runs/quick
    python scripts/build_book.py --notebooks runs/laptop/notebooks        those of another profile

The book opens from its folder or from any server, and asks no other host for anything. It is built in a temporary
folder and replaces the old one when it is complete; a warning of Sphinx is an error.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from smooth_topk.study.book.chapter_pages import prepare_chapter
from smooth_topk.study.book.cost import write_costs
from smooth_topk.study.records.paths import path_option, project_root

ROOT = project_root()
OUTPUT = ROOT / "book/_build/html"
PAGES = ("*.md", "*.bib", "conf.py", "_static", "_templates", "recipes")
# A book of a few chapters has links to chapters that it does not have.
OF_SOME_CHAPTERS = ["-D", "suppress_warnings=myst.xref_missing,ref.doc"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--notebooks", type=path_option, default=ROOT / "runs/quick/notebooks", help="folder of executed notebooks"
    )
    parser.add_argument("--output", type=path_option, default=OUTPUT, help="folder of the book")
    options = parser.parse_args(arguments)
    started, notebooks = time.monotonic(), sorted(options.notebooks.glob("*.ipynb"))
    if not notebooks:
        print(f"!! {options.notebooks} holds no executed notebook: run bash scripts/study.sh first.", file=sys.stderr)
        return 2
    if options.output.exists() and not options.output.is_dir():
        print(f"!! {options.output} is not a folder: choose another with --output FOLDER.", file=sys.stderr)
        return 2
    if not build(notebooks, options.output):
        print("!! The book was not built: Sphinx names the reasons above.", file=sys.stderr)
        return 1
    print(f"== The book is built ({time.monotonic() - started:.0f} s): open {options.output / 'index.html'}")
    return 0


def build(notebooks: list[Path], output: Path, book: Path = ROOT / "book") -> bool:
    """Builds the book and replaces the old one; returns whether Sphinx had no complaint.

    Args:
        notebooks: executed notebooks, the chapters.
        output: folder of the new book.
        book: folder of the pages, settings and results.
    """
    output = output.resolve()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=output.parent) as work:
        source, html = Path(work) / "source", Path(work) / "html"
        stage(notebooks, source, book)
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", f"{work}/doctrees"]
        command += OF_SOME_CHAPTERS if {path.stem for path in notebooks} < chapter_names() else []
        if subprocess.call([*command, str(source), str(html)], env={**os.environ, "PYTHONUTF8": "1"}) != 0:
            return False
        make_small(html)
        if output.exists():
            output.rename(Path(work) / "old")
        html.rename(output)
    return True


def chapter_names() -> set[str]:
    """Returns the names of all chapters."""
    return {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.py")}


def stage(notebooks: list[Path], source: Path, book: Path) -> None:
    """Puts everything Sphinx reads into one folder: the pages, the chapters, and what is made from recorded results."""
    source.mkdir()
    for path in [path for pattern in PAGES for path in book.glob(pattern)]:
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, source / path.name)
    (source / "chapters").mkdir()
    for notebook in notebooks:
        prepare_chapter(notebook, source / "chapters" / notebook.name)
    for page in source.glob("*.md"):
        page.write_text(page.read_text(encoding="utf-8").replace("](../notebooks/", "](chapters/"), encoding="utf-8")
    index = (source / "index.md").read_text(encoding="utf-8").split("\n")
    index = [line for line in index if not line.startswith("chapters/") or any(source.glob(line))]  # of some chapters
    (source / "index.md").write_text("\n".join(index), encoding="utf-8")
    pictures = source / "_static" / "pictures"
    pictures.mkdir()
    for picture in (book / "results").glob("*.svg"):
        shutil.copy2(picture, pictures)
    write_costs(source / "generated", book / "results")


def make_small(html: Path) -> None:
    """Leaves out what readers do not need: outputs in the notebooks to download, source maps, the theme's icon font."""
    for notebook in html.glob("_sources/chapters/*.ipynb"):
        twin = ROOT / "notebooks" / notebook.name
        if twin.exists():
            shutil.copyfile(twin, notebook)
    for path in (html / "_static").rglob("*.map"):
        path.unlink()
    (html / "_static/scripts/fontawesome.js").write_text("")  # 1.6 MB for the dozen icons of book.css

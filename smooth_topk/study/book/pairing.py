"""Writes notebooks/NAME.ipynb, without outputs, from notebooks/NAME.py; with --check says which pairs differ.

The .py file is the source. A cell's id is a hash of its place and text, so that the same source gives the same bytes.
Before a commit: `python scripts/sync_notebooks.py --check`.
"""

import argparse
import hashlib
import sys
from pathlib import Path

import jupytext
import nbformat

from smooth_topk.study.records.paths import path_option, project_root

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def twin(source: Path) -> nbformat.NotebookNode:
    """Returns the notebook of a percent-format file."""
    notebook = jupytext.read(source)
    pair = {"formats": "ipynb,py:percent"}
    notebook.metadata = nbformat.from_dict(
        {"jupytext": pair, "kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell["id"] = hashlib.sha256(f"{number}\n{cell.source}".encode()).hexdigest()[:8]
    return notebook


def contents(path: Path) -> list[tuple] | None:
    """Returns type, source and tags of every cell, and whether it has outputs; None for a file that is missing."""
    if not path.exists():
        return None
    cells = jupytext.read(path).cells
    return [(cell.cell_type, cell.source, cell.metadata.get("tags", []), bool(cell.get("outputs"))) for cell in cells]


def differing(folder: Path) -> list[str]:
    """Returns the names of the notebooks that are not the same in both files."""
    names = sorted({path.stem for kind in ("*.py", "*.ipynb") for path in folder.glob(kind)})
    return [name for name in names if contents(folder / f"{name}.py") != contents(folder / f"{name}.ipynb")]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a pair differs")
    parser.add_argument("--folder", type=path_option, default=project_root() / "notebooks")
    options = parser.parse_args(arguments)
    for source in [] if options.check else sorted(options.folder.glob("*.py")):
        nbformat.write(twin(source), source.with_suffix(".ipynb"))
    found = differing(options.folder)
    for name in found:
        print(f"!! {name}.py and {name}.ipynb differ: run python scripts/sync_notebooks.py", file=sys.stderr)
    return 1 if found else 0

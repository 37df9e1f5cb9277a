"""Writes notebooks/NAME.ipynb, without outputs, from notebooks/NAME.py; with --check says which twins differ.

The .py file is the source. A cell's id is a hash of its place and text, so that the same source gives the same twin.
"""

import argparse
import hashlib
import sys

import jupytext
import nbformat

from smooth_topk.study.records.endings import as_sentence
from smooth_topk.study.records.files import write_whole
from smooth_topk.study.records.paths import path_option, project_root

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def twin(source):
    """The notebook of a percent-format file, with stable ids and no outputs."""
    try:
        notebook = jupytext.read(source)
    except ValueError:
        raise ValueError(f"{source} is not text in UTF-8: save it in that encoding.") from None
    notebook.metadata = nbformat.from_dict({
        "jupytext": {"formats": "ipynb,py:percent"}, "kernelspec": KERNEL, "language_info": {"name": "python"},
    })  # fmt: skip
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell["id"] = hashlib.sha256(f"{number}\n{cell.source}".encode()).hexdigest()[:8]
        if cell.cell_type == "code":
            cell["outputs"], cell["execution_count"] = [], None
    nbformat.validate(notebook)
    return notebook


def contents(notebook):
    """What must agree between twins: type, source and tags of every cell, and that none has outputs."""
    return [
        (cell.cell_type, cell.source, sorted(cell.metadata.get("tags", [])), list(cell.get("outputs", [])))
        for cell in notebook.cells
    ]


def differences(folder):
    """One sentence for each pair that does not agree."""
    sources, twins = set_of_stems(folder, "*.py"), set_of_stems(folder, "*.ipynb")
    sentences = [f"{name}.ipynb is missing." for name in sources - twins]
    sentences += [f"{name}.ipynb has no {name}.py." for name in twins - sources]
    for name in sources & twins:
        source = contents(twin(folder / f"{name}.py"))
        try:
            differs = contents(nbformat.read(folder / f"{name}.ipynb", as_version=4)) != source
        except (ValueError, KeyError, AttributeError, TypeError, nbformat.ValidationError):  # it is no notebook
            differs = True
        if differs:
            sentences.append(f"{name}.ipynb differs from {name}.py.")
    return sorted(sentences)


def set_of_stems(folder, pattern):
    return {path.stem for path in folder.glob(pattern)}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a twin differs from its source")
    parser.add_argument("--folder", type=path_option, default=project_root() / "notebooks")
    options = parser.parse_args(arguments)
    try:
        sources = sorted(options.folder.glob("*.py"))
        if not sources:
            raise ValueError(f"{options.folder} holds no chapter: --folder takes a folder with NAME.py files.")
        for source in [] if options.check else sources:
            write_whole(source.with_suffix(".ipynb"), (nbformat.writes(twin(source)) + "\n").encode())
        found = differences(options.folder)
    except (OSError, ValueError) as error:
        print(f"!! {as_sentence(error)}", file=sys.stderr)
        return 2
    for sentence in found:
        print(f"!! {sentence}" + (" Run python scripts/sync_notebooks.py" if options.check else ""), file=sys.stderr)
    return 1 if found else 0

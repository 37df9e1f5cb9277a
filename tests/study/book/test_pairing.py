"""The two files of a notebook, written and compared."""

import nbformat
import pytest

from smooth_topk.study.book import pairing

SOURCE = '# %% [markdown]\n# # Title\n\n# %% tags=["parameters"]\nprofile = "quick"\n\n# %%\nassert 1 + 1 == 2\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "00_chapter.py").write_text(SOURCE)
    assert pairing.main(["--folder", str(tmp_path)]) == 0
    return tmp_path


def test_the_notebook_has_the_cells_and_tags_of_its_source_and_the_same_bytes_each_time(folder):
    notebook = nbformat.read(folder / "00_chapter.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code"]
    assert notebook.cells[1].metadata["tags"] == ["parameters"]
    before = (folder / "00_chapter.ipynb").read_bytes()
    pairing.main(["--folder", str(folder)])
    assert (folder / "00_chapter.ipynb").read_bytes() == before


@pytest.mark.parametrize("damage", ["source", "tags", "outputs", "missing"])
def test_a_pair_that_differs_is_found(folder, damage, capsys):
    path = folder / "00_chapter.ipynb"
    notebook = nbformat.read(path, as_version=4)
    if damage == "source":
        notebook.cells[2].source = "assert 1 + 1 == 3"
    elif damage == "tags":
        notebook.cells[1].metadata["tags"] = []
    else:
        notebook.cells[2].outputs = [nbformat.v4.new_output("stream", text="2")]
    nbformat.write(notebook, path)
    if damage == "missing":
        path.unlink()
    assert pairing.main(["--check", "--folder", str(folder)]) == 1
    assert "00_chapter" in capsys.readouterr().err


def test_the_notebooks_of_the_project_are_pairs():
    assert pairing.main(["--check"]) == 0

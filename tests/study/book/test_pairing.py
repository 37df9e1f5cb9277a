"""The .ipynb twins hold what their .py sources hold, and nothing else."""

import shutil
from pathlib import Path

import nbformat
import pytest

from smooth_topk.study.book import pairing

PROJECT = Path(__file__).parents[3]

SOURCE = '# %% [markdown]\n# # Title\n\n# %% tags=["parameters"]\nprofile = "quick"\n\n# %%\nprint(profile)\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "01_first.py").write_text(SOURCE)
    assert pairing.main(["--folder", str(tmp_path)]) == 0
    return tmp_path


def test_the_twins_of_the_project_agree_with_their_sources():
    assert pairing.differences(PROJECT / "notebooks") == []


def test_the_same_source_gives_the_same_twin_byte_for_byte(folder):
    before = (folder / "01_first.ipynb").read_bytes()
    pairing.main(["--folder", str(folder)])
    assert (folder / "01_first.ipynb").read_bytes() == before


def test_a_twin_keeps_tags_and_has_no_outputs(folder):
    cells = nbformat.read(folder / "01_first.ipynb", 4).cells
    assert [cell.metadata.get("tags", []) for cell in cells] == [[], ["parameters"], []]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells if cell.cell_type == "code")


def change_source(twin):
    twin.cells[2].source += "  # drift"


def change_tags(twin):
    twin.cells[1].metadata["tags"] = []


def change_kind(twin):
    twin.cells[2] = nbformat.v4.new_markdown_cell(twin.cells[2].source)


def add_output(twin):
    twin.cells[2].outputs = [nbformat.v4.new_output("stream", text="quick")]


@pytest.mark.parametrize("change", [change_source, change_tags, change_kind, add_output])
def test_the_check_finds_a_twin_that_drifted(folder, change, capsys):
    twin = nbformat.read(folder / "01_first.ipynb", 4)
    change(twin)
    nbformat.write(twin, folder / "01_first.ipynb")
    assert pairing.main(["--check", "--folder", str(folder)]) == 1
    assert "01_first.ipynb differs" in capsys.readouterr().err


def test_the_check_finds_a_missing_and_an_orphaned_twin(folder):
    (folder / "01_first.py").rename(folder / "02_second.py")
    assert pairing.differences(folder) == ["01_first.ipynb has no 01_first.py.", "02_second.ipynb is missing."]


def test_a_twin_that_is_no_notebook_differs_and_is_written_anew(folder):
    (folder / "01_first.ipynb").write_text("{")
    assert pairing.main(["--check", "--folder", str(folder)]) == 1
    assert pairing.main(["--folder", str(folder)]) == 0
    assert pairing.main(["--check", "--folder", str(folder)]) == 0


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_a_folder_without_chapters_or_with_one_that_is_no_text_is_refused(tmp_path, capsys, check):
    assert pairing.main([*check, "--folder", str(tmp_path / "nowhere")]) == 2
    assert "nowhere holds no chapter" in capsys.readouterr().err
    (tmp_path / "01_first.py").write_bytes(b"\xff\xfe")
    (tmp_path / "01_first.ipynb").touch()
    assert pairing.main([*check, "--folder", str(tmp_path)]) == 2
    assert "01_first.py is not text in UTF-8" in capsys.readouterr().err


@pytest.fixture
def save_in_jupyterlab():
    """Jupyter's own way of saving a paired notebook; importing it takes seconds, so only this test does."""
    from jupyter_server.services.contents.largefilemanager import LargeFileManager
    from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class

    return build_sync_jupytext_contents_manager_class(LargeFileManager)


def test_saving_a_chapter_in_jupyterlab_leaves_its_source_as_it_is(tmp_path, save_in_jupyterlab):
    for name in ("jupytext.toml", "00_start_here.py", "00_start_here.ipynb"):
        shutil.copy(PROJECT / "notebooks" / name, tmp_path)
    manager = save_in_jupyterlab(root_dir=str(tmp_path))
    model = manager.get("00_start_here.ipynb")
    model["content"]["metadata"]["language_info"] = {"name": "python", "version": "3.14.0"}  # what a kernel adds
    model["content"]["cells"][-1]["source"] += "\nA reader's line."
    manager.save(model, "00_start_here.ipynb")
    saved, source = ((folder / "00_start_here.py").read_text() for folder in (tmp_path, PROJECT / "notebooks"))
    assert saved.replace("\n# A reader's line.", "") == source != saved

"""Every chapter runs from top to bottom with the profile smoke, and is written in the book's form."""

import sys
from pathlib import Path

import jupytext
import pytest

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "scripts"))

import run_study  # noqa: E402
import study_plan  # noqa: E402

CHAPTERS = study_plan.chapters(PROJECT)
PROFILES = ("smoke", "quick", "laptop", "paper")
each_chapter = pytest.mark.parametrize("name", CHAPTERS)


@pytest.mark.slow
@each_chapter
def test_the_chapter_runs_with_the_smoke_profile(name, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SMOOTH_TOPK_ROOT", str(PROJECT))
    monkeypatch.setenv("SMOOTH_TOPK_RUNS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code = run_study.main([name, "--profile", "smoke", "--no-book", "--workers", "1"])
    assert code == 0, "".join(capfd.readouterr())
    executed = jupytext.read(tmp_path / "smoke" / "notebooks" / f"{name}.ipynb")
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code" and cell.source)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_parameter_of_the_profile_exists_in_its_chapter(profile, tmp_path, monkeypatch):
    for data in ("cifar100", "imagenet", "imagenet_samples"):
        (tmp_path / data / "file").mkdir(parents=True)
    monkeypatch.setenv("SMOOTH_TOPK_DATA", str(tmp_path))
    assert {task.name for task in study_plan.make_plan(PROJECT, profile)} == set(CHAPTERS)


@each_chapter
def test_the_chapter_opens_and_closes_like_the_others(name):
    cells = jupytext.read(CHAPTERS[name]).cells
    first = cells[0].source
    assert first.startswith(f"# {int(name[:2])} · ")
    assert [word for word in ("**Question", "**You will", "**Paper", "**Time") if word not in first] == []
    texts = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert [heading for heading in ("## What we saw", "## Questions") if heading not in texts] == []
    assert "## Next" in texts or name == list(CHAPTERS)[-1]


@each_chapter
def test_the_chapter_starts_with_its_profile(name):
    code = "\n".join(cell.source for cell in jupytext.read(CHAPTERS[name]).cells if cell.cell_type == "code")
    assert "notebook.start(profile)" in code
    assert study_plan.read_parameters(CHAPTERS[name])[0]["profile"] == "quick"

"""Settings of the whole suite: hypothesis, random numbers, Ctrl-C, and the chapters that several tests look at."""

import fcntl
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings

PROJECT = Path(__file__).parents[1]

# The same examples on every run, no files next to the tests, and no limit of time on a machine that is shared.
settings.register_profile("suite", derandomize=True, database=None, deadline=None)
settings.load_profile("suite")

# One thread, as the workers of a grid have: with two, sums are added in another order, and the last bits differ.
torch.set_num_threads(1)


# A shell starts its background jobs deaf to Ctrl-C, and so would be the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same random tensors, alone or after any other test."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def smoke_runs(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder that all workers of this test run share for chapters executed with the profile smoke."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "smoke_runs"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def smoke_chapter(smoke_runs: Path) -> Callable[[str], Path]:
    """Executes a chapter with the profile smoke, once for all workers, and returns the notebook."""
    from smooth_topk.study.book import run_study

    def execute(name: str) -> Path:
        notebook = smoke_runs / name / "smoke" / "notebooks" / f"{name}.ipynb"
        with open(smoke_runs / f"{name}.lock", "w") as lock, pytest.MonkeyPatch.context() as patch:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not notebook.exists():
                folders = {"ROOT": PROJECT, "RUNS": smoke_runs / name, "DATA": PROJECT / "data"}
                for variable, value in {**folders, "WORKERS": 1, "FRAMES": 16}.items():
                    patch.setenv(f"SMOOTH_TOPK_{variable}", str(value))
                patch.chdir(smoke_runs)
                run_study.main([name, "--profile", "smoke", "--no-book", "--workers", "1"])
        return notebook

    return execute


@pytest.fixture(scope="session")
def smoke_book(smoke_runs: Path, smoke_chapter: Callable[[str], Path], worker_id: str) -> Path:
    """The whole book from chapters executed with the profile smoke, built once for all workers."""
    from smooth_topk.study.book import build, plan

    # Two workers that need the book start from both ends of it and meet in the middle.
    for name in list(plan.chapters())[:: -1 if worker_id.endswith("1") else 1]:
        smoke_chapter(name)
    with open(smoke_runs / "book.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (smoke_runs / "html").exists():
            notebooks = [smoke_chapter(name) for name in plan.chapters()]
            assert build.build(notebooks, smoke_runs / "html")
    return smoke_runs / "html"

"""Settings of the whole suite: hypothesis, random numbers, Ctrl-C, and the chapters that several tests look at."""

import contextlib
import fcntl
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import settings

PROJECT = Path(__file__).parents[1]
SECONDS_TO_STOP = 120  # for the tests that are under way

# The same examples on every run, no files beside the tests, and no limit of time on a machine that is shared.
settings.register_profile("suite", derandomize=True, database=None, deadline=None)
settings.load_profile("suite")

# One thread, as the workers of a grid have: with two, sums are added in another order, and the last bits differ.
torch.set_num_threads(1)


def stop(number: int, frame: object) -> None:
    """Makes SIGTERM and a closed terminal stop the tests as Ctrl-C does, so that they end what they started.

    What comes later is ignored: scripts/test.sh sends SIGTERM even if the terminal has already sent another signal.
    """
    for later in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(later, lambda *_: None)
    raise KeyboardInterrupt


# Also SIGINT: a shell starts its background jobs deaf to it, and so would be the processes that tests interrupt.
for stopping in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if stopping != signal.SIGHUP or signal.getsignal(stopping) is not signal.SIG_IGN:  # after nohup they go on
        signal.signal(stopping, stop)

nodes = []  # of xdist, in the process that hands out the tests


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node) -> None:
    nodes.append(node)


def pytest_keyboard_interrupt() -> None:
    """Gives the processes of xdist the time to end what their tests started; xdist itself kills them soon."""
    for process in psutil.Process().children() if nodes else ():
        with contextlib.suppress(psutil.Error):  # it has just ended
            process.terminate()
    for node in nodes:
        with contextlib.suppress(OSError, EOFError, node.channel.RemoteError):
            node.channel.waitclose(SECONDS_TO_STOP)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same random tensors, alone or after any other test."""
    torch.manual_seed(0)


@pytest.fixture
def hears_of_its_terminal() -> Iterator[None]:
    """SIGHUP has its usual effect, also where the tests themselves were started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


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

"""One Chromium for the browser tests of a worker, a page that records what went wrong on it, and one small book."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsing import PATIENCE

if TYPE_CHECKING:  # Jupyter and Playwright are imported by the fixtures: collecting the tests stays fast
    from nbformat import NotebookNode
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is missing: on Debian, apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page with the errors of its console, the requests that failed, and those that left its own site."""

    page: Page
    home: tuple[str, ...] = ("file://", "data:", "blob:")
    errors: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    external: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("requestfailed", lambda request: self._note_failure(request.url, request.failure or ""))
        self.page.on("request", lambda request: self._note(request.url))

    def _note_failure(self, url: str, reason: str) -> None:
        # The browser gives up requests under way when the next page is opened: that is no fault of the page.
        if reason != "net::ERR_ABORTED":
            self.failed.append(f"{url}: {reason}")

    def _note(self, url: str) -> None:
        if not url.startswith(self.home):
            self.external.append(url)

    def assert_clean(self) -> None:
        assert (self.errors, self.failed, self.external) == ([], [], [])


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages that wait for a busy machine, each in a context of its own, and closes them after the test."""
    with contextlib.ExitStack() as contexts:

        def open_page(**options) -> Page:
            context = contexts.enter_context(chromium.new_context(**options))
            context.set_default_timeout(PATIENCE)
            return context.new_page()

        yield open_page


@pytest.fixture
def watched(new_page: Callable[..., Page]) -> Watched:
    return Watched(new_page(viewport={"width": 1280, "height": 900}))


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Pictures of what the tests saw, kept for a person to look at (git-ignored)."""
    folder = ROOT / "runs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The real book with two small chapters, built once for all workers."""
    shared = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    folder = shared / "small_book"
    with open(shared / "small_book.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "html").exists():
            write_small_chapters(folder / "notebooks")
            from smooth_topk.study.book.build import main

            assert main(["--notebooks", str(folder / "notebooks"), "--output", str(folder / "html")]) == 0
    return folder / "html"


def write_small_chapters(folder: Path) -> None:
    """Two executed notebooks as run_study.py leaves them: maths, links, checks, a figure that moves and an explorer."""
    import nbformat
    from nbformat import v4

    folder.mkdir(parents=True)
    first = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("# 0 · Start here\n\n**Question.** What is $L_{k,\\tau}$?"),
            v4.new_code_cell("1 + 1", outputs=[v4.new_output("execute_result", data={"text/plain": "2"})]),
            v4.new_markdown_cell(
                "$$\nL = \\tau \\log \\sum_i e^{s_i/\\tau}\n$$\n\n"
                "Next: [2](02_smoothing_with_tau.ipynb). [Notation](../book/notation.md)."
            ),
            v4.new_code_cell("# Two and two are four.\nassert 2 + 2 == 4"),
            v4.new_markdown_cell("Space between the figures, so that the second is far below.\n\n" + 60 * "- line\n"),
            v4.new_markdown_cell("Move it.\n\n**Figure.** The line is as steep as $\\tau$."),
            v4.new_code_cell("controls.explore(draw, tau=1.0)", outputs=[question_output(), live_output()]),
        ]
    )
    second = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("# 2 · Smoothing with tau\n\nMove it."),
            v4.new_code_cell("TauExplorer(tau=0.1, k=2)", outputs=[widget_output()]),
        ]
    )
    for name, notebook in (("00_start_here", first), ("02_smoothing_with_tau", second)):
        notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
        notebook.metadata["smooth_topk"] = {
            "profile": "smoke",
            "machine": "A processor (Linux, 2 cores, no GPU)",
            "date": "2026-02-03T04:05:06+00:00",
            "seconds": 12.3,
            "versions": {"smooth_topk": "0.1.0", "torch": "2.13.0"},
        }
        nbformat.write(notebook, folder / f"{name}.ipynb")


def live_output() -> NotebookNode:
    """The output of a cell with `controls.explore` as the study records it: tau, a stepper and a choice."""
    from nbformat import v4

    from smooth_topk.study.chapters import controls

    def draw(ax, tau, step, colour):
        ax.plot([0, 1], [0, tau], color=colour)
        ax.set(xlim=(0, 1), ylim=(0, 10), title=f"step {step}")

    choices = controls.widgets.Dropdown(options=["black", "red"], description="colour")
    step = controls.widgets.IntSlider(value=1, min=0, max=3, description="step i")
    view = controls.explore(draw, tau=1.0, step=step, colour=choices)
    return v4.new_output("display_data", data=view._repr_mimebundle_())


def question_output() -> NotebookNode:
    """The output of `controls.predict`."""
    from nbformat import v4

    from smooth_topk.study.chapters import questions

    html = questions.question_html(
        "$\\tau$ grows?", ["It falls.", "It gets steeper."], right=1, then="Its slope is $\\tau$."
    )
    return v4.new_output("display_data", data={"text/html": html})


def widget_output() -> NotebookNode:
    from nbformat import v4

    from smooth_topk.study.chapters.tau_explorer import TauExplorer

    data, _ = TauExplorer(tau=0.1, k=2, scores=[1.0, 2.0, 3.0, 0.5], label=0)._repr_mimebundle_()
    return v4.new_output("display_data", data=data)

"""A notebook in JupyterLab: run all cells, move sliders in the browser, and Python and figures follow."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsing import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jupyterlab")]
ROOT = Path(__file__).parents[2]
CHAPTER = "00_start_here"
START = 120_000  # milliseconds until a kernel has started and imported torch on a busy machine
LINK = "[Errata](../book/errata.md#2-the-number-of-subsets-that-contain-the-label)"  # as the chapters have them
PICTURE = ".jp-OutputArea-output .explorer-picture svg"
CELLS = [
    """
from smooth_topk.study.chapters.tau_explorer import TauExplorer
explorer = TauExplorer(tau=1.0)
explorer
""",
    """
import ipywidgets
seen = ipywidgets.Label("Python waits")
explorer.observe(lambda change: setattr(seen, "value", f"Python sees {change.new}"), "tau")
button = ipywidgets.Button(description="Set tau to 10")
button.on_click(lambda _: setattr(explorer, "tau", 10.0))
ipywidgets.HBox([seen, button])
""",
    """
from smooth_topk.study.chapters import controls
controls.predict("Which way?", ["up", "down"], right=0)
controls.explore(lambda ax, tau: ax.plot([0, 1], [0, tau]), tau=0.1)
""",
    """
from smooth_topk.study.chapters.training_demo import TrainingDemo
TrainingDemo(k=3)
""",
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """JupyterLab in an empty home, on a free port, with a small notebook and a chapter; gives the address of both."""
    import nbformat
    from nbformat import v4

    tmp_path = tmp_path_factory.mktemp("lab")
    chapters, book = tmp_path / "project" / "notebooks", tmp_path / "project" / "book"
    for folder, names in (chapters, (f"{CHAPTER}.ipynb", f"{CHAPTER}.py", "jupytext.toml")), (book, ("errata.md",)):
        folder.mkdir(parents=True)
        for name in names:
            shutil.copy(ROOT / folder.name / name, folder)
    cells = [v4.new_code_cell(source.strip()) for source in CELLS]
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell(LINK), *cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, chapters / "small.ipynb")
    folders = {
        "JUPYTER_CONFIG_PATH": ROOT / "scripts" / "jupyter",  # as lab.sh has it
        "HOME": tmp_path,
        "JUPYTER_CONFIG_DIR": tmp_path / "config",
        "JUPYTER_DATA_DIR": tmp_path / "share",
        "JUPYTER_RUNTIME_DIR": tmp_path / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": tmp_path / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": tmp_path / "workspaces",
        "IPYTHONDIR": tmp_path / "ipython",
        "SMOOTH_TOPK_ROOT": ROOT,
        "SMOOTH_TOPK_RUNS": tmp_path / "runs",
    }
    environment = {**os.environ, **{name: str(path) for name, path in folders.items()}, "JUPYTER_PREFER_ENV_PATH": "1"}
    token = secrets.token_hex(8)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [
        f"--ServerApp.root_dir={chapters.parent}",
        f"--ServerApp.preferred_dir={chapters}",
    ]  # as in lab.sh
    command += ["--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"]  # a free one, which it writes down when it listens
    command += [f"--IdentityProvider.token={token}"]
    with open(tmp_path / "lab.log", "w") as log:
        server = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT)
    try:
        port = port_of(server, tmp_path)
        # A workspace of its own for each notebook: the tabs of another test are not opened again.
        yield f"http://127.0.0.1:{port}/lab/workspaces/{{0}}/tree/notebooks/{{0}}.ipynb?token={token}"
    finally:
        server.terminate()  # JupyterLab ends its kernels with itself
        server.wait(timeout=START / 1000)


def port_of(server: subprocess.Popen, folder: Path) -> int:
    """Waits until the server listens."""
    deadline, written = time.monotonic() + START / 1000, folder / "runtime" / f"jpserver-{server.pid}.json"
    while time.monotonic() < deadline:
        assert server.poll() is None, (folder / "lab.log").read_text()
        try:
            found = json.loads(written.read_text())
            urllib.request.urlopen(f"{found['url']}api?token={found['token']}", timeout=5).close()
        except (OSError, ValueError):  # not there yet, half written, or not listening yet
            time.sleep(0.5)
        else:
            return found["port"]
    raise AssertionError((folder / "lab.log").read_text())


def run_all(lab: str, name: str, watched) -> Page:
    """Opens a notebook and runs all its cells."""
    page = watched.page
    server = lab.split("/lab/")[0]
    watched.home = (server, server.replace("http", "ws"), "data:", "blob:")
    page.goto(lab.format(name))
    page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for(timeout=START)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=START)  # before that, running asks for a kernel
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("^Run All Cells")).click()
    return page


def move_slider_and_see_the_picture_change(page: Page) -> None:
    """Moves the first slider of ipywidgets; the picture of `controls.explore` is an SVG below it."""
    picture = page.locator(PICTURE).last
    picture.wait_for(timeout=START)
    before = picture.inner_html()
    handle = page.locator(".jp-OutputArea-output .noUi-handle").first
    handle.focus()
    for _ in range(5):
        handle.press("ArrowRight")
    page.wait_for_function(
        "([selector, before]) => [...document.querySelectorAll(selector)].at(-1).innerHTML !== before",
        arg=[PICTURE, before],
        timeout=START,
    )


def box_of(picture: Locator) -> dict[str, float]:
    """Where a picture stands; on a busy machine it may be drawn again just now, and then stands nowhere."""
    for _ in range(30):
        picture.wait_for(timeout=START)
        if (box := picture.bounding_box()) is not None:
            return box
    raise AssertionError("The picture is never in the page.")


def open_the_figure(page: Page) -> None:
    """Waits until all cells have run; the figure of the last one is hidden until its question is answered."""
    page.locator(PICTURE).wait_for(state="attached", timeout=START)
    expect(page.locator(PICTURE)).to_be_hidden()
    page.get_by_text("Show me").click()
    expect(page.locator(PICTURE)).to_be_visible()


def test_the_file_list_shows_chapters_once_and_a_link_opens_the_page_of_the_book(lab, watched):
    page = run_all(lab, "small", watched)
    open_the_figure(page)
    listed = page.locator(".jp-DirListing-itemText")
    expect(listed.filter(has_text=f"{CHAPTER}.ipynb")).to_have_count(1)
    expect(listed.filter(has_text=f"{CHAPTER}.py")).to_have_count(0)
    expect(page.get_by_text("news")).to_have_count(0)
    page.get_by_role("link", name="Errata", exact=True).click()
    rendered = page.locator(".jp-MarkdownViewer h1")
    expect(rendered).to_be_visible(timeout=START)
    expect(page.locator(".jp-Dialog")).to_have_count(0)


def test_a_chapter_runs_and_its_tau_slider_moves_its_figure(lab, watched, screenshots):
    page = run_all(lab, CHAPTER, watched)
    move_slider_and_see_the_picture_change(page)
    picture, sliders = page.locator(PICTURE).last, page.locator(".jp-OutputArea-output .noUi-handle")
    box = box_of(picture)
    assert round(box["width"]) == int(picture.get_attribute("width"))  # its own size, not that of the cell
    top = min(sliders.nth(place).bounding_box()["y"] for place in range(sliders.count()))
    assert box["y"] + box["height"] - top < page.viewport_size["height"] * 0.75  # sliders and picture on one screen
    expect(page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')).to_have_count(0)
    page.screenshot(path=screenshots / "jupyterlab-chapter.png")
    assert watched.external == []


def test_the_explorer_and_python_follow_each_other(lab, watched, screenshots):
    page = run_all(lab, "small", watched)
    tau, curve = page.locator('.tau-explorer input[name="tau"]'), page.locator(".tau-explorer .curve.smooth")
    curve.wait_for(timeout=START)
    page.get_by_text("Python waits", exact=True).wait_for(timeout=START)
    open_the_figure(page)

    before = curve.get_attribute("d")
    tau.focus()
    page.keyboard.press("ArrowLeft")
    expect(curve).not_to_have_attribute("d", before)
    expect(page.get_by_text("Python sees 0.977", exact=True)).to_be_visible(timeout=START)

    bar = page.locator(".tau-explorer .score").first
    bar.focus()
    page.keyboard.press("ArrowUp")
    expect(bar).to_have_attribute("aria-valuenow", "3.3")

    page.get_by_role("button", name="Set tau to 10").click()
    expect(tau).to_have_attribute("aria-valuetext", "tau 10", timeout=START)

    move_slider_and_see_the_picture_change(page)
    demo = page.locator(".training-demo")
    demo.get_by_role("button", name="One step").click()
    expect(demo).to_have_attribute("data-steps", "1")
    expect(demo.get_by_text("Smooth loss, k = 3")).to_be_visible()
    page.screenshot(path=screenshots / "jupyterlab.png")
    assert watched.external == []

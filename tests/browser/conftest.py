"""One Chromium for the browser tests of a worker; a page that records what went wrong on it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

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
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
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
        self.page.on("requestfailed", lambda request: self.failed.append(f"{request.url}: {request.failure}"))
        self.page.on("request", lambda request: self._note(request.url))

    def _note(self, url: str) -> None:
        if not url.startswith(self.home):
            self.external.append(url)

    def assert_clean(self) -> None:
        assert (self.errors, self.failed, self.external) == ([], [], [])


@pytest.fixture
def watched(chromium: Browser) -> Iterator[Watched]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    yield Watched(context.new_page())
    context.close()


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Pictures of what the tests saw, kept for a person to look at (git-ignored)."""
    folder = ROOT / "runs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder

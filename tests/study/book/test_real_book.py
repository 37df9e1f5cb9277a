"""The whole book, built from chapters executed with the profile smoke: no complaint, and no link that breaks."""

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

HERE = ("", "file")  # the schemes of links within the book


class Links(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


@pytest.mark.slow
def test_the_book_is_built_without_a_complaint_and_no_link_in_it_breaks(smoke_book):
    """A warning of Sphinx is an error, so that the book exists means that there was none."""
    pages = {path: Links(path) for path in smoke_book.rglob("*.html") if "_static" not in path.parts}
    assert len(pages) > 20
    broken, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme not in HERE or parts.netloc or link.startswith("#"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            followed += 1
            if not target.exists() or (
                parts.fragment and target in pages and parts.fragment not in pages[target].anchors
            ):
                broken.append(f"{path.relative_to(smoke_book)}: {link}")
    assert followed > 500
    assert broken == []


@pytest.mark.slow
def test_every_figure_has_a_caption_and_the_api_links_the_chapters_that_explain_it(smoke_book):
    alone = re.compile(r"<strong>Figure \d+\.\d+\.</strong>\s*</p>")
    chapters = sorted((smoke_book / "chapters").glob("*.html"))
    assert [page.stem for page in chapters if alone.search(page.read_text(encoding="utf-8"))] == []
    linked = {Path(urlsplit(link).path).stem for link in Links(smoke_book / "api.html").links if "chapters/" in link}
    text = (smoke_book / "api.html").read_text(encoding="utf-8")
    assert "Explained in notebooks/" not in text
    assert {"02_smoothing_with_tau", "11_topk_probabilities"} <= linked


@pytest.mark.slow
def test_the_reference_of_the_study_shows_options_and_dashes_and_nothing_that_python_documents(smoke_book):
    pages = [page.read_text(encoding="utf-8") for page in smoke_book.glob("api_study_*.html")]
    text = unescape(re.sub(r"<[^>]*>", "", "".join(pages)))
    assert "and --only measures the rest" in text
    assert "progress – whether to show a bar with the time left." in text
    assert not re.search(r"Alias for field|overridden by all subclasses|__init__", text)

"""The whole book, built from chapters executed with the profile smoke: no complaint, and no link that breaks."""

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
def test_the_api_links_the_chapters_that_explain_it_and_the_book_is_small(smoke_book):
    linked = {Path(urlsplit(link).path).stem for link in Links(smoke_book / "api.html").links if "chapters/" in link}
    assert "Explained in notebooks/" not in (smoke_book / "api.html").read_text(encoding="utf-8")
    assert {"02_smoothing_with_tau", "11_topk_probabilities"} <= linked
    assert sum(path.stat().st_size for path in smoke_book.rglob("*") if path.is_file()) < 60e6

"""Figures that move without a kernel: every control of every chapter, from a folder, by keyboard, mouse and touch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsing import expect

from smooth_topk.study.book import plan

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def figure(book, watched) -> Locator:
    """The figure of the small book's first chapter: tau, a stepper and a choice."""
    watched.page.goto((book / "chapters" / "00_start_here.html").as_uri())
    watched.page.get_by_text("Show me").click()
    found = watched.page.locator(".live-figure")
    expect(found).to_have_count(1)
    return found


def ready(figure: Locator) -> str:
    """Waits for the frames of a figure and returns the picture it shows."""
    figure.scroll_into_view_if_needed()
    expect(figure).to_have_attribute("data-shown", re.compile(r"\d+"))
    return figure.locator("svg").inner_html()


def test_the_first_picture_is_there_before_anything_moves(figure):
    assert figure.locator("svg path").count() > 20
    assert figure.locator("svg .ghost *").count() == 0


def test_a_slider_moves_by_keyboard(figure, watched):
    before = ready(figure)
    picture = figure.locator("svg > g").last
    start = picture.inner_html()
    slider = figure.get_by_label("τ", exact=True)
    slider.focus()
    watched.page.keyboard.press("ArrowRight")
    assert figure.locator("svg").inner_html() != before
    expect(slider).to_have_attribute("aria-valuetext", "τ 2")
    expect(figure.locator("svg")).to_have_attribute("aria-label", re.compile("Drawn for τ 2, step i 1, colour black."))
    watched.page.keyboard.press("ArrowLeft")
    expect(figure.locator("svg")).to_have_attribute("aria-label", re.compile("Drawn for τ 1,"))
    assert picture.inner_html() == start
    assert figure.locator("svg .ghost *").count() > 0
    watched.assert_clean()


def test_a_stepper_moves_by_touch_and_stops_at_its_ends(book, new_page):
    page = new_page(viewport=PHONE, has_touch=True)
    page.goto((book / "chapters" / "00_start_here.html").as_uri())
    page.get_by_text("Show me").click()
    figure = page.locator(".live-figure")
    ready(figure)
    button = figure.get_by_role("button", name="step i: next")
    for _ in range(5):
        button.tap()
    expect(figure.locator("output").nth(1)).to_have_text("3")
    expect(figure.locator("svg")).to_have_attribute("aria-label", re.compile("step i 3"))
    for target in figure.locator("button, input, select").all():
        assert target.bounding_box()["height"] >= 44


def test_a_choice_changes_the_picture(figure):
    ready(figure)
    figure.locator("select").select_option(label="red")
    expect(figure.locator("svg > g:last-child path[style*='stroke: #ff0000']")).to_have_count(1)


def test_in_the_dark_the_ink_of_a_live_figure_is_light(figure, watched):
    watched.page.evaluate("() => { document.documentElement.dataset.theme = 'dark'; }")
    assert "invert(1)" in figure.locator("svg").evaluate("(node) => getComputedStyle(node).filter")
    assert figure.locator("svg").evaluate("(node) => getComputedStyle(node).mixBlendMode") == "screen"


def expected_figures() -> dict[str, int]:
    """How many figures with controls each chapter has, from its source."""
    counts = {
        name: path.read_text(encoding="utf-8").count("controls.explore(") for name, path in plan.chapters().items()
    }
    return {name: count for name, count in counts.items() if count}


def moved_to_every_end(page: Page, figure: Locator) -> dict[str, int]:
    """Moves every control to both its ends by keyboard; returns how many different pictures each has shown."""
    ready(figure)
    svg, shown = figure.locator("svg"), {}
    for control in figure.locator(".control").all():
        name = control.locator("label").inner_text()
        pictures = {svg.inner_html()}
        if control.locator("select").count():
            choice = control.locator("select")
            for place in range(choice.locator("option").count()):
                choice.select_option(index=place)
                pictures.add(svg.inner_html())
        else:
            slider = control.locator("input")
            slider.focus()
            for key in ("Home", "End", "ArrowLeft"):
                page.keyboard.press(key)
                pictures.add(svg.inner_html())
        shown[name] = len(pictures)
    return shown


def test_every_control_of_every_chapter_changes_its_picture(smoke_book, watched):
    page = watched.page
    for chapter, count in expected_figures().items():
        page.goto((smoke_book / "chapters" / f"{chapter}.html").as_uri())
        for reveal in page.get_by_text("Show me", exact=True).all():
            reveal.click()
        figures = page.locator(".live-figure")
        expect(figures).to_have_count(count)
        for number, figure in enumerate(figures.all(), 1):
            still = [name for name, pictures in moved_to_every_end(page, figure).items() if pictures < 2]
            assert not still, f"{chapter}, figure {number}: {', '.join(still)} does not change the picture."
    watched.assert_clean()


def test_on_a_phone_no_chapter_is_too_wide_and_figures_and_row_names_can_be_read(smoke_book, watched):
    page = watched.page
    page.set_viewport_size(PHONE)
    # Letters have 10 points, 14 pixels in the figure's own size: two thirds of it leave them 9. A word that is broken
    # into single letters would give a column of about ten pixels.
    wrong = """() => ({
      figures: [...document.querySelectorAll('.cell_output img, .live-figure svg')].filter(one => one.clientWidth)
        .filter(one => one.getBoundingClientRect().width < 0.66 * Number(one.getAttribute('width'))).length,
      columns: [...document.querySelectorAll('table')].filter(table => table.offsetParent)
        .map(table => table.querySelector('tr > :first-child').getBoundingClientRect().width)
        .filter(width => 0 < width && width < 30).length,
    })"""
    for path in sorted((smoke_book / "chapters").glob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"], path.name
        assert page.evaluate(wrong) == {"figures": 0, "columns": 0}, path.name

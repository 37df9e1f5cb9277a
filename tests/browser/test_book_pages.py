"""The built book as a reader opens it: by double click, from a folder, without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsing import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
CURVE = ".tau-explorer .curve.smooth"
TAU = '.tau-explorer input[name="tau"]'
PHONE = {"width": 390, "height": 844}


def pages(book: Path) -> list[Path]:
    return sorted(path for path in book.rglob("*.html") if "_static" not in path.parts)


def settled(page: Page, path: Path) -> Page:
    """Opens a page and waits for its scripts, maths included."""
    page.goto(path.as_uri())
    page.wait_for_load_state("load")
    page.evaluate("() => window.MathJax?.startup?.promise?.then(() => null)")
    return page


def redraw(page: Page) -> None:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")


def test_every_page_opens_without_errors_and_asks_no_other_host(book, watched):
    for path in pages(book):
        settled(watched.page, path)
        assert watched.page.title(), path
    watched.assert_clean()


def test_no_page_loads_a_script_a_style_or_a_font_from_another_host(book):
    for path in pages(book):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', text), path


def test_evidence_is_shown_by_one_switch(book, watched):
    page = settled(watched.page, book / "chapters" / "00_start_here.html")
    note, check = page.locator(".provenance"), page.locator("details", has_text="✓ checked: Two and two are four.")
    for hidden in (note, check):
        expect(hidden).to_be_hidden()
    page.get_by_label("show evidence").check()
    expect(note).to_contain_text("profile smoke · A processor (Linux, 2 cores, no GPU) · 03 February 2026 · 12 s")
    assertion = check.get_by_text("assert 2 + 2 == 4")
    expect(assertion).to_be_hidden()
    check.locator("summary").click()
    expect(assertion).to_be_visible()


def test_a_page_without_evidence_has_no_switch(book, watched):
    expect(settled(watched.page, book / "notation.html").get_by_label("show evidence")).to_be_hidden()


@pytest.mark.parametrize("answer", ["It gets steeper.", "Show me"])
def test_a_figure_opens_after_an_answer(book, watched, answer):
    page = settled(watched.page, book / "chapters" / "00_start_here.html")
    figure, then = page.locator(".live-figure"), page.get_by_text("Its slope is")
    for hidden in (figure, then):
        expect(hidden).to_be_hidden()
    page.get_by_text(answer, exact=True).click()
    for shown in (figure, then):
        expect(shown).to_be_visible()
    mark = "(node) => getComputedStyle(node, '::after').content"
    assert page.locator(".predict label.right").evaluate(mark) == '" ✓"'
    wrong = page.locator(".predict label.wrong").first
    assert wrong.evaluate(mark) in ("none", "normal")
    wrong.click()
    assert wrong.evaluate(mark) == '" ✗"'
    watched.assert_clean()


def test_search_shows_chapters_before_the_reference(book, watched):
    page = watched.page
    page.goto((book / "search.html").as_uri() + "?q=tau")
    first = page.locator("#search-results li a").first
    expect(first).to_be_visible()
    assert "chapters/" in first.get_attribute("href")
    watched.assert_clean()


def test_maths_is_typeset(book, watched):
    page = settled(watched.page, book / "chapters" / "00_start_here.html")
    expect(page.locator("article mjx-container")).to_have_count(5)  # two of them in the question
    assert "\\tau" not in page.locator("article").inner_text()


def test_the_explorer_of_a_chapter_keeps_its_values_without_a_kernel(book, watched):
    page = settled(watched.page, book / "chapters" / "02_smoothing_with_tau.html")
    expect(page.locator(TAU)).to_have_attribute("aria-valuetext", "tau 0.1")
    expect(page.locator(".tau-explorer .score")).to_have_count(4)


def test_the_curve_moves_when_the_tau_slider_is_moved_by_keyboard(book, watched):
    page = settled(watched.page, book / "explorer.html")
    before = page.locator(CURVE).get_attribute("d")
    page.locator(TAU).focus()
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    expect(page.locator(CURVE)).not_to_have_attribute("d", before)
    expect(page.locator(TAU)).to_have_attribute("aria-valuetext", "tau 0.501")
    watched.assert_clean()


def test_a_bar_is_dragged_by_pointer_and_the_loss_follows(book, watched):
    page = settled(watched.page, book / "explorer.html")
    bar, summary = page.locator(".tau-explorer .score").nth(8), page.locator(".tau-explorer .summary")
    expect(summary).to_contain_text("outside the top 5")
    bar.scroll_into_view_if_needed()
    box = bar.locator(".handle").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 60, steps=6)
    page.mouse.up()
    expect(summary).to_contain_text("inside the top 5")
    assert float(bar.get_attribute("aria-valuenow")) > 4


def test_a_bar_is_moved_by_keyboard_and_keeps_the_focus(book, watched):
    page = settled(watched.page, book / "explorer.html")
    bar = page.locator(".tau-explorer .score").nth(2)
    bar.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("PageUp")
    expect(bar).to_have_attribute("aria-valuenow", "-0.3")
    expect(bar).to_be_focused()
    page.keyboard.press("End")
    expect(bar).to_have_attribute("aria-valuetext", "10, in the top k")


def test_the_presets_show_the_limits(book, watched):
    page = settled(watched.page, book / "explorer.html")
    page.get_by_role("button", name="Cross-entropy: k = 1").click()
    expect(page.locator(".tau-explorer .summary")).to_contain_text("smooth 5.09 · hard 4.6 · cross-entropy 5.09")
    page.get_by_role("button", name="Start again").click()
    expect(page.locator(TAU)).to_have_attribute("aria-valuetext", "tau 1")


def test_the_address_carries_the_state(book, watched, new_page):
    page = settled(watched.page, book / "explorer.html")
    page.get_by_role("button", name="Nearly hard").click()
    page.locator(".tau-explorer .score").nth(2).focus()
    page.keyboard.press("PageUp")
    page.wait_for_url("**/explorer.html#tau=0.001&k=5&margin=1&label=8&scores=3.2,6.1,-0.4,*")
    another = new_page()
    settled(another, book / "explorer.html")
    another.goto(page.url)
    expect(another.locator(TAU)).to_have_attribute("aria-valuetext", "tau 0.001")
    expect(another.locator(".tau-explorer .score").nth(2)).to_have_attribute("aria-valuenow", "-0.4")


def test_a_broken_address_is_not_believed(book, watched):
    page = watched.page
    page.goto((book / "explorer.html").as_uri() + "#tau=-1&k=77&margin=x&scores=1,two,3&label=3")
    expect(page.locator(TAU)).to_have_attribute("aria-valuetext", "tau 1")
    expect(page.locator(".tau-explorer select[name=label]")).to_have_value("3")
    watched.assert_clean()


def test_the_link_is_copied(book, new_page):
    page = settled(new_page(), book / "explorer.html")
    page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
    page.evaluate("() => { window.setTimeout = () => 0; }")  # the button keeps its answer until it is looked at
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_have_count(1)
    assert page.evaluate("() => window.copied").endswith(
        "explorer.html#tau=1&k=5&margin=1&label=8&scores=3.2,6.1,-1.4,4.5,0.6,2.4,5,-2.6,1.5,-0.5"
    )


def test_a_pinned_state_stays_while_another_moves(book, watched):
    page = settled(watched.page, book / "explorer.html")
    ghost, curve = page.locator(".tau-explorer path.ghost"), page.locator(CURVE)
    expect(ghost).to_have_count(0)
    page.get_by_role("button", name="Pin this state").click()
    pinned = curve.get_attribute("d")
    page.get_by_role("button", name="Nearly hard").click()
    expect(curve).not_to_have_attribute("d", pinned)
    expect(ghost).to_have_count(1)
    expect(page.locator(".tau-explorer .summary")).to_contain_text("pinned, τ = 1, k = 5, α = 1")
    page.get_by_role("button", name="Unpin").click()
    expect(ghost).to_have_count(0)


def test_the_formula_shows_the_numbers_of_the_moment(book, watched):
    page = settled(watched.page, book / "explorer.html")
    rows = page.locator(".tau-explorer table.formula tr")
    # The true score is 1.5, and the fifth largest of the others is 2.4.
    expect(rows.nth(0)).to_contain_text("= 1 + (2.4 − 1.5) / 5= 1.18")
    expect(rows.nth(1)).to_contain_text("= 1 · softplus(1.18 − 0.0931)= 1.38")
    page.get_by_role("button", name="ImageNet").click()
    expect(rows.nth(1)).to_contain_text("= 0.1 · softplus(11.8 − ")
    page.get_by_role("button", name="Nearly hard").click()  # the share is e^-1180, far below the smallest float64
    expect(rows.nth(2)).to_contain_text("= −0.001 · log(3.41e−513)= 1.18")


def test_the_gradient_of_cross_entropy_is_drawn_on_the_scale_of_the_others(book, watched):
    page = settled(watched.page, book / "explorer.html")
    page.get_by_role("button", name="Cross-entropy: k = 1").click()
    places = """() => {
      const number = (length) => length.baseVal.value;
      return {
        marks: [...document.querySelectorAll('.gradient .curve.cross')].map((mark) => number(mark.y1)),
        bars: [...document.querySelectorAll('.gradient .fill.smooth')].map((bar) => [bar.y, bar.height].map(number)),
      };
    }"""
    page.wait_for_function(f"() => ({places})().bars[8][1] > 50")
    found = page.evaluate(places)
    for mark, (top, height) in zip(found["marks"], found["bars"], strict=True):  # the losses are equal
        assert min(abs(mark - top), abs(mark - top - height)) < 1.1


def test_the_log_scale_shows_derivatives_that_are_too_small_to_see(book, watched):
    page = settled(watched.page, book / "explorer.html")
    page.get_by_role("button", name="ImageNet").click()
    heights = "() => [...document.querySelectorAll('.gradient .fill.smooth')].map((bar) => bar.height.baseVal.value)"
    page.wait_for_function(f"() => Math.min(...({heights})()) <= 1")
    page.get_by_role("button", name="log scale").click()
    expect(page.get_by_role("button", name="log scale")).to_have_attribute("aria-pressed", "true")
    assert sum(height > 10 for height in page.evaluate(heights)) >= 5


@pytest.mark.parametrize(
    ("loss", "moved"), [("on the hard loss", 2), ("on the smooth loss", 10), ("on cross-entropy", 10)]
)
def test_a_gradient_step_moves_the_scores_its_loss_looks_at(book, watched, loss, moved):
    page = settled(watched.page, book / "explorer.html")
    values = "() => [...document.querySelectorAll('.tau-explorer .score')].map((bar) => Number(bar.ariaValueNow))"
    before = page.evaluate(values)
    page.get_by_role("button", name=loss).click()
    redraw(page)
    after = page.evaluate(values)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == moved
    assert after[8] > before[8]  # the true class rises
    trail = page.locator(".tau-explorer .trail")  # one dot per class among the scores, one among the losses
    assert [trail.nth(number).get_attribute("d").count("M") for number in (0, 1)] == [10, 1]
    expect(page.locator(".tau-explorer .taken")).to_contain_text("1 step taken")


def test_the_k_th_score_means_the_same_in_every_panel(book, watched):
    page = settled(watched.page, book / "explorer.html")
    expect(page.locator(".tau-explorer text", has_text="k-th other score 2.4")).to_have_count(1)
    expect(page.locator(".tau-explorer .key", has_text="k-th other score 2.4")).to_have_count(1)
    expect(page.locator(".tau-explorer :is(text, .key)", has_text="k-th")).to_have_count(2)


def test_on_a_phone_the_controls_stay_in_sight_and_every_target_is_large_enough(book, new_page, screenshots):
    page = settled(new_page(viewport=PHONE, has_touch=True), book / "explorer.html")
    redraw(page)
    page.get_by_role("img", name="Top-5 probabilities").scroll_into_view_if_needed()
    redraw(page)
    box = page.locator(TAU).bounding_box()
    header = page.locator(".bd-header-article").bounding_box()
    assert header["y"] + header["height"] - 1 <= box["y"] < 300
    page.screenshot(path=screenshots / "explorer-phone.png")
    targets = page.locator(".tau-explorer :is(button, input, select):visible")
    assert targets.count() >= 25
    for target in targets.all():
        box = target.bounding_box()
        assert min(box["width"], box["height"]) >= 44, target.evaluate("(node) => node.outerHTML")
    curve = page.locator(CURVE)
    before = curve.get_attribute("d")
    place = page.locator(TAU).bounding_box()
    page.touchscreen.tap(place["x"] + 20, place["y"] + 22)
    expect(curve).not_to_have_attribute("d", before)


def test_every_control_of_the_explorer_has_a_name_and_the_result_is_announced(book, watched):
    page = settled(watched.page, book / "explorer.html")
    for name in ("Temperature", "Guesses", "Margin"):
        expect(page.get_by_role("slider", name=name)).to_have_count(1)
    expect(page.get_by_role("combobox", name="True class")).to_have_count(1)
    expect(page.get_by_role("slider", name="Score of class")).to_have_count(10)
    expect(page.get_by_role("img", name="Gradient: 10 of 10 derivatives")).to_have_count(1)
    expect(page.get_by_role("status")).to_contain_text("10 of 10 derivatives")


def test_the_explorer_follows_the_dark_mode_of_the_page(book, watched):
    page = settled(watched.page, book / "explorer.html")
    colour = "() => getComputedStyle(document.querySelector('.tau-explorer .curve.smooth')).stroke"
    light = page.evaluate(colour)
    page.evaluate("() => { document.documentElement.dataset.theme = 'dark'; }")
    assert page.evaluate(colour) != light


def test_in_the_dark_what_a_cell_shows_is_not_put_on_a_light_ground(book, watched):
    page = settled(watched.page, book / "chapters" / "02_smoothing_with_tau.html")
    page.evaluate("() => { document.documentElement.dataset.theme = 'dark'; }")
    ground = "() => getComputedStyle(document.querySelector('.cell_output .text_html')).backgroundColor"
    assert page.evaluate(ground) == "rgba(0, 0, 0, 0)"


def test_on_a_phone_what_a_cell_prints_is_wrapped_and_not_cut(book, new_page):
    page = settled(new_page(viewport=PHONE), book / "chapters" / "00_start_here.html")
    shown = page.locator(".cell_output pre").first
    assert shown.evaluate("(node) => getComputedStyle(node).whiteSpace") == "pre-wrap"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_a_phone_and_pictures_are_kept_to_look_at(book, new_page, screenshots, scheme):
    page = new_page(color_scheme=scheme)
    for path in pages(book):
        name = "-".join(path.relative_to(book).with_suffix("").parts)
        for device, size in (("desktop", {"width": 1280, "height": 900}), ("phone", PHONE)):
            page.set_viewport_size(size)
            settled(page, path)
            redraw(page)
            if device == "phone":
                assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"], path
            page.screenshot(path=screenshots / f"book-{name}-{device}-{scheme}.png")

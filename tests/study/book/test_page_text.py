"""Numbers stay with their signs at the end of a line; code, formulas and tags are left alone."""

import pytest

from smooth_topk.study.book.page_text import NO_BREAK, with_numbers_kept_together


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>80 % of the labels</p>", "<p>80~% of the labels</p>"),
        ("<b>k = 5</b>, α = −1", "<b>k~=~5</b>, α~=~−1"),
        ("loss = weight", "loss = weight"),
        (
            '<span class="math">\\(k\\)</span>, and',
            '<span class="kept-together"><span class="math">\\(k\\)</span>,</span> and',
        ),
        (
            "on 2026-11-16, 1.25e-4 of CIFAR-100",
            'on <span class="kept-together">2026-11-16</span>, <span class="kept-together">1.25e-4</span> of '
            '<span class="kept-together">CIFAR-100</span>',
        ),
        ("the top-<em>k</em> error", 'the <span class="kept-together">top-<em>k</em></span> error'),
        (
            '<span class="math">\\(k\\)</span>-th score',
            '<span class="kept-together"><span class="math">\\(k\\)</span>-th</span> score',
        ),
        (
            '<code><span class="pre">smooth_topk.study.measure.reports</span></code>',
            '<code><span class="pre">smooth_topk.<wbr>study.<wbr>measure.<wbr>reports</span></code>',
        ),
        (
            '<code><span class="pre">--dry-run</span></code>, then',
            '<span class="kept-together"><code><span class="pre">--dry-run</span></code>,</span> then',
        ),
    ],
)
def test_no_line_breaks_inside_a_percentage_or_before_a_value(html, expected):
    assert with_numbers_kept_together(html).replace(NO_BREAK, "~") == expected


@pytest.mark.parametrize(
    "html",
    [
        "<pre>k = 5  # 80 %</pre>",
        '<code class="docutils"><span>k = 5</span></code>',
        '<span class="math notranslate nohighlight">\\(k = 5\\)</span>',
        '<img alt="80 % at k = 5" />',
        "<svg><text>1e-3</text></svg>",
        "<code>a_name_so_long_that_it_has_to_break_on_a_phone</code>.",
    ],
)
def test_code_formulas_and_tags_stay_as_they_are(html):
    assert with_numbers_kept_together(html) == html

"""Numbers of tables are found whatever made the table, and words are left alone."""

import re

import pandas as pd
import pytest

from smooth_topk.study.book.page_tables import NUMBER, with_cells_marked
from smooth_topk.study.tables.show import show


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "−0.5",
        "75,287,520",
        "75.23 (0.41)",
        "75.2 ± 0.4",
        "1.3e-06",
        "12 %",
        "≈ 3.4",
        "0.12 s",
        "2.1 ×",
        "+3.7 points",
        "−0.2 (−0.7 to +0.2)",
        "2.10 ms (1.9x)",
    ],
)
def test_a_number_is_known_in_every_form_the_book_writes_it(text):
    assert NUMBER.fullmatch(text)


@pytest.mark.parametrize(
    "text", ["", "CE", "CIFAR-100", "2 seeds", "5 of 6", "n = 5", "2026-11-17", "not run", "1 to 3", "2.13.0"]
)
def test_words_are_no_numbers(text):
    assert not NUMBER.fullmatch(text)


def marked(html: str) -> list[tuple[str, str]]:
    return re.findall(r'<(t[dh])[^>]*class="number[^>]*>([^<]*)', with_cells_marked(html))


def test_a_column_of_numbers_is_marked_with_its_heading():
    table = pd.DataFrame(
        {"top-5": ["75.2 (0.3)", "not run"], "network": ["ResNet-18", "DenseNet 40"]}, index=["a", "b"]
    )
    assert marked(show(table).to_html()) == [("th", "top-5"), ("td", "75.2 (0.3)"), ("td", "not run")]


def test_a_column_of_words_and_numbers_stands_left_as_a_whole():
    table = pd.DataFrame({"found": ["3", "not installed"], "seeds": [5, 5]}, index=["ray", "torch"])
    assert marked(table.to_html()) == [("th", "seeds"), ("td", "5"), ("td", "5")]


def test_the_names_of_an_index_stand_in_the_line_of_the_columns():
    index = pd.MultiIndex.from_tuples([("CE", 0.2), ("CE", 0.4)], names=["loss", "p"])
    table = pd.DataFrame({"top-1": [1.0, 2.0], "top-5": [3.0, 4.0]}, index=index)
    for html in (table.to_html(), show(table).to_html()):
        heading, *body = re.findall(r"<tr.*?</tr>", with_cells_marked(html), re.DOTALL)
        assert re.findall(r"<th[^>]*>([^<]*)</th>", heading) == ["loss", "p", "top-1", "top-5"]
        assert len(body) == 2


def test_what_is_said_of_all_columns_becomes_the_caption():
    index = pd.MultiIndex.from_tuples([("CE", 0.2), ("CE", 0.4)], names=["loss", "rate"])
    columns = pd.Index(["top-1", "top-5"], name="3 seeds")
    table = pd.DataFrame([["1.0", "2.0"], ["3.0", "4.0"]], index=index, columns=columns)
    for html in (table.to_html(), show(table).to_html()):
        page = with_cells_marked(html)
        heading, *body = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
        assert re.findall(r"<caption>(.*?)</caption>", page) == ["3 seeds"]
        assert re.findall(r"<th[^>]*>([^<]*)</th>", heading) == ["loss", "rate", "top-1", "top-5"]
        assert len(body) == 2


def test_the_name_of_columns_that_are_numbers_keeps_its_place():
    table = pd.DataFrame([[1.0, 2.0]], index=pd.Index(["CE"], name="loss"), columns=pd.Index([0.2, 0.4], name="p"))
    assert with_cells_marked(table.to_html()).count("<tr") == 3


def test_headings_over_several_columns_are_left_alone_and_those_below_them_are_marked():
    columns = pd.MultiIndex.from_product([["ours", "paper"], ["top-1", "top-5"]])
    html = pd.DataFrame([[1.0, 2.0, 3.0, 4.0]], columns=columns).to_html()
    assert marked(html)[:4] == [("th", name) for name in ["top-1", "top-5"] * 2]
    assert [tag for tag, _ in marked(html)[4:]] == ["td"] * 4


def test_a_row_whose_name_stands_above_it_keeps_its_columns():
    index = pd.MultiIndex.from_product([["features"], ["CE", "smooth"]])
    table = pd.DataFrame({"network": ["head", "small"], "rate": ["0.1", "3.2"]}, index=index)
    assert marked(table.to_html()) == [("th", "rate"), ("td", "0.1"), ("td", "3.2")]


def test_the_text_around_tables_and_other_classes_stay():
    html = (
        '<p>1</p><table><tbody><tr><th class="long">a name of a row</th><td class="row-0">1</td></tr></tbody></table>'
    )
    assert with_cells_marked(html) == html.replace('class="row-0"', 'class="number row-0"')


def test_short_words_do_not_break():
    html = with_cells_marked("<table><tr><td>✓ (5e-07)</td><td>a sentence of several words</td></tr></table>")
    assert re.findall(r'class="(\w+)"', html) == ["short"]


def test_a_cell_of_several_lines_is_marked_so_that_its_column_is_wide_enough():
    html = with_cells_marked(f"<table><tr><td>CE</td><td>{'word ' * 8}</td></tr></table>")
    assert re.findall(r'class="(\w+)"', html) == ["short", "long"]


def test_an_empty_cell_of_a_table_that_is_read_row_by_row_has_no_label():
    table = pd.DataFrame({"data": [""], "words": ["word " * 20], "seeds": ["5"]}, index=["a"])
    html = with_cells_marked(show(table).to_html())
    assert re.findall(r'data-label="([^"]*)"', html) == ["words", "seeds"]
    assert len(re.findall(r'<td[^>]*class="empty [^>]*></td>', html)) == 1


def test_a_caption_stays_above_headings_of_two_lines():
    columns = pd.MultiIndex.from_product([["ours", "paper"], ["top-1", "top-5"]])
    table = pd.DataFrame([["1.0", "2.0", "3.0", "4.0"]], index=pd.Index([0.2], name="p"), columns=columns)
    html = with_cells_marked(show(table, "Noise within L_{5,1}").to_html())
    assert re.findall(r"<caption>(.*?)</caption>", html) == ["Noise within <i>L</i><sub>5,1</sub>"]


def test_a_table_of_which_nothing_was_run_keeps_its_caption():
    table = pd.DataFrame({"ours, 2 seeds": ["not run"]})
    assert repr(show(table, "Noise within superclasses")) == "Noise within superclasses: ours not run."


def test_a_table_of_a_page_is_read_row_by_row_on_a_phone_if_its_rows_are_long():
    def page_table(words):
        heading = "<tr><th>case</th><th>seeds</th></tr>"
        return f'<table class="table"><thead>{heading}</thead><tr><td>{words}</td><td>5</td></tr></table>'

    long = with_cells_marked(page_table("a case that takes many words to describe, more than a line of a phone holds"))
    assert '<table class="stacked sentences table">' in long
    assert '<td data-label="seeds" class="number">5</td>' in long
    assert "sentences" not in with_cells_marked(page_table("a case"))


def test_cells_of_a_table_of_sentences_know_their_column():
    sentence = "a sentence that is so long that its line has to break somewhere on the page"
    table = pd.DataFrame({"ours": [sentence], "number": [1]}, index=pd.Index(["claim"], name="what"))
    html = with_cells_marked(show(table).to_html())
    assert re.findall(r'data-label="([^"]*)"', html) == ["ours", "number"]
    assert "number " not in html

"""Which code the book folds, and what stands in its place."""

import pytest
from nbformat import v4

from smooth_topk.study.book.folding import fold, toggle_words

FIGURE = [v4.new_output("display_data", data={"image/png": "x", "text/plain": "<Figure>"})]
TABLE = [v4.new_output("execute_result", data={"text/html": "<table></table>"})]
PRINTED = [v4.new_output("stream", text="1")]


def cell(source: str, outputs=(), tags=()):
    made = v4.new_code_cell(source, outputs=list(outputs))
    made.metadata["tags"] = list(tags)
    return made


@pytest.mark.parametrize(
    ("source", "outputs", "words"),
    [
        ("import torch\n\nx = 1", (), "Show the imports and the set-up"),
        ("from a import b", (), "Show the imports and the set-up"),
        ("ax = figures.bars(x)", FIGURE, "Show the code of this figure"),
        ("controls.explore(\n    lambda ax, tau: f(ax),\n    tau=1,\n)", FIGURE, "Show the code of this figure"),
        ("def draw(ax, tau):\n    pass\n\ncontrols.explore(draw, tau=1)", FIGURE, "Show the code of this figure"),
        ("assert a == b\nax = figures.bars(x)", FIGURE, "Show the code of this figure · ✓ checked: a == b"),
        ("tables.show(tables.gain_table(runs))", TABLE, "Show the code of this table"),
        ("found = f(x)\nassert found\ntables.show(found)", TABLE, "Show the code of this table · ✓ checked: found"),
        ("assert a == b", (), "✓ checked: a == b"),
        ("# The gradient sums to zero.\nassert abs(total) < 1e-9", (), "✓ checked: The gradient sums to zero."),
        ("# One long\n# sentence.\nx = 1\nassert x", (), "✓ checked: One long sentence."),
        ("for n in sizes:\n    m = f(n)\n    assert m == n", (), "✓ checked: m == n for n in sizes"),
    ],
)
def test_set_up_figures_and_checks_are_folded(source, outputs, words):
    assert toggle_words(cell(source, outputs))[0] == words


@pytest.mark.parametrize(
    ("source", "outputs"),
    [
        ("x = 1", ()),
        ("", ()),
        ("ax = figures.bars(x)", ()),  # no figure came of it
        ("assert a == b\nprint(a)", PRINTED),
        ("for n in sizes:\n    print(n)\n    assert n", PRINTED),
        ("def algorithm(x):\n    return x\n\nax = figures.bars(algorithm(x))", FIGURE),  # the algorithm is the lesson
        ("def f(x):\n    return x\n\nassert f(1) == 1", ()),
        ("%timeit x", ()),
        ("a = 1\nb = 2\nc = 3\nd = 4\ntables.show(a)", TABLE),
        ("print(x)", TABLE),
    ],
)
def test_code_that_is_the_lesson_stays_open(source, outputs):
    assert toggle_words(cell(source, outputs)) == ("", "")


def test_a_long_assertion_is_cut_at_a_space():
    words, _ = toggle_words(cell("assert " + " == ".join(f"value_{number}" for number in range(40))))
    assert len(words) < 130
    assert words.endswith("== …")


def test_the_parameters_are_folded_and_those_of_a_profile_are_hidden_with_their_cell():
    parameters, injected = cell("k = 5", tags=["parameters"]), cell("k = 3", tags=["injected-parameters"])
    fold(parameters)
    fold(injected)
    assert {"hide-input", "folded-parameters"} <= set(parameters.metadata.tags)
    assert parameters.metadata["mystnb"]["code_prompt_show"] == "Show the parameters"
    assert parameters.metadata["mystnb"]["code_prompt_hide"] == "Hide the parameters"
    assert "hide-cell" in injected.metadata.tags


def test_an_author_can_open_and_fold_by_tags():
    opened, folded = cell("assert a == b", tags=["show-input"]), cell("x = 1", tags=["hide-input"])
    fold(opened)
    fold(folded)
    assert opened.metadata.tags == ["show-input"]
    assert folded.metadata.tags.count("hide-input") == 1
    assert folded.metadata["mystnb"]["code_prompt_show"] == "Show the code"

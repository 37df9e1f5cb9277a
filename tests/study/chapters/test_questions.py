"""The question before a figure; tests/browser answers it."""

import pytest

from smooth_topk.study.chapters import controls, questions


def shown(monkeypatch, *arguments, **options) -> str:
    found = []
    monkeypatch.setattr(questions, "display", found.append)
    controls.predict(*arguments, **options)
    return found[0].data


def test_one_answer_is_right_and_none_is_chosen(monkeypatch):
    html = shown(monkeypatch, "Is 1 < 2?", ["no", "yes", "perhaps"], right=1, then="$1 < 2$.")
    assert html.count('class="right"') == 1
    assert html.count('class="wrong"') == 2
    assert html.count(" checked>") == 1
    assert html.index(">no<") < html.index('class="right"') < html.index(">yes<")
    assert "Is 1 &lt; 2?" in html
    assert r"\(1 &lt; 2\)." in html


def test_two_questions_of_a_page_have_separate_answers(monkeypatch):
    first, second = (shown(monkeypatch, words, ["a", "b"], right=0) for words in ("One?", "Two?"))
    assert first.split('name="')[1].split('"')[0] != second.split('name="')[1].split('"')[0]


@pytest.mark.parametrize(("answers", "right"), [(["one"], 0), (list("abcde"), 0), (["a", "b"], 2), (["a", "b"], -1)])
def test_a_question_that_cannot_be_answered_is_refused(answers, right):
    with pytest.raises(ValueError, match=str(right)):
        controls.predict("?", answers, right=right)

"""The Python half of the tau explorer; its numbers and its drawing are tested in tests/browser."""

import html
import json
import math
import re

import pytest

from smooth_topk.study.chapters import training_demo
from smooth_topk.study.chapters.tau_explorer import JAVASCRIPT, TauExplorer

SCORES = [2.0, 1.0, 0.5, -1.0]


def test_the_widget_keeps_the_values_it_is_given():
    explorer = TauExplorer(tau=0.1, k=2, margin=0.5, scores=SCORES, label=3)
    assert (explorer.tau, explorer.k, explorer.margin, explorer.scores, explorer.label) == (0.1, 2, 0.5, SCORES, 3)


def test_every_value_is_synchronised_with_the_browser():
    explorer = TauExplorer(k=2, scores=SCORES, label=0)
    assert {"tau", "k", "margin", "scores", "label", "names", "_esm"} <= explorer.get_state().keys()


@pytest.mark.parametrize("tau", [0.0, -1.0, 1e-5, 101.0, math.nan, math.inf])
def test_a_tau_outside_the_slider_is_refused_by_value(tau):
    with pytest.raises(ValueError, match=re.escape(f"tau must be between 0.0001 and 100, got {tau}")):
        TauExplorer(tau=tau)


@pytest.mark.parametrize("margin", [-0.1, 3.5, math.nan])
def test_a_margin_outside_the_slider_is_refused_by_value(margin):
    with pytest.raises(ValueError, match=re.escape(f"margin must be between 0 and 3, got {margin}")):
        TauExplorer(margin=margin)


def test_k_is_compared_with_the_scores_that_came_with_it():
    with pytest.raises(ValueError, match="got k=4 for 4 classes"):
        TauExplorer(k=4, scores=SCORES, label=0)
    assert TauExplorer(k=3, scores=SCORES, label=0).k == 3


def test_a_label_that_is_no_class_is_refused():
    with pytest.raises(ValueError, match="got 4 for 4 classes"):
        TauExplorer(k=2, scores=SCORES, label=4)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused(wrong):
    with pytest.raises(ValueError, match=f"scores must be finite numbers, got {wrong}"):
        TauExplorer(k=2, scores=[1.0, wrong, 0.0], label=0)


def test_a_refused_value_leaves_the_widget_as_it_was():
    explorer = TauExplorer(tau=0.1)
    with pytest.raises(ValueError, match="tau"):
        explorer.tau = -1.0
    assert explorer.tau == 0.1


def test_the_cell_of_a_widget_also_holds_the_figure_with_its_values_for_pages_without_a_kernel():
    explorer = TauExplorer(tau=0.1, k=2, scores=SCORES, label=3, names=['a "quoted" <name>'])
    data, _ = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    values = json.loads(html.unescape(re.search(r'data-tau-explorer="([^"]*)"', data["text/html"])[1]))
    assert values == {
        "tau": 0.1, "k": 2, "margin": 1.0, "scores": SCORES, "label": 3, "names": ['a "quoted" <name>'],
    }  # fmt: skip


def test_the_script_needs_no_other_file_and_can_be_inlined_in_a_page():
    for source in (JAVASCRIPT, training_demo.JAVASCRIPT):
        assert not re.search(
            r"^\s*import\b|\bfrom\s+[\"']|\bfetch\(|https?://(?!www\.w3\.org/2000/svg)", source, re.MULTILINE
        )
        assert "</script" not in source


@pytest.mark.parametrize(("name", "value"), [("noise", 1.1), ("decay", -1e-3), ("tau", 0.0), ("k", 4), ("margin", 3.5)])
def test_the_training_demo_refuses_a_value_outside_its_sliders(name, value):
    with pytest.raises(ValueError, match=f"{name} must be between .* got {value}"):
        training_demo.TrainingDemo(**{name: value})

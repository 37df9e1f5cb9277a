"""The frames of a figure: which stops are drawn, and that each frame is the drawing of its stop."""

import json
import re
from itertools import pairwise

import ipywidgets as widgets
import pytest

from smooth_topk.study.chapters import controls, frames, stops


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        (controls.tau_slider(1.0), [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]),
        (controls.tau_slider(0.3, minimum=0.1, maximum=1), [0.1, 0.2, 0.3, 0.5, 1]),
        (widgets.IntSlider(value=4, min=0, max=8), list(range(9))),
        (widgets.IntSlider(value=7, min=0, max=99), list(range(2, 98, 5))),
        (widgets.FloatSlider(value=1.0, min=0, max=3, step=0.5), [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        (widgets.Dropdown(options=["a", "b", "c"]), ["a", "b", "c"]),
        (widgets.SelectionSlider(options=[("one", 1), ("ten", 10)]), [1, 10]),
        (widgets.Checkbox(value=True), [False, True]),
    ],
)
def test_a_control_stops_at_round_values_and_where_it_starts(control, expected):
    assert stops.stops(control)[0] == expected


@pytest.mark.parametrize("most", [80, 150, 400])
def test_the_stops_of_a_grid_are_few_enough_and_evenly_spread(most):
    sliders = {"tau": controls.tau_slider(1.0), "k": controls.k_slider(5), "margin": controls.margin_slider(1.0)}
    tau, k, margin = stops.grid(sliders, most)
    assert len(tau) * len(k) * len(margin) <= most
    assert (tau[0], tau[-1], margin[0], margin[-1]) == (0.01, 10, 0, 3)
    for values in (k, margin):
        assert len({round(b - a, 6) for a, b in pairwise(values)}) == 1


def lines(data: dict, place: int) -> str:
    return "".join(data["parts"][part] for part in data["frames"][place])


def recorded(view) -> dict:
    """What the HTML of a figure holds for its script."""
    html = view._repr_mimebundle_()["text/html"]
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', html)[1])


def test_the_output_holds_the_widget_and_every_frame_with_common_parts_stored_once():
    view = controls.explore(lambda ax, tau, k: ax.plot([0, tau], [0, k]), tau=1.0, k=3)
    bundle = view._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    data = recorded(view)
    tau, k = data["controls"]
    assert (tau["texts"][tau["start"]], k["texts"][k["start"]]) == ("1", "3")
    assert len(data["frames"]) == len(tau["texts"]) * len(k["texts"]) == 100
    assert len(data["parts"]) == len(set(data["parts"])) < 150
    assert lines(data, tau["start"] * len(k["texts"]) + k["start"]) in bundle["text/html"]


def test_the_last_control_counts_fastest_and_a_frame_is_what_the_kernel_draws():
    view = controls.explore(lambda ax, tau, k: ax.plot([0, tau], [0, k]), tau=1.0, k=3)
    data = recorded(view)
    taus, ks = (control["texts"] for control in data["controls"])
    view.sliders["tau"].value, view.sliders["k"].value = 0.1, 10
    assert view.picture.value.endswith(lines(data, taus.index("0.1") * len(ks) + ks.index("10")) + "</svg></div>")


def test_a_stop_that_cannot_be_drawn_keeps_its_sentence():
    def draw(ax, k):
        if k == 2:
            raise ValueError(f"k must not be 2, got k={k}.")

    data = recorded(controls.explore(draw, k=controls.k_slider(1, maximum=3)))
    assert [isinstance(frame, str) for frame in data["frames"]] == [False, True, False]
    assert "got k=2." in data["frames"][1]


def test_the_script_needs_no_other_file_and_ends_no_script_element():
    source = frames.JAVASCRIPT.read_text(encoding="utf-8")
    assert not re.search(r"^\s*import\b|\bfrom\s+[\"']|\bfetch\(|https?://|</script", source, re.MULTILINE)

"""The frames of a figure: which positions are drawn, and that each frame is the drawing of its position."""

import json
import re

import ipywidgets as widgets
import pytest

from smooth_topk.study.chapters import controls, frames


def test_tau_takes_round_numbers_over_its_whole_range_with_the_value_it_starts_at():
    found = frames.positions(controls.tau_slider(0.3))
    assert (found[0], found[-1], len(found)) == (1e-4, 100, 20)
    assert 0.3 in found
    assert {0.001, 0.1, 1.0, 10.0} <= set(found)


def test_a_short_range_of_tau_has_fifteen_positions_too():
    found = frames.positions(controls.tau_slider(0.3, minimum=0.01, maximum=10))
    assert len(found) >= 15
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.01, 10)


def test_a_stepper_has_all_its_steps_and_a_choice_all_its_options():
    assert frames.positions(widgets.IntSlider(value=4, min=0, max=8)) == list(range(9))
    assert frames.positions(widgets.Dropdown(options=["a", "b", "c"])) == ["a", "b", "c"]
    assert frames.positions(widgets.SelectionSlider(options=[("one", 1), ("ten", 10)])) == [1, 10]
    assert frames.positions(widgets.Checkbox(value=True)) == [False, True]


def test_a_slider_of_fractions_keeps_its_ends_and_its_value():
    found = frames.positions(controls.margin_slider(0.35))
    assert found[0] == 0
    assert 0.35 in found
    assert found[-1] == 3
    assert 5 <= len(found) <= 11


def test_a_long_slider_is_thinned_and_keeps_its_ends_and_its_value():
    found = frames.positions(widgets.IntSlider(value=7, min=0, max=999))
    assert len(found) == frames.MOST_STEPS
    assert (found[0], found[-1]) == (0, 999)
    assert 7 in found


@pytest.mark.parametrize("most", [135, 230, 400])
def test_the_grid_is_thinned_to_the_most_frames_and_no_control_falls_below_its_least(most):
    sliders = {"tau": controls.tau_slider(0.1), "k": controls.k_slider(5), "margin": controls.margin_slider(1.0)}
    tau, k, margin = frames.grid(sliders, most)
    assert len(tau) * len(k) * len(margin) <= most
    assert len(tau) >= 15
    assert min(len(k), len(margin)) >= 3
    assert 0.1 in tau
    assert 5 in k
    assert 1.0 in margin


def test_a_tiny_grid_still_moves_every_control():
    sliders = {"tau": controls.tau_slider(0.1), "k": controls.k_slider(5), "margin": controls.margin_slider(1.0)}
    sizes = [len(values) for values in frames.grid(sliders, 16)]
    assert min(sizes) >= 2
    assert sizes[0] * sizes[1] * sizes[2] <= 16


def recorded_example() -> dict:
    sliders = {"k": widgets.IntSlider(value=1, min=0, max=2, description="k"), "on": widgets.Checkbox(description="on")}
    return frames.record(sliders, lambda k, on: ["axes", f"k={k}", f"on={on}"], (4.0, 3.0), most=10)


def test_the_last_control_counts_fastest_and_parts_are_stored_once():
    recorded = recorded_example()
    shown = [[recorded["parts"][part] for part in frame] for frame in recorded["frames"]]
    assert shown == [["axes", f"k={k}", f"on={on}"] for k in range(3) for on in (False, True)]
    assert len(recorded["parts"]) == 6
    assert frames.start_frame(recorded) == ["axes", "k=1", "on=False"]


def test_a_position_that_cannot_be_drawn_keeps_its_sentence():
    def draw(ax, k):
        if k == 2:
            raise ValueError(f"k must not be 2, got k={k}.")

    view = controls.explore(draw, k=controls.k_slider(1, maximum=3))
    recorded = frames.record(view.sliders, view.parts, view.size, most=10)
    assert [isinstance(frame, str) for frame in recorded["frames"]] == [False, True, False]
    assert recorded["frames"][1] == "ValueError: k must not be 2, got k=2."


def test_a_frame_is_the_picture_that_the_kernel_draws_for_the_same_values():
    view = controls.explore(lambda ax, tau, k: ax.plot([0, tau], [0, k]), tau=1.0, k=3)
    recorded = frames.record(view.sliders, view.parts, view.size, most=60)
    taus, ks = (control["texts"] for control in recorded["controls"])
    frame = recorded["frames"][taus.index("0.1") * len(ks) + ks.index("10")]
    view.sliders["tau"].value, view.sliders["k"].value = 0.1, 10
    assert "".join(recorded["parts"][part] for part in frame) in view.picture.value


def test_the_script_of_a_figure_carries_its_frames():
    recorded = recorded_example()
    name, data = re.fullmatch(r'showFrames\("(.+?)", (.+)\);\n', frames.frames_script("03-1", recorded)).groups()
    assert name == "03-1"
    assert json.loads(data) == {"parts": recorded["parts"], "frames": recorded["frames"]}


def test_the_script_that_shows_frames_needs_no_other_file_and_can_be_inlined_in_a_page():
    source = frames.JAVASCRIPT.read_text(encoding="utf-8")
    assert not re.search(r"^\s*import\b|\bfrom\s+[\"']|\bfetch\(|https?://", source, re.MULTILINE)
    assert "</script" not in source


def test_a_choice_that_is_thinned_shows_only_the_options_that_have_frames():
    choice = widgets.Dropdown(options=[(name.upper(), name) for name in "abcdefgh"], value="c", description="letter")
    step = widgets.IntSlider(value=1, min=0, max=3, description="step")
    found = frames.record({"letter": choice, "step": step}, lambda letter, step: [f"{letter}{step}"], (4, 3), most=6)
    letters, steps = (control["texts"] for control in found["controls"])
    assert len(letters) * len(steps) == len(found["frames"]) <= 6
    assert letters[found["controls"][0]["start"]] == "C"
    assert frames.start_frame(found) == ["c1"]

"""The sliders without a browser: moving one redraws the picture with its value."""

import re

import ipywidgets as widgets
import pytest

from smooth_topk.study.chapters import controls


def draw_tau(ax, tau, **_):
    ax.plot([0, 1], [0, tau])
    ax.set_ylim(0, 10)


def test_moving_a_slider_draws_another_picture():
    view = controls.explore(draw_tau, tau=1.0)
    before = view.now
    view.sliders["tau"].value = 10.0
    assert view.now != before
    view.sliders["tau"].value = 1.0
    assert view.now == before


def test_the_picture_is_a_drawing_of_the_size_asked_for():
    view = controls.explore(draw_tau, size=(5.0, 3.0), tau=1.0)
    assert 'viewBox="0 0 360 216" width="500" height="300"' in view.picture.value


def test_the_sliders_start_at_the_values_given_and_pass_them_on():
    seen = []
    view = controls.explore(lambda ax, **values: seen.append(values), tau=0.1, k=3, margin=0.5, noise_level=0.4)
    assert seen[-1] == {"tau": 0.1, "k": 3, "margin": 0.5, "noise_level": 0.4}
    before = len(seen)
    assert isinstance(view.sliders["tau"], widgets.FloatLogSlider)
    view.sliders["k"].value = 7
    assert seen[-1]["k"] == 7
    assert len(seen) == before + 1  # one redraw a move


def test_a_value_outside_the_slider_is_refused():
    with pytest.raises(ValueError, match=r"τ starts at 1000.0, which is not between 0.01 and 10"):
        controls.explore(draw_tau, tau=1000.0)
    assert controls.explore(draw_tau, tau=controls.tau_slider(1000.0, maximum=1e4)).sliders["tau"].value == 1000


def test_a_name_without_a_slider_needs_a_widget():
    with pytest.raises(ValueError, match="epochs has no slider of its own"):
        controls.explore(draw_tau, epochs=3)
    view = controls.explore(draw_tau, tau=1.0, epochs=widgets.IntSlider(value=3))
    assert view.sliders["epochs"].value == 3


def test_several_panels_arrive_as_an_array():
    shapes = []
    controls.explore(lambda axes, tau: shapes.append(axes.shape), panels=(1, 2), tau=1.0)
    assert set(shapes) == {(2,)}


def test_a_colour_bar_stays_in_its_place():
    def draw(ax, tau):
        ax.figure.colorbar(ax.imshow([[0, tau], [1, 2]]), ax=ax)

    view = controls.explore(draw, tau=1.0)
    before = view.now
    view.sliders["tau"].value = 2.0
    view.sliders["tau"].value = 1.0
    assert view.now == before


def test_an_error_is_shown_and_the_last_good_picture_stays():
    def draw(ax, k):
        if k > 5:
            raise ValueError(f"k must be below 6, got k={k}.")

    view = controls.explore(draw, k=5)
    before = view.picture.value
    view.sliders["k"].value = 6
    assert "k must be below 6, got k=6." in view.message.value
    assert view.picture.value == before
    view.sliders["k"].value = 5
    assert view.message.value == ""


def shown_limits(view, axes=0):
    limits, _ = view.limits[axes]
    return tuple(limits.intervalx), tuple(limits.intervaly)


def test_the_axes_hold_still_over_the_whole_range_of_a_slider():
    view = controls.explore(lambda ax, tau: ax.plot([0, 1], [0, tau]), tau=1.0)
    before = view.picture.value
    assert shown_limits(view)[1][1] >= 10
    view.sliders["tau"].value = 5.0
    ticks = [part for part in view.before.parts if "data" not in part]
    assert ticks == [part for part in view.now.parts if "data" not in part]
    assert view.picture.value != before


def test_limits_that_a_figure_sets_and_turned_axes_stay():
    def draw(ax, tau):
        ax.plot([0, 1], [0, tau])
        ax.set_xlim(0.2, 0.4)
        ax.invert_yaxis()

    x, y = shown_limits(controls.explore(draw, tau=1.0))
    assert x == (0.2, 0.4)
    assert y[0] >= 10 > y[1]


def test_the_curve_of_the_last_position_stays_as_a_ghost():
    view = controls.explore(lambda ax, tau: ax.plot([0, 1], [0, tau], "r"), tau=1.0)
    (curve,) = (part for part in view.now.parts if "stroke: #ff0000" in part)
    view.sliders["tau"].value = 5.0
    behind = view.picture.value.split("<g opacity='0.25'>")[1]
    assert behind.startswith(curve + "</g>")


def test_a_person_at_the_notebook_waits_for_no_frames(monkeypatch):
    view = controls.explore(draw_tau, tau=1.0)
    monkeypatch.setattr(controls, "_has_reader", lambda: True)
    assert "text/html" not in view._repr_mimebundle_()


def test_the_labels_at_both_ends_of_a_slider_fit_into_the_picture():
    def draw(ax, tau):
        ax.plot([0, 1], [0, tau * 1e6])
        ax.yaxis.set_major_formatter("{x:.6f}")
        ax.set_ylabel("a label")

    view = controls.explore(draw, tau=0.01)
    (drawing,) = view.drawings([{"tau": 10.0}])
    assert min(float(x) for x in re.findall(r"translate\((-?[\d.]+) ", "".join(drawing.parts))) > 0

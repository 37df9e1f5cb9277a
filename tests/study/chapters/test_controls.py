"""The sliders without a browser: moving one redraws the picture with its value."""

import base64
import io
import re

import ipywidgets as widgets
import pytest
from PIL import Image

from smooth_topk.study.chapters import controls, frames


def draw_tau(ax, tau, **_):
    ax.plot([0, 1], [0, tau])
    ax.set_ylim(0, 10)


def test_moving_a_slider_draws_another_picture():
    view = controls.explore(draw_tau, tau=1.0)
    before = view.picture.value
    view.sliders["tau"].value = 10.0
    assert view.picture.value != before
    view.sliders["tau"].value = 1.0
    assert view.picture.value == before


def test_the_picture_is_a_drawing_of_the_size_asked_for():
    view = controls.explore(draw_tau, size=(5.0, 3.0), tau=1.0)
    assert "viewBox='0 0 10000 6000' width='500' height='300'" in view.picture.value


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
    with pytest.raises(ValueError, match=r"τ starts at 1000.0, which is not between 0.0001 and 100"):
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
    before = view.picture.value
    view.sliders["tau"].value = 2.0
    view.sliders["tau"].value = 1.0
    assert view.picture.value == before


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


def test_a_reader_without_a_kernel_finds_the_picture_of_the_first_values(monkeypatch):
    monkeypatch.delenv(frames.VARIABLE, raising=False)
    bundle, metadata = controls.explore(draw_tau, size=(5.0, 3.0), tau=1.0)._repr_mimebundle_()
    picture = Image.open(io.BytesIO(base64.b64decode(bundle["image/png"])))
    assert (picture.format, picture.size) == ("PNG", (1000, 600))  # twice as dense as it is shown
    assert metadata == {"image/png": {"width": 500, "height": 300}}
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert frames.MIME not in bundle


def test_a_study_records_the_frames_of_every_position(monkeypatch):
    monkeypatch.setenv(frames.VARIABLE, "100")
    view = controls.explore(lambda ax, tau, k: ax.plot([0, tau], [0, k]), tau=1.0, k=3)
    bundle, _ = view._repr_mimebundle_()
    recorded = bundle[frames.MIME]
    tau, k = recorded["controls"]
    assert len(tau["texts"]) >= 15
    assert len(k["texts"]) >= 3
    assert len(recorded["frames"]) == len(tau["texts"]) * len(k["texts"]) <= 100
    assert (tau["texts"][tau["start"]], k["texts"][k["start"]]) == ("1", "3")
    assert "".join(frames.start_frame(recorded)) in view.picture.value


def test_the_labels_at_both_ends_of_a_slider_fit_into_the_picture():
    def draw(ax, tau):
        ax.plot([0, 1], [0, tau * 1e6])
        ax.yaxis.set_major_formatter("{x:.6f}")
        ax.set_ylabel("a label")

    view = controls.explore(draw, tau=1e-4)
    leftmost = []
    for tau in (1e-4, 100.0):
        text = "".join(view.parts(tau=tau))
        leftmost.append(min(int(x) for x in re.findall(r"translate\((-?\d+) ", text)))
    assert min(leftmost) > 0

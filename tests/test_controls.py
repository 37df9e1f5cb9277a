"""The sliders without a browser: moving one redraws the picture with its value."""

import io

import ipywidgets as widgets
import pytest
from PIL import Image

from smooth_topk.study import controls


def draw_tau(ax, tau, **_):
    ax.plot([0, 1], [0, tau])
    ax.set_ylim(0, 10)


def test_moving_a_slider_draws_another_picture():
    view = controls.explore(draw_tau, tau=1.0)
    before = view.image.value
    view.sliders["tau"].value = 10.0
    assert view.image.value != before
    view.sliders["tau"].value = 1.0
    assert view.image.value == before


def test_the_picture_is_a_png_of_the_size_asked_for():
    view = controls.explore(draw_tau, size=(5.0, 3.0), tau=1.0)
    picture = Image.open(io.BytesIO(view.image.value))
    assert (picture.format, picture.size) == ("PNG", (500, 300))


def test_the_sliders_start_at_the_values_given_and_pass_them_on():
    seen = []
    view = controls.explore(lambda ax, **values: seen.append(values), tau=0.1, k=3, margin=0.5, noise_level=0.4)
    assert seen == [{"tau": 0.1, "k": 3, "margin": 0.5, "noise_level": 0.4}]
    assert isinstance(view.sliders["tau"], widgets.FloatLogSlider)
    view.sliders["k"].value = 7
    assert seen[-1]["k"] == 7
    assert len(seen) == 2  # one redraw a move


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
    assert shapes == [(2,)]


def test_a_colour_bar_stays_in_its_place():
    def draw(ax, tau):
        ax.figure.colorbar(ax.imshow([[0, tau], [1, 2]]), ax=ax)

    view = controls.explore(draw, tau=1.0)
    before = view.image.value
    view.sliders["tau"].value = 2.0
    view.sliders["tau"].value = 1.0
    assert view.image.value == before


def test_an_error_is_shown_and_the_last_good_picture_stays():
    def draw(ax, k):
        if k > 5:
            raise ValueError(f"k must be below 6, got k={k}.")

    view = controls.explore(draw, k=5)
    before = view.image.value
    view.sliders["k"].value = 6
    assert "k must be below 6, got k=6." in view.message.value
    assert view.image.value == before
    view.sliders["k"].value = 5
    assert view.message.value == ""


def test_a_reader_without_a_kernel_finds_a_sentence():
    bundle = controls.explore(draw_tau, tau=1.0)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "JupyterLab" in bundle["text/markdown"]

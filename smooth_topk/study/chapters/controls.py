"""Sliders for the chapters: move tau, k, the margin or the noise level, and one figure is drawn again.

In JupyterLab the kernel draws any value: the picture travels to the browser as an SVG of its own size, sharp on every
screen. When the study executes a chapter, the figure is also drawn over a grid of positions (frames.py), and the static
book moves it without a kernel. Other readers of notebooks show the picture of the first values. Moving a slider draws;
it never trains.
"""

import base64
import contextlib
import io
import math
import warnings
from collections.abc import Callable
from html import escape

import ipywidgets as widgets
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from smooth_topk.study.chapters import frames
from smooth_topk.study.chapters.questions import predict as predict
from smooth_topk.study.chapters.vector_picture import drawn_parts, new_figure, svg

NOISE_LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of Table 1
TICKS = 5  # at most, on an axis that is not logarithmic
LAYOUT = {"width": "320px"}
STYLE = {"description_width": "90px"}
ROW = {"flex_flow": "row wrap"}
IN_JUPYTER = " class='explorer-picture' role='img' aria-label='Figure drawn for the values of the sliders above.'"
# Light ink for a dark theme: lightness is turned round, hues stay.
DARK_THEME = """<style>
.explorer-picture { max-width: 100%; height: auto; display: block; }
[data-jp-theme-light="false"] .explorer-picture { filter: invert(1) hue-rotate(180deg); }
</style>"""


def tau_slider(value: float = 1.0, *, minimum: float = 1e-4, maximum: float = 1e2) -> widgets.FloatLogSlider:
    """Returns a slider for tau on a log scale."""
    low, high = math.log10(minimum), math.log10(maximum)
    return _slider(widgets.FloatLogSlider, "τ", value, base=10, min=low, max=high, step=0.05, readout_format=".2g")


def k_slider(value: int = 5, *, maximum: int = 10) -> widgets.IntSlider:
    """Returns a slider for k from 1 to `maximum`, which must be below the number of classes."""
    return _slider(widgets.IntSlider, "k", value, min=1, max=maximum)


def margin_slider(value: float = 1.0, *, maximum: float = 3.0) -> widgets.FloatSlider:
    """Returns a slider for the margin, the paper's α."""
    return _slider(widgets.FloatSlider, "margin α", value, min=0.0, max=maximum, step=0.05)


def noise_slider(value: float = 0.0) -> widgets.SelectionSlider:
    """Returns a slider for the noise level, the paper's p, over the levels that were run; it starts at the nearest."""
    nearest = min(NOISE_LEVELS, key=lambda level: abs(level - value))
    options = [(f"{level:g}", level) for level in NOISE_LEVELS]
    return widgets.SelectionSlider(options=options, value=nearest, description="noise p", layout=LAYOUT, style=STYLE)


SLIDERS: dict[str, Callable] = {"tau": tau_slider, "k": k_slider, "margin": margin_slider, "noise_level": noise_slider}


def explore(draw: Callable, *, panels: tuple[int, int] = (1, 1), size: tuple[float, float] = (5.4, 3.6), **parameters):
    """Shows sliders that start at the values given, and redraws one figure when they move.

    Args:
        draw: called as draw(ax, tau=..., k=...) with empty axes, or an array of axes if there are several panels.
        panels: rows and columns of axes.
        size: of the figure, in inches.
        parameters: tau, k, margin, noise_level with their first value, or any name with an ipywidgets widget.

    Returns:
        The widget: its `sliders` are by name, its `picture` holds the SVG.

    Example:
        >>> view = explore(lambda ax, tau: ax.plot([0, tau]), tau=0.1)
        >>> view.sliders["tau"].value = 1.0  # as if a reader had moved it
    """
    sliders = {name: _control(name, value) for name, value in parameters.items()}
    return Explorer(draw, sliders, panels, size)


class Explorer(widgets.VBox):
    """Sliders above a picture; see `explore`."""

    def __init__(self, draw, sliders, panels, size):
        self.draw, self.sliders, self.panels, self.size = draw, sliders, panels, size
        self.places = self._fitting_places()
        self.picture, self.message = widgets.HTML(), widgets.HTML()
        # Side by side where there is room: sliders and picture are on the screen together.
        super().__init__([widgets.HBox(list(sliders.values()), layout=ROW), self.message, self.picture])
        self.redraw()
        for slider in sliders.values():
            slider.observe(self.redraw, names="value")

    def redraw(self, _change=None):
        """Draws the figure for the sliders' values; an error is shown above the last good picture."""
        parts = self.parts(**{name: slider.value for name, slider in self.sliders.items()})
        if isinstance(parts, str):
            self.message.value = f"<b>{escape(parts)}</b>"
        else:
            self.message.value, self.picture.value = "", DARK_THEME + svg(parts, self.size, IN_JUPYTER)

    def parts(self, **values) -> list[str] | str:
        """Returns the drawing for these values as parts of an SVG, or what went wrong as a sentence."""
        try:
            figure = self._drawn(values)
            if len(figure.axes) != len(self.places):
                _lay_out(figure)
            else:
                for ax, place in zip(figure.axes, self.places, strict=True):
                    ax.set_position(place)
            return drawn_parts(figure)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def _drawn(self, values):
        figure = new_figure(self.size)  # a new one is made faster than an old one is cleared
        figure.set_layout_engine("none")
        self.draw(figure.subplots(*self.panels), **values)
        for ax in figure.axes:  # ticks are most of the time
            ax.minorticks_off()
            for locator in (ax.xaxis.get_major_locator(), ax.yaxis.get_major_locator()):
                if isinstance(locator, MaxNLocator):
                    locator.set_params(nbins=TICKS)
        return figure

    def _fitting_places(self) -> list[Bbox]:
        """Returns where the axes stand in every picture: with room for the labels at both ends of every slider.

        A layout takes a third of the time of a picture, and axes that move with the length of a label distract.
        """
        start = {name: slider.value for name, slider in self.sliders.items()}
        ends = [start | {name: end} for name, slider in self.sliders.items() for end in frames.ends(slider)]
        found = []
        for values in [start, *ends]:
            with contextlib.suppress(Exception), warnings.catch_warnings():  # what cannot be drawn needs no room
                warnings.simplefilter("ignore")
                figure = self._drawn(values)
                _lay_out(figure)
                found.append([ax.get_position(original=True) for ax in figure.axes])
        alike = [places for places in found if len(places) == len(found[0])]
        return [_common(boxes) for boxes in zip(*alike, strict=True)]

    def _repr_mimebundle_(self, **options):
        """What a notebook keeps: the widget, a picture for readers without a kernel, and in a study all frames."""
        values = {name: slider.value for name, slider in self.sliders.items()}
        bundle = {**(super()._repr_mimebundle_(**options) or {}), "image/png": self._png(values)}
        if most := frames.most_frames():
            bundle[frames.MIME] = frames.record(self.sliders, self.parts, self.size, most)
        return bundle, {"image/png": {"width": round(100 * self.size[0]), "height": round(100 * self.size[1])}}

    def _png(self, values) -> str:
        figure = Figure(figsize=self.size, dpi=200, layout="constrained")
        canvas, file = FigureCanvasAgg(figure), io.BytesIO()
        with contextlib.suppress(Exception):  # an error is in the message above the picture already
            self.draw(figure.subplots(*self.panels), **values)
        canvas.print_png(file)
        return base64.b64encode(file.getvalue()).decode()


def _lay_out(figure):
    """Places the axes so that their labels are inside the figure and beside one another."""
    figure.set_layout_engine("constrained")
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")


def _common(boxes) -> Bbox:
    """What all of the boxes have in common."""
    corners = np.array([box.extents for box in boxes])
    return Bbox.from_extents(*corners[:, :2].max(axis=0), *corners[:, 2:].min(axis=0))


def _control(name, value):
    if isinstance(value, widgets.Widget):
        return value
    if name not in SLIDERS:
        raise ValueError(f"{name} has no slider of its own ({', '.join(SLIDERS)} have): give a widget, got {value!r}.")
    return SLIDERS[name](value)


def _slider(kind, description, value, **options):
    slider = kind(description=description, value=value, layout=LAYOUT, style=STYLE, **options)
    if not math.isclose(slider.value, value, rel_tol=1e-6, abs_tol=1e-12):
        low, high = options["min"], options["max"]
        if "base" in options:
            low, high = options["base"] ** low, options["base"] ** high
        raise ValueError(f"{description} starts at {value!r}, which is not between {low:g} and {high:g}.")
    return slider

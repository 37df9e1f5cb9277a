"""Figures with sliders for the chapters: move tau, k, the margin or the noise level, and one figure is drawn again.

In JupyterLab the kernel draws any value. In a notebook that a program executes, as the study does, the figure is drawn
at all stops of its controls, and its HTML output shows them without a kernel. The axes keep the limits that the whole
range of the controls needs, and the curves of the last position stay as a ghost. Moving a slider never trains.
"""

import itertools
import math
import warnings
from collections.abc import Callable
from html import escape

import ipywidgets as widgets
from IPython import get_ipython
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from smooth_topk.study.chapters import frames
from smooth_topk.study.chapters.drawing import Drawing, drawn, ghost, new_figure, svg
from smooth_topk.study.chapters.limits import Limits, common, scales, widened
from smooth_topk.study.chapters.questions import predict as predict
from smooth_topk.study.chapters.stops import ends

NOISE_LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of Table 1
TICKS = 5  # at most, on an axis that is not logarithmic
LAYOUT = {"width": "320px"}
STYLE = {"description_width": "90px"}
ROW = {"flex_flow": "row wrap"}
_numbers = itertools.count()
# Light ink for a dark theme: lightness is turned round, hues stay.
DARK_THEME = """<style>
.explorer-picture svg { max-width: 100%; height: auto; display: block; }
[data-jp-theme-light="false"] .explorer-picture svg { filter: invert(1) hue-rotate(180deg); }
</style>"""


def tau_slider(value: float = 1.0, *, minimum: float = 0.01, maximum: float = 10.0) -> widgets.FloatLogSlider:
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

    The axes keep limits that hold for all values of the controls; what `draw` sets with set_xlim or set_ylim stays.

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
        self.name = f"figure-{next(_numbers)}"
        self.limits: list[Limits] = []
        self.places = self._fit()
        self.before = self.now = Drawing([], [])
        self.picture, self.message = widgets.HTML(), widgets.HTML()
        # Side by side if the page is wide enough: sliders and picture are on the screen together.
        super().__init__([widgets.HBox(list(sliders.values()), layout=ROW), self.message, self.picture])
        self.redraw()
        for slider in sliders.values():
            slider.observe(self.redraw, names="value")

    def redraw(self, _change=None):
        """Draws the figure for the sliders' values; an error is shown above the last good picture."""
        (drawing,) = self.drawings([self.values])
        if isinstance(drawing, str):
            self.message.value = f"<b>{escape(drawing)}</b>"
            return
        self.before, self.now = self.now, drawing
        behind = f"<g opacity='0.25'>{ghost(self.before.parts, drawing.parts)}</g>"
        content = f"<defs>{''.join({**dict.fromkeys(self.before.definitions + drawing.definitions)})}</defs>{behind}"
        picture = svg(content + "".join(drawing.parts), self.size, "Figure drawn for the values of the sliders above.")
        self.message.value, self.picture.value = "", f"{DARK_THEME}<div class='explorer-picture'>{picture}</div>"

    @property
    def values(self) -> dict:
        """The sliders' values by name."""
        return {name: slider.value for name, slider in self.sliders.items()}

    def drawings(self, combinations: list[dict]) -> list[Drawing | str]:
        """Returns the drawing for each combination of values, all with the same axes, or an error as a sentence."""
        figures = [self._figure(values) for values in combinations]
        return [figure if isinstance(figure, str) else self._finished(figure) for figure in figures]

    def _figure(self, values: dict) -> Figure | str:
        figure = new_figure(self.size)
        try:
            self.draw(figure.subplots(*self.panels), **values)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        for ax in figure.axes:
            ax.minorticks_off()  # ticks are most of the time
            for locator in (ax.xaxis.get_major_locator(), ax.yaxis.get_major_locator()):
                if isinstance(locator, MaxNLocator):
                    locator.set_params(nbins=TICKS)
        self.limits = widened(self.limits, figure.axes)
        return figure

    def _finished(self, figure: Figure) -> Drawing:
        alike = len(figure.axes) == len(self.places)
        if not alike:
            _lay_out(figure)
        for ax, (limits, kinds), place in zip(figure.axes, self.limits, self.places, strict=False):
            if alike:
                ax.set_position(place)
            if scales(ax) == kinds:
                ax.set(xlim=limits.intervalx, ylim=limits.intervaly)
        return drawn(figure, self.name)

    def _fit(self) -> list[Bbox]:
        """Finds the limits that the ends of all controls need, and returns where axes with these limits fit."""
        corners = itertools.product(*({slider.value, *ends(slider)} for slider in self.sliders.values()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            figures = [self._figure(dict(zip(self.sliders, corner, strict=True))) for corner in corners]
        good = [figure for figure in figures if isinstance(figure, Figure)]
        found = []
        for figure in good[:1] + good[-1:]:
            _lay_out(figure)
            found.append([ax.get_position(original=True) for ax in figure.axes])
        alike = [places for places in found if len(places) == len(found[0])]
        return [common(boxes) for boxes in zip(*alike, strict=True)]

    def _repr_mimebundle_(self, **options):
        """What a notebook keeps: the widget, and the figure as HTML, with its frames if no person runs the cell."""
        bundle = super()._repr_mimebundle_(**options) or {}
        if not _has_reader():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the chapter shows those of the values it starts with
                recorded = frames.record(self.sliders, self.drawings)
            (first,) = self.drawings([self.values])
            if isinstance(first, Drawing):
                bundle["text/html"] = frames.page_html(recorded, first, self.size)
        return bundle


def _lay_out(figure: Figure) -> None:
    """Places the axes so that their labels fit."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)


def _has_reader() -> bool:
    """Returns whether a person runs the cell: programs that execute notebooks do not let them ask for input."""
    kernel = getattr(get_ipython(), "kernel", None)
    return bool(kernel and kernel.get_parent().get("content", {}).get("allow_stdin"))


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

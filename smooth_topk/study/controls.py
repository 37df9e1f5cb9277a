"""Sliders for the chapters: move tau, k, the margin or the noise level, and one figure is drawn again.

The figure goes into an image widget, so nothing but the picture travels to the browser. Moving a slider draws; it never
trains. Where there is no kernel (the static book) a sentence stands in the widget's place.
"""

import io
import math
from collections.abc import Callable
from html import escape

import ipywidgets as widgets
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

TICKS = 5  # at most, on an axis that is not logarithmic
LAYOUT = {"width": "420px"}
STYLE = {"description_width": "90px"}
WITHOUT_KERNEL = "*Open this chapter in JupyterLab (`bash scripts/lab.sh`) to move {names} here.*"


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


def noise_slider(value: float = 0.0) -> widgets.FloatSlider:
    """Returns a slider for the noise level, the paper's p."""
    return _slider(widgets.FloatSlider, "noise p", value, min=0.0, max=1.0, step=0.05)


SLIDERS = {"tau": tau_slider, "k": k_slider, "margin": margin_slider, "noise_level": noise_slider}


def explore(draw: Callable, *, panels: tuple[int, int] = (1, 1), size: tuple[float, float] = (6.4, 3.8), **parameters):
    """Shows sliders that start at the values given, and redraws one figure when they move.

    Args:
        draw: called as draw(ax, tau=..., k=...) with empty axes, or an array of axes if there are several panels.
        panels: rows and columns of axes.
        size: of the figure, in inches.
        parameters: tau, k, margin, noise_level with their first value, or any name with an ipywidgets widget.

    Returns:
        The widget: its `sliders` are by name, its `image` holds the picture.

    Example:
        >>> view = explore(lambda ax, tau: ax.plot([0, tau]), tau=0.1)
        >>> view.sliders["tau"].value = 1.0  # as if a reader had moved it
    """
    sliders = {name: _control(name, value) for name, value in parameters.items()}
    return Explorer(draw, sliders, panels, size)


class Explorer(widgets.VBox):
    """Sliders above a picture; see `explore`."""

    def __init__(self, draw, sliders, panels, size):
        self.draw, self.sliders, self.panels, self.size, self.places = draw, sliders, panels, size, []
        self.formulas = None
        self.image, self.message = widgets.Image(format="png"), widgets.HTML()
        super().__init__([*sliders.values(), self.message, self.image])
        self.redraw()
        for slider in sliders.values():
            slider.observe(self.redraw, names="value")

    def redraw(self, _change=None):
        """Draws the figure for the sliders' values; an error is shown above the last good picture."""
        self.figure = Figure(figsize=self.size, dpi=100)  # a new one is made faster than an old one is cleared
        FigureCanvasAgg(self.figure)
        try:
            values = {name: slider.value for name, slider in self.sliders.items()}
            self.draw(self.figure.subplots(*self.panels), **values)
            picture = self._picture()
        except Exception as error:
            self.message.value = f"<b>{escape(type(error).__name__)}:</b> {escape(str(error))}"
            return
        self.message.value, self.image.value = "", picture

    def _picture(self):
        """Renders the figure once; the layout, a third of the time, is made for the first picture and then kept."""
        axes, canvas = self.figure.axes, self.figure.canvas
        renderer = canvas.get_renderer()
        # One typesetter for all pictures: it remembers the formulas it has set.
        self.formulas = renderer.mathtext_parser = self.formulas or renderer.mathtext_parser
        for ax in axes:  # ticks are most of the time
            ax.minorticks_off()
            for locator in (ax.xaxis.get_major_locator(), ax.yaxis.get_major_locator()):
                if isinstance(locator, MaxNLocator):
                    locator.set_params(nbins=TICKS)
        if len(axes) == len(self.places):
            self.figure.set_layout_engine("none")
            for ax, place in zip(axes, self.places, strict=True):
                ax.set_position(place)
            canvas.draw()
        else:
            self.figure.set_layout_engine("constrained")
            canvas.draw()
            self.places = [ax.get_position(original=True) for ax in axes]
        picture = io.BytesIO()
        # Little compression: the picture travels to a browser on the same machine.
        Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).save(picture, "png", compress_level=1)
        return picture.getvalue()

    def _repr_mimebundle_(self, **options):
        names = ", ".join(slider.description for slider in self.sliders.values())
        bundle = super()._repr_mimebundle_(**options) or {}
        return {**bundle, "text/markdown": WITHOUT_KERNEL.format(names=names)}


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

"""A matplotlib figure as parts of an SVG: axes, ticks, curves and texts, which many frames of one figure share."""

import io
import re
from typing import NamedTuple
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure

POINTS, PIXELS = 72, 100  # per inch: of the drawing, and on the page
FURNITURE = ("matplotlib.axis", "text", "legend")  # of axes; everything else shows data
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
LONG_NUMBER = re.compile(r"\d+\.\d{3,}")


class Drawing(NamedTuple):
    """What one figure is made of; parts that show data begin with DATA."""

    definitions: list[str]
    parts: list[str]


DATA = '<g class="data">'


def new_figure(size: tuple[float, float]) -> Figure:
    """Returns an empty figure of `size` inches that can be laid out and drawn."""
    figure = Figure(figsize=size, dpi=POINTS, facecolor="none", layout="constrained")
    FigureCanvasAgg(figure)  # measures texts for the layout
    return figure


def drawn(figure: Figure, name: str) -> Drawing:
    """Draws a figure as it is laid out, without the white grounds of its axes.

    Args:
        figure: from `new_figure`.
        name: makes the ids of its clip paths unlike those of other figures.
    """
    figure.set_layout_engine("none")
    for ax in figure.axes:
        if np.allclose(ax.get_facecolor(), 1):
            ax.patch.set_visible(False)  # the page is the ground, so that a dark page stays dark
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        width, height = (POINTS * length for length in figure.get_size_inches())
        renderer = RendererSVG(width, height, file, image_dpi=POINTS, metadata=NO_METADATA)
        figure.draw(renderer)
        renderer.finalize()
    text = file.getvalue().replace(' xmlns="http://www.w3.org/2000/svg"', "").replace("xlink:href", "href")
    return _split(ElementTree.fromstring(text.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")))


def svg(content: str, size: tuple[float, float], label: str) -> str:
    """Returns an SVG element of `size` inches around definitions and parts; `label` is HTML."""
    width, height = (round(PIXELS * length) for length in size)
    box = f'viewBox="0 0 {POINTS * size[0]:g} {POINTS * size[1]:g}" width="{width}" height="{height}"'
    lines = 'stroke-linejoin="round" stroke-linecap="butt"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {lines} role="img" aria-label="{label}">{content}</svg>'


def ghost(before: list[str], now: list[str]) -> str:
    """Returns the curves of the frame before that moved, to be drawn faintly behind the present one."""
    return "".join(part for part in before if part.startswith(DATA) and part not in now)


def _split(root: ElementTree.Element) -> Drawing:
    definitions = []
    for parent in list(root.iter()):
        for found in parent.findall("defs"):
            definitions += [_text(child) for child in found if child.tag != "style"]
            parent.remove(found)
    parts = []
    for group in root.findall("g/*"):  # of the figure
        for part in group if group.get("id", "").startswith("axes") else [group]:
            name = part.get("id", "")
            if not name.startswith(FURNITURE) and group is not part:
                part.set("class", "data")
            parts += [_text(piece) for piece in (part if name.startswith("matplotlib.axis") else [part])]
    return Drawing(definitions, parts)


def _text(element: ElementTree.Element) -> str:
    for inner in element.iter():
        if inner.tag == "g":
            inner.attrib.pop("id", None)
        if "d" in inner.attrib:
            inner.set(
                "d", LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", inner.get("d", "")).replace(" \n", "")
            )
        inner.text = inner.tail = None
    return ElementTree.tostring(element, encoding="unicode")

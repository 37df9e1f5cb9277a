"""A matplotlib figure in, a drawing in SVG out, as a list of parts that many frames can share.

matplotlib has an SVG backend of its own. This renderer writes each line, area, marker set or text as one short
self-contained piece of SVG with whole-number coordinates, and remembers the outlines of texts it has met. Two frames of
one figure then have most of their parts in common as equal strings, and a part is stored once.
"""

import base64
import io
from functools import lru_cache
from hashlib import blake2s
from typing import cast

import numpy as np
from matplotlib.backend_bases import FigureCanvasBase, RendererBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextToPath
from matplotlib.transforms import Affine2D
from PIL import Image

UNITS = 20  # of the drawing per pixel: an outline of small text is still smooth on a dense screen
FEW = 8  # markers; more than that share one definition
HATCH_TILE = 72  # pixels, as in matplotlib's own backends
COMMANDS = {Path.LINETO: "l", Path.CURVE3: "q", Path.CURVE4: "c"}
LENGTHS = {Path.MOVETO: 1, Path.LINETO: 1, Path.CURVE3: 2, Path.CURVE4: 3, Path.CLOSEPOLY: 1}  # in points


def new_figure(size: tuple[float, float]) -> Figure:
    """Returns an empty figure of `size` inches at 100 dots per inch whose layout is measured for this renderer."""
    figure = Figure(figsize=size, dpi=100, facecolor="none")
    _Canvas(figure)
    return figure


def drawn_parts(figure: Figure) -> list[str]:
    """Draws a figure of `new_figure` and returns its parts, back to front, without the white grounds of its axes."""
    for ax in figure.axes:
        if np.allclose(ax.get_facecolor(), 1):
            ax.patch.set_visible(False)  # the page is the ground, so that a dark page stays dark
    renderer = cast(_Canvas, figure.canvas).get_renderer()
    renderer.definitions, renderer.parts = [], []
    figure.draw(renderer)
    return renderer.definitions + renderer.parts


def svg(parts: list[str], size: tuple[float, float], attributes: str = "") -> str:
    """Returns the parts as one SVG element of `size` inches.

    Example:
        >>> svg([], (6.4, 3.8))
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 12800 7600' width='640' height='380'></svg>"
    """
    width, height = (round(100 * length) for length in size)
    box = f"viewBox='0 0 {width * UNITS} {height * UNITS}' width='{width}' height='{height}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {box}{attributes}>{''.join(parts)}</svg>"


class _Canvas(FigureCanvasBase):
    """Where matplotlib's layout asks for the renderer that measures texts."""

    def get_renderer(self) -> "_Renderer":
        if not hasattr(self, "renderer"):
            self.renderer = _Renderer(*self.get_width_height())
        return self.renderer


class _Renderer(RendererBase):
    def __init__(self, width: int, height: int):
        super().__init__()
        self.width, self.height = width, height
        self.definitions: list[str] = []
        self.parts: list[str] = []
        self.to_units = Affine2D().scale(UNITS, -UNITS).translate(0, height * UNITS)

    def get_canvas_width_height(self):
        return self.width, self.height

    def points_to_pixels(self, points):
        return points * 100 / 72

    def get_text_width_height_descent(self, s, prop, ismath):
        return _text_size(s, prop, ismath)

    def draw_path(self, gc, path, transform, rgbFace=None):
        filled = rgbFace is not None or gc.get_hatch() is not None
        width = self.points_to_pixels(gc.get_linewidth())
        cleaned = path.cleaned(
            transform,
            remove_nans=True,
            clip=None if filled else (-width, -width, self.width + width, self.height + width),
            simplify=path.should_simplify and not filled,
            curves=True,
            stroke_width=width,
            snap=gc.get_snap(),
        )
        if not (outline := _outline(self.to_units.transform(cleaned.vertices), cleaned.codes)):
            return  # nothing of it is finite, or on the canvas
        look = self._look(gc, rgbFace) + self._clip(gc, cleaned.get_extents(), width)
        self.parts.append(f"<path d='{outline}'{look}/>")
        if gc.get_hatch() is not None:
            self.parts.append(self._hatched(gc, outline))

    def draw_markers(self, gc, marker_path, marker_trans, path, trans, rgbFace=None):
        places = np.array([place[-2:] for place, _ in path.iter_segments(trans, simplify=False) if len(place)])
        places = places[np.isfinite(places).all(axis=1)] if len(places) else places
        if not len(places):
            return
        flip = Affine2D().scale(UNITS, -UNITS)
        shape = _outline((marker_trans + flip).transform(marker_path.vertices), marker_path.codes)
        look = self._look(gc, rgbFace)
        clip = self._clip(gc, Path(places).get_extents(), 0)
        points = np.rint(self.to_units.transform(places)).astype(int)
        if len(points) <= FEW:
            for x, y in points:
                self.parts.append(self._in_clip(clip, f"<path d='{shape}' transform='translate({x} {y})'{look}/>"))
            return
        name = "m" + blake2s((shape + look).encode(), digest_size=5).hexdigest()
        steps = np.diff(points, axis=0).ravel().tolist()
        line = f"M{points[0][0]} {points[0][1]}l{_numbers(steps)}"
        ends = "".join(f" marker-{place}='url(#{name})'" for place in ("start", "mid", "end"))
        marker = (
            f"<marker id='{name}' markerUnits='userSpaceOnUse' overflow='visible'><path d='{shape}'{look}/></marker>"
        )
        self.parts.append(f"{marker}<path d='{line}' fill='none'{ends}{clip}/>")

    def draw_path_collection(self, *args, **kwargs):
        """Draws the paths as one part where they look the same, as bars of one colour do."""
        before = len(self.parts)
        super().draw_path_collection(*args, **kwargs)
        drawn = [part.split("'", 2) for part in self.parts[before:]]
        if len(drawn) > 1 and all(head == "<path d=" and look == drawn[0][2] for head, _, look in drawn):
            self.parts[before:] = ["<path d='" + "".join(line for _, line, _ in drawn) + f"'{drawn[0][2]}"]

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        line = _text_outline(s, prop, ismath)
        turn = f" rotate({-angle:g})" if angle else ""
        place = f"translate({round(x * UNITS)} {round(y * UNITS)})"
        fill = f" fill='{to_hex(gc.get_rgb())}'" + _opacity("fill-opacity", self._alpha(gc, gc.get_rgb()))
        if line:
            self.parts.append(f"<path d='{line}' transform='{place}{turn}'{fill}/>")

    def draw_image(self, gc, x, y, im, transform=None):
        height, width = im.shape[:2]
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(im[::-1])).save(file, "png", optimize=True)
        place = f"x='{round(x * UNITS)}' y='{round((self.height - y - height) * UNITS)}'"
        data = base64.b64encode(file.getvalue()).decode()
        extent = f"width='{width * UNITS}' height='{height * UNITS}'"
        self.parts.append(f"<image {place} {extent} href='data:image/png;base64,{data}'/>")

    def _look(self, gc, face) -> str:
        look = " fill='none'"
        if face is not None:
            look = f" fill='{to_hex(face)}'" + _opacity("fill-opacity", self._alpha(gc, face))
        width = self.points_to_pixels(gc.get_linewidth())
        if width == 0:
            return look
        look += f" stroke='{to_hex(gc.get_rgb())}' stroke-width='{round(width * UNITS)}'"
        look += _opacity("stroke-opacity", self._alpha(gc, gc.get_rgb()))
        offset, dashes = gc.get_dashes()
        if dashes is not None:
            look += f" stroke-dasharray='{_numbers(round(self.points_to_pixels(dash) * UNITS) for dash in dashes)}'"
            look += f" stroke-dashoffset='{round(self.points_to_pixels(offset) * UNITS)}'" if offset else ""
        cap, join = gc.get_capstyle(), gc.get_joinstyle()
        look += {"round": " stroke-linecap='round'", "projecting": " stroke-linecap='square'"}.get(cap, "")
        return look + (f" stroke-linejoin='{join}'" if join != "miter" else "")

    def _alpha(self, gc, colour) -> float:
        if gc.get_forced_alpha():
            return gc.get_alpha()
        return colour[3] if len(colour) > 3 else gc.get_alpha()

    def _clip(self, gc, extents, width: float) -> str:
        """The attribute that keeps a path inside its axes; the name of the definition is its rectangle."""
        box = gc.get_clip_rectangle()
        if box is None:
            return ""
        inside = box.x0 <= extents.x0 and extents.x1 <= box.x1 and box.y0 <= extents.y0 and extents.y1 <= box.y1
        if inside:
            return ""
        (x0, y0), (x1, y1) = np.rint(self.to_units.transform([(box.x0, box.y1), (box.x1, box.y0)])).astype(int)
        name = f"c{x0}-{y0}-{x1}-{y1}"
        definition = f"<clipPath id='{name}'><rect x='{x0}' y='{y0}' width='{x1 - x0}' height='{y1 - y0}'/></clipPath>"
        if definition not in self.definitions:
            self.definitions.append(definition)
        return f" clip-path='url(#{name})'"

    def _in_clip(self, clip: str, part: str) -> str:
        """A moved part would move its clip too, so the clip goes around it."""
        return f"<g{clip}>{part}</g>" if clip else part

    def _hatched(self, gc, outline: str) -> str:
        tile = HATCH_TILE * UNITS
        hatch = gc.get_hatch_path()
        lines = _outline(Affine2D().scale(tile, -tile).translate(0, tile).transform(hatch.vertices), hatch.codes)
        colour, width = to_hex(gc.get_hatch_color()), round(self.points_to_pixels(gc.get_hatch_linewidth()) * UNITS)
        drawing = f"<path d='{lines}' fill='{colour}' stroke='{colour}' stroke-width='{width}'/>"
        name = "h" + blake2s(drawing.encode(), digest_size=5).hexdigest()
        pattern = (
            f"<pattern id='{name}' width='{tile}' height='{tile}' patternUnits='userSpaceOnUse'>{drawing}</pattern>"
        )
        return f"{pattern}<path d='{outline}' fill='url(#{name})'/>"


def _outline(vertices: np.ndarray, codes: np.ndarray | None) -> str:
    """A path in units of the drawing as SVG: places absolute, steps relative, whole numbers; empty without a line."""
    points = np.rint(vertices).astype(int).tolist()
    kinds = [Path.MOVETO] + [Path.LINETO] * (len(points) - 1) if codes is None else codes.tolist()
    text, command, start, (here_x, here_y) = [], "", (0, 0), (0, 0)
    place = 0
    while place < len(points) and kinds[place] != Path.STOP:
        length = LENGTHS[kinds[place]]
        if kinds[place] == Path.MOVETO:
            here_x, here_y = start = points[place]
            text.append(f"M{here_x} {here_y}")
            command = "M"
        elif kinds[place] == Path.CLOSEPOLY:
            text.append("z")
            (here_x, here_y), command = start, "z"
        else:
            corners = points[place : place + length]
            steps = [step for x, y in corners for step in (x - here_x, y - here_y)]
            if length > 1 or any(steps):  # a step too small to see is left out
                numbers, letter = _numbers(steps), COMMANDS[kinds[place]]
                space = "" if numbers[0] == "-" else " "
                text.append(space + numbers if letter == command else letter + numbers)
                command = letter
            here_x, here_y = corners[-1]
        place += length
    return "".join(text)


def _numbers(values) -> str:
    """Whole numbers as SVG reads them: a minus sign separates as well as a space.

    Example:
        >>> _numbers([1, -2, 3])
        '1-2 3'
    """
    return " ".join(map(str, values)).replace(" -", "-")


def _opacity(name: str, alpha: float) -> str:
    return f" {name}='{alpha:.2g}'" if alpha < 1 else ""


_text_to_path = TextToPath()


@lru_cache(maxsize=4096)
def _text_outline(text: str, font: FontProperties, ismath) -> str:
    """The outline of a text whose baseline starts at (0, 0); empty for spaces."""
    vertices, codes = _text_to_path.get_text_path(font, text, ismath=ismath)
    if not len(vertices):
        return ""
    scale = font.get_size_in_points() * 100 / 72 / _text_to_path.FONT_SCALE * UNITS
    return _outline(Affine2D().scale(scale, -scale).transform(np.asarray(vertices)), np.asarray(codes))


@lru_cache(maxsize=4096)
def _text_size(text: str, font: FontProperties, ismath) -> tuple[float, float, float]:
    """Width, height and descent of a text in pixels."""
    width, height, descent = _text_to_path.get_text_width_height_descent(text, font, ismath)
    return 100 / 72 * width, 100 / 72 * height, 100 / 72 * descent

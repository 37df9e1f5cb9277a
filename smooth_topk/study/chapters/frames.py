"""A figure with sliders in, its frames over a grid of positions out: what the static book shows without a kernel.

The frames are drawings in SVG and not pictures of pixels. They are sharp on every screen, take the ink of a dark page,
and cost less: nothing is rasterised or compressed when they are made, and two frames share every part that they have in
common (axes, ticks, legends, curves that do not depend on the slider that moved), so that a frame adds only what is new
in it. A WebP picture of 24 colours has the same size for one frame on an ordinary screen and four times the pixels on a
dense one. Drawing the figures in the browser from their data would need a second version of every figure in JavaScript.
The browser joins the parts of a frame and knows nothing about figures: see frames.js.
"""

import gc
import itertools
import json
import math
import os
import warnings
from collections.abc import Sequence
from html import escape
from pathlib import Path

import ipywidgets as widgets

MIME = "application/vnd.smooth-topk.frames+json"
JAVASCRIPT = Path(__file__).with_name("frames.js")
VARIABLE = "SMOOTH_TOPK_FRAMES"  # set by the study: the most frames of one figure
SERIES = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7))  # of round numbers, per power of ten
MOST_STEPS = 41  # of a slider that counts; a longer one is thinned
FLOAT_STEPS = 9
FEWEST, FEWEST_TAU = 3, 15


def most_frames() -> int:
    """Returns how many frames a figure may have: 0 outside a study, where the kernel draws every value."""
    return int(os.environ.get(VARIABLE, "0"))


def grid(controls: dict[str, widgets.Widget], most: int) -> list[list]:
    """Returns the positions of every control, thinned until their combinations are at most `most`.

    Each list holds the control's present value. Choices and counted steps keep all their values if they can; tau keeps
    at least 15 positions and every other control at least 3, unless not even those fit: then all keep 2 at least.

    Example:
        >>> step, tau = widgets.IntSlider(min=0, max=3), widgets.FloatLogSlider(value=1, min=-1, max=1)
        >>> [len(values) for values in grid({"step": step, "tau": tau}, most=100)]
        [4, 13]
    """
    values = [positions(control) for control in controls.values()]
    fewest = [FEWEST_TAU if isinstance(control, widgets.FloatLogSlider) else FEWEST for control in controls.values()]
    if math.prod(fewest) > most:
        fewest = [2] * len(values)
    while math.prod(map(len, values)) > most:
        spare = [len(found) / least for found, least in zip(values, fewest, strict=True)]
        if max(spare) <= 1:
            break
        place = spare.index(max(spare))
        values[place] = thinned(values[place], len(values[place]) - 1, list(controls.values())[place].value)
    return values


def positions(control: widgets.Widget) -> list:
    """Returns the values a control can take in the book, in order, its present one among them."""
    if hasattr(control, "options"):
        return [value for _, value in control._options_full]
    if isinstance(control.value, bool):
        return [False, True]
    if isinstance(control, widgets.FloatLogSlider):
        low, high = control.base**control.min, control.base**control.max
        found = _round_numbers(low, high)
    elif isinstance(control.value, int):
        found = list(range(control.min, control.max + 1, control.step))
        found = found if len(found) <= MOST_STEPS else thinned(found, MOST_STEPS, control.value)
    else:
        steps = round((control.max - control.min) / control.step)
        every = max(1, math.ceil(steps / (FLOAT_STEPS - 1)))
        found = [round(control.min + step * control.step, 10) for step in range(0, steps + 1, every)]
        found += [control.max] if found[-1] != control.max else []
    kept = [value for value in found if not math.isclose(value, control.value, rel_tol=1e-6, abs_tol=1e-12)]
    return sorted([*kept, control.value])


def ends(control: widgets.Widget) -> tuple:
    """Returns the first and the last value of a control."""
    values = positions(control)
    return values[0], values[-1]


def thinned(values: Sequence, count: int, keep) -> list:
    """Returns `count` of the values, evenly spread: the first, the last and `keep` among them."""
    wanted = {round(place * (len(values) - 1) / (count - 1)) for place in range(count)}
    own = list(values).index(keep)
    if own not in wanted:
        inner = [place for place in wanted if 0 < place < len(values) - 1] or list(wanted)
        wanted = wanted - {min(inner, key=lambda place: abs(place - own))} | {own}
    return [values[place] for place in sorted(wanted)]


def record(controls: dict[str, widgets.Widget], draw, size: tuple[float, float], most: int) -> dict:
    """Draws the figure at every position of the grid.

    Args:
        controls: widgets by name.
        draw: called with one value per control; returns the parts of a drawing, or an error as a sentence.
        size: of the figure, in inches.
        most: frames, see `grid`.

    Returns:
        Plain data for JSON: "size"; "controls", each with label, kind, texts and the place where it starts; "parts",
        every part once; "frames", the places of their parts, the last control counting fastest.
    """
    values = grid(controls, most)
    known: dict[str, int] = {}
    frames = []
    gc.freeze()  # figures leave cycles behind; looking for them among all that torch loaded is a quarter of the time
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the chapter shows those of the values it starts with
        for combination in itertools.product(*values):
            parts = draw(**dict(zip(controls, combination, strict=True)))
            frames.append(parts if isinstance(parts, str) else [known.setdefault(part, len(known)) for part in parts])
    gc.unfreeze()
    described = [_described(control, found) for control, found in zip(controls.values(), values, strict=True)]
    return {"size": list(size), "controls": described, "parts": list(known), "frames": frames}


def start_frame(recorded: dict) -> list[str]:
    """Returns the parts of the frame a reader sees first."""
    place = 0
    for control in recorded["controls"]:
        place = place * len(control["texts"]) + control["start"]
    frame = recorded["frames"][place]
    return [] if isinstance(frame, str) else [recorded["parts"][part] for part in frame]


def page_html(name: str, recorded: dict, picture: str, address: str) -> str:
    """Returns the figure for a page without a kernel, which needs frames.js as an inline module script.

    Args:
        name: of the figure, unlike any other on the page.
        recorded: from `record`.
        picture: the first frame as an SVG element.
        address: of the file with `frames_script`, which is loaded when the figure comes into view.
    """
    controls = escape(json.dumps(recorded["controls"], ensure_ascii=False))
    data = f'data-frames="{escape(name)}" data-source="{escape(address)}" data-controls="{controls}"'
    return f'<div class="live-figure" {data}><div class="picture">{picture}</div></div>'


def frames_script(name: str, recorded: dict) -> str:
    """Returns the file of a figure's frames: a script, because a page opened from a folder may not fetch data."""
    kept = {"parts": recorded["parts"], "frames": recorded["frames"]}
    return f"showFrames({json.dumps(name)}, {json.dumps(kept, ensure_ascii=False, separators=(',', ':'))});\n"


def _described(control: widgets.Widget, values: list) -> dict:
    if hasattr(control, "options"):
        texts = [label for label, value in control._options_full if value in values]
    else:
        texts = [_text(value) for value in values]
    choice = hasattr(control, "options") and not isinstance(control, widgets.SelectionSlider)
    kind = "choice" if choice else "steps" if isinstance(control.value, int) else "range"
    return {"label": control.description, "kind": kind, "texts": texts, "start": values.index(control.value)}


def _text(value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def _round_numbers(low: float, high: float) -> list[float]:
    """Round numbers from low to high, at least 15 of them if the finer series has as many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for series in SERIES:
        numbers = [float(f"{digit}e{power}") for power in range(first, last + 1) for digit in series]
        found = [number for number in numbers if low * (1 - 1e-9) <= number <= high * (1 + 1e-9)]
        if len(found) >= FEWEST_TAU:
            break
    return found

"""A figure with controls as one piece of HTML: its first picture, and all its frames for the script that shows them."""

import itertools
import json
from collections.abc import Callable
from html import escape
from pathlib import Path

import ipywidgets as widgets

from smooth_topk.study.chapters.drawing import Drawing, svg
from smooth_topk.study.chapters.stops import grid

JAVASCRIPT = Path(__file__).with_name("frames.js")
most_frames = 150  # of one figure; a smoke run draws fewer


def record(controls: dict[str, widgets.Widget], draw_all: Callable[[list[dict]], list[Drawing | str]]) -> dict:
    """Draws a figure at every combination of its controls' stops.

    Args:
        controls: widgets by name.
        draw_all: from a list of values by name to their drawings; a text says why there is no drawing.

    Returns:
        Plain data for JSON: "controls", each with label, kind, texts and the place where it starts; "definitions" and
        "parts", each once; "frames", the places of their parts, the last control counting fastest.
    """
    values = grid(controls, most_frames)
    combinations = [dict(zip(controls, found, strict=True)) for found in itertools.product(*values)]
    definitions: dict[str, None] = {}
    parts: dict[str, int] = {}
    frames: list[list[int] | str] = []
    for drawing in draw_all(combinations):
        if isinstance(drawing, str):
            frames.append(drawing)
            continue
        definitions.update(dict.fromkeys(drawing.definitions))
        frames.append([parts.setdefault(part, len(parts)) for part in drawing.parts])
    described = [_described(control, found) for control, found in zip(controls.values(), values, strict=True)]
    return {"controls": described, "definitions": "".join(definitions), "parts": list(parts), "frames": frames}


def page_html(recorded: dict, first: Drawing, size: tuple[float, float]) -> str:
    """Returns the figure for a page without a kernel, with its frames and the script that shows them.

    Args:
        recorded: from `record`.
        first: what is there before, and without, any script.
        size: in inches.
    """
    label = "Interactive figure. " + escape(", ".join(one["label"] for one in recorded["controls"]))
    content = f"<defs>{recorded['definitions']}</defs><g class='ghost' opacity='0.25'></g><g>{''.join(first.parts)}</g>"
    kept = {name: recorded[name] for name in ("controls", "parts", "frames")}
    data = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<div class="live-figure"><div class="picture">{svg(content, size, label)}</div>'
        f'<script type="application/json">{data}</script>'
        f'<script type="module">{JAVASCRIPT.read_text(encoding="utf-8")}</script></div>'
    )


def _described(control: widgets.Widget, values: list) -> dict:
    if hasattr(control, "options"):
        texts = [label for label, value in control._options_full if value in values]
    else:
        texts = [_text(value) for value in values]
    is_choice = hasattr(control, "options") and not isinstance(control, widgets.SelectionSlider)
    kind = "choice" if is_choice else "range"
    return {"label": control.description, "kind": kind, "texts": texts, "start": values.index(control.value)}


def _text(value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}".replace("e-0", "e-") if isinstance(value, float) else str(value)

"""Live figures with one script for JupyterLab, where it is a widget, and for the static book, which has no kernel."""

import json
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import anywidget

SHARED = Path(__file__).with_name("explorable.js")


class Explorable(anywidget.AnyWidget):
    """A widget whose cell also shows the same figure, with the values it has then, where there is no kernel.

    A subclass has its traits, the script in `_esm` and `MARK`, the attribute of the elements that the script fills.
    """

    MARK: ClassVar[str]

    def html(self) -> str:
        """The element that the script fills on a page without a kernel, which needs it as an inline module.

        Example:
            >>> from smooth_topk.study.chapters.training_demo import TrainingDemo
            >>> TrainingDemo(k=3).html()[:40]
            '<div data-training-demo="{&quot;decay&qu'
        """
        own = set(self.trait_names(sync=True)) - set(Explorable.class_trait_names())
        values = {name: getattr(self, name) for name in sorted(own) if not name.startswith("_")}
        return f'<div {self.MARK}="{escape(json.dumps(values))}">This figure needs JavaScript.</div>'

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict, dict]:
        data, metadata = super()._repr_mimebundle_(**options) or ({}, {})
        return data | {"text/html": self.html()}, metadata


def script(name: str) -> str:
    """The script of a figure with what all figures share in front of it: one module that imports nothing."""
    return SHARED.read_text(encoding="utf-8") + Path(__file__).with_name(name).read_text(encoding="utf-8")


def within(name: str, value: float, limits: tuple[float, float]) -> float:
    """Returns a value between its limits; another one raises a ValueError that names it."""
    lowest, highest = limits
    if not lowest <= value <= highest:
        raise ValueError(f"{name} must be between {lowest:g} and {highest:g}, got {value}.")
    return value

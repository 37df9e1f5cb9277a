"""The pictures of README and of the book's first page; the same recorded numbers give the same bytes."""

import io
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

from smooth_topk.study import figures
from smooth_topk.study.chapters.spider import PHOTOGRAPH
from smooth_topk.study.experiments import registry
from smooth_topk.study.figures.style import use_style
from smooth_topk.study.records import evidence
from smooth_topk.study.records.imagenet_scores import read_scores
from smooth_topk.study.tables.findings import Records

THREAD, BODY = "#8a94a6", "#2b2b2b"


def draw_pictures(folder: Path) -> None:
    """Writes spider.svg, names.svg and noise.svg."""
    _write({"spider": _spider_in_web, "names": _names, "noise": _noise}, folder)


def _write(pictures: dict[str, Callable[[], Axes]], folder: Path) -> None:
    mpl.use("agg")
    use_style()
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in pictures.items():
        file, figure = io.BytesIO(), draw().get_figure(root=True)
        assert figure is not None
        figure.savefig(file, format="svg", metadata={"Date": None})
        (folder / f"{name}.svg").write_bytes(file.getvalue())


def _names() -> Axes:
    """The seven names that a trained network finds most likely for a photograph of a spider in its web."""
    recorded = read_scores()
    assert recorded is not None, "imagenet_scores.npz is part of the project"
    shares, order = recorded.scores[PHOTOGRAPH].softmax(-1).topk(7)
    names, true = [recorded.class_names[index] for index in order], order == recorded.labels[PHOTOGRAPH]
    table = pd.DataFrame({"name": names, "probability": shares, "true": true})
    return figures.plausible_names(table, ax=figures.new_axes(figsize=(5.4, 2.9)))


def _spider_in_web() -> Axes:
    ax = figures.new_axes(figsize=(2.2, 2.2))
    spokes = np.linspace(0, 2 * np.pi, 14, endpoint=False) + 0.12 * np.sin(np.arange(14) * 2.4)
    reach = 1.05 + 0.12 * np.cos(np.arange(14) * 1.9)
    for angle, length in zip(spokes, reach, strict=True):
        ax.plot([0, length * np.cos(angle)], [0, length * np.sin(angle)], color=THREAD, lw=0.7)
    turns = np.linspace(0.25, 0.95, 8)
    for a, b in zip(spokes, np.append(spokes[1:], spokes[0] + 2 * np.pi), strict=True):
        along = np.linspace(a, b, 9)
        sag = 1 - 0.09 * np.sin(np.pi * (along - a) / (b - a))  # threads hang between two spokes
        for radius in turns:
            ax.plot(radius * sag * np.cos(along), radius * sag * np.sin(along), color=THREAD, lw=0.6)
    for side in (-1, 1):
        for height, knee, foot in ((0.1, 0.34, 0.5), (0.06, 0.16, 0.2), (0.0, -0.06, -0.14), (-0.03, -0.22, -0.44)):
            ax.plot([0, side * 0.2, side * 0.34], [height, knee, foot], color=BODY, lw=1.6, solid_capstyle="round")
    for y, width, height in ((-0.14, 0.24, 0.34), (0.1, 0.15, 0.17)):
        ax.add_patch(Ellipse((0, y), width, height, color=BODY, zorder=3))
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def _noise() -> Axes:
    """Table 1 on features: accuracy with each loss tuned, and the lead with either choice of hyper-parameters."""
    tuned, pair = Records().noise("tuned"), evidence.published(registry.noise_with_the_papers_pair())
    return figures.noise_summary(tuned, pair)[0]

"""The drawing of a figure as SVG: everything matplotlib draws is there, where matplotlib puts it."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.path import Path

from smooth_topk.study.chapters import vector_picture
from smooth_topk.study.chapters.vector_picture import UNITS, drawn_parts, new_figure, svg

SIZE = (4.0, 3.0)


def drawn(draw) -> tuple[list[str], object]:
    figure = new_figure(SIZE)
    ax = figure.subplots()
    draw(ax)
    return drawn_parts(figure), ax


def points_of(part: str) -> np.ndarray:
    """The corners of a part made of one move and relative lines, in pixels from the lower left."""
    move, steps = re.search(r"d='M([-\d ]+)l([-\d ]+)", part).groups()
    numbers = [np.array(re.findall(r"-?\d+", text), float).reshape(-1, 2) for text in (move, steps)]
    points = np.cumsum(np.concatenate(numbers), axis=0) / UNITS
    return np.stack([points[:, 0], SIZE[1] * 100 - points[:, 1]], axis=1)


def test_the_drawing_is_well_formed():
    def draw(ax):
        ax.plot([0, 1, 2], [1, 3, 2], "o--", label="$\\sigma_k$ & more")
        ax.scatter(range(20), range(20), alpha=0.5)
        ax.bar([0, 1], [2, 3], hatch="//", edgecolor="black")
        ax.imshow(np.eye(3))
        ax.set(title="<title>", xlabel="x")
        ax.legend()

    parts, _ = drawn(draw)
    root = ElementTree.fromstring(svg(parts, SIZE))
    assert {element.tag.split("}")[1] for element in root.iter()} >= {"path", "marker", "pattern", "image"}


def test_a_line_lies_where_matplotlib_puts_it():
    x, y = [0.0, 0.3, 0.5, 1.0], [0.2, 0.9, 0.1, 0.4]
    parts, ax = drawn(lambda ax: ax.plot(x, y, color="#123456"))
    (line,) = [part for part in parts if "#123456" in part]
    expected = ax.transData.transform(np.stack([x, y], axis=1))
    assert np.abs(points_of(line) - expected).max() <= 1 / UNITS


def test_many_markers_share_one_shape_and_few_are_drawn_one_by_one():
    many, ax = drawn(lambda ax: ax.scatter(np.arange(50), np.arange(50) ** 2, color="#123456"))
    (part,) = [part for part in many if "#123456" in part]
    assert part.startswith("<marker")
    expected = ax.transData.transform(np.stack([np.arange(50), np.arange(50) ** 2], axis=1))
    assert np.abs(points_of(part[part.index("</marker>") :]) - expected).max() <= 1 / UNITS
    few, _ = drawn(lambda ax: ax.plot([0, 1], [0, 1], "s", color="#123456"))
    assert sum("#123456" in part for part in few) == 2


def test_bars_of_one_colour_are_one_part():
    from smooth_topk.study.figures.style import bars

    parts, _ = drawn(lambda ax: bars(ax, [0, 1, 2], [3, 1, 2], facecolor="#123456"))
    (part,) = [part for part in parts if "#123456" in part]
    assert part.count("M") == 3


def test_what_leaves_the_axes_is_clipped_and_what_does_not_is_left_alone():
    def draw(ax):
        ax.fill([0, 2, 2, 0], [0, 0, 2, 2], color="#123456")
        ax.fill([0.2, 0.4, 0.4], [0.2, 0.2, 0.4], color="#654321")
        ax.set(xlim=(0, 1), ylim=(0, 1))

    parts, _ = drawn(draw)
    assert any("clip-path" in part for part in parts if "#123456" in part)
    assert not any("clip-path" in part for part in parts if "#654321" in part)


def test_the_paper_of_a_figure_is_the_page():
    parts, _ = drawn(lambda ax: ax.plot([0, 1]))
    assert not any("#ffffff" in part for part in parts)


def test_equal_parts_of_two_frames_are_equal_strings():
    def draw(y):
        return lambda ax: (ax.plot([0, 1], [0, y], color="#123456"), ax.set(xlim=(0, 1), ylim=(0, 3), title="same"))

    first, second = (set(drawn(draw(y))[0]) for y in (1, 2))
    assert len(first - second) == len(second - first) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (Path([(0, 0), (10, 0), (10, 10), (0, 0)], closed=True), "M0 0l10 0 0 10z"),
        (Path([(0, 0), (10, -5), (10, -5)]), "M0 0l10-5"),  # a step of nothing is left out
        (Path([(1, 1), (2, 2), (3, 1)], [1, 3, 3]), "M1 1q1 1 2 0"),
        (Path(np.empty((0, 2))), ""),
    ],
)
def test_an_outline_is_written_in_relative_whole_numbers(path, text):
    assert vector_picture._outline(path.vertices, path.codes) == text


def test_a_curve_without_a_finite_point_is_left_out():
    parts, _ = drawn(lambda ax: ax.plot([0, 1], [np.nan, np.nan], color="#123456"))
    assert not any("#123456" in part for part in parts)

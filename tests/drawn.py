"""What a figure shows, read back from its axes."""

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection


def bar_heights(ax: Axes) -> list[float]:
    """Returns the heights of bars drawn by figures.style.bars, from left to right."""
    collections = [item for item in ax.collections if isinstance(item, PolyCollection)]
    corners = [path.vertices for item in collections for path in item.get_paths()]
    return [height for _, height in sorted((corner[0][0], corner[1][1]) for corner in corners)]

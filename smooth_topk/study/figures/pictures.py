"""Pictures from a data set as one figure."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from smooth_topk.study.figures.style import new_axes

GAP = 2  # white pixels between two pictures


def class_pictures(images: Tensor, names: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Draws images uint8 (classes, per class, 3, H, W) as a table of pictures, one named row per class."""
    rows, columns, _, height, width = images.shape
    if ax is None:
        ax = new_axes(figsize=(0.75 * columns + 1.5, 0.75 * rows + 0.1))
    sheet = np.full((rows * (height + GAP), columns * (width + GAP), 3), 255, dtype=np.uint8)
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + GAP), column * (width + GAP)
            sheet[top : top + height, left : left + width] = images[row, column].permute(1, 2, 0).numpy()
    ax.imshow(sheet, interpolation="nearest")
    ax.set_yticks([row * (height + GAP) + height / 2 for row in range(rows)], names)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.grid(False)
    return ax

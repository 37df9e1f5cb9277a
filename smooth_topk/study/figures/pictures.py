"""Pictures from a data set as one figure."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from smooth_topk.study.figures.style import new_axes

GAP = 2  # empty pixels between two pictures
INK = "#7a7a7a"  # of the names: photographs keep their colours on a dark page, so one ink has to do for both grounds


def class_pictures(images: Tensor, names: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Draws images uint8 (classes, per class, 3, H, W) as a table of pictures, one named row per class."""
    rows, columns, _, height, width = images.shape
    if ax is None:
        ax = new_axes(figsize=(0.75 * columns + 1.5, 0.75 * rows + 0.1))
    sheet = np.zeros((rows * (height + GAP), columns * (width + GAP), 4), dtype=np.uint8)  # transparent
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + GAP), column * (width + GAP)
            place = sheet[top : top + height, left : left + width]
            place[..., :3], place[..., 3] = images[row, column].permute(1, 2, 0).numpy(), 255
    ax.imshow(sheet, interpolation="nearest")
    ax.set_yticks([row * (height + GAP) + height / 2 for row in range(rows)], names)
    ax.set_xticks([])
    ax.tick_params(length=0, labelcolor=INK)
    ax.figure.patch.set_alpha(0)
    ax.patch.set_alpha(0)
    ax.spines[:].set_visible(False)
    ax.grid(False)
    return ax

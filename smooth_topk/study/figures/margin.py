"""Figure of chapter 12: the top-k answers of a linear classifier in the plane."""

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from torch import Tensor

from smooth_topk.study.figures.style import DARK, new_axes

PALE = ListedColormap(["#d9e6f2", "#f3e3d6", "#e4efe0", "#eee2ef", "#f0efd8"])
MARKERS = "os^Dv"


def left_out_regions(
    weights: Tensor, inputs: Tensor, labels: Tensor, *, points: int = 201, ax: Axes | None = None
) -> Axes:
    """Draws which of n classes a top-(n-1) answer leaves out at each point of the plane, and the samples.

    Args:
        weights: (3, n), for inputs (x, y, 1).
        inputs: (N, 3).
        labels: (N,); a sample in the region that leaves out its own class is an error.
    """
    ax = new_axes(ax)
    reach = 1.25 * inputs[:, :2].abs().max().item()
    axis = torch.linspace(-reach, reach, points, dtype=inputs.dtype)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    scores = torch.stack([x, y, torch.ones_like(x)], dim=-1) @ weights
    classes = weights.shape[1]
    left_out = scores.argmin(dim=-1)
    ax.pcolormesh(x.numpy(), y.numpy(), left_out.numpy(), cmap=PALE, vmin=-0.5, vmax=PALE.N - 0.5, rasterized=True)
    for label in range(classes):
        own = inputs[labels == label].numpy()
        marker = MARKERS[label % len(MARKERS)]
        ax.plot(own[:, 0], own[:, 1], marker, color=DARK, markerfacecolor="white", label=f"class {label}")
        place = _room_for_text(left_out == label, x, y, inputs[:, :2])
        if place is not None:
            ax.text(*place, f"all but {label}", ha="center", va="center", fontsize=9)
    ax.set(xlabel="first input", ylabel="second input", aspect="equal")
    ax.grid(False)
    return ax


def _room_for_text(region: Tensor, x: Tensor, y: Tensor, samples: Tensor) -> tuple[float, float] | None:
    """Returns the point of a region that is farthest from its border, from the frame and from every sample.

    Args:
        region: (points, points), true inside; x and y are the coordinates of the same grid.
        samples: (N, 2).
    """
    thin = (slice(None, None, 8), slice(None, None, 8))  # some hundred points are enough
    inside, grid = region[thin].flatten(), torch.stack([x[thin], y[thin]], dim=-1).flatten(0, 1)
    if not inside.any():
        return None
    wide = torch.tensor([0.4, 1.0], dtype=grid.dtype)  # a text is wider than high
    obstacles = torch.cat([grid[~inside], samples, 1.1 * grid[grid.abs().amax(1) == grid.abs().max()]])
    distance = torch.cdist(grid[inside] * wide, obstacles * wide).amin(1)
    best = grid[inside][distance.argmax()]
    return best[0].item(), best[1].item()

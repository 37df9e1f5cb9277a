"""Errors of the losses against 50 digits: the error maps of chapters 4 to 6, Table 5, and the worst over a grid.

The truth is `exact.exact_loss`. The error of a loss is relative; that of a gradient is relative to the largest entry of
its row. Both are infinite where a result is not finite.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from smooth_topk import smooth_topk_loss
from smooth_topk.study.measure.contenders import backend_missing
from smooth_topk.study.measure.exact import exact_loss
from smooth_topk.targets import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = ("summation", "divide_and_conquer", "divide_and_conquer_autograd", "pivot")
BOTH_PRECISIONS = (torch.float32, torch.float64)
TAUS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001)
SCALES = (0.01, 1.0, 10.0, 100.0)
SIZES = ((1, 2), (1, 1000), (2, 3), (3, 40), (5, 6), (5, 100), (5, 1000), (10, 12), (20, 22), (20, 1000), (50, 100))
SMALLEST_LOSS = 1e-6  # below, the grid does not count a relative error of the loss


def error_table(
    losses: Mapping[str, Callable[..., Tensor]],
    scores: Tensor,
    labels: Tensor,
    *,
    k: int,
    taus: Iterable[float],
    scales: Sequence[float] = (1.0,),
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    smallest_loss: float = 0.0,
) -> pd.DataFrame:
    """Returns the largest error of each loss function and of its gradient over temperatures and scales of the scores.

    Args:
        losses: name -> function called as f(scores, labels, k=..., tau=...), one loss per sample, differentiable.
        scores: (N, n) in float32, so that every precision computes with the same numbers.
        labels: (N,).
        scales: the scores are multiplied by it.
        dtypes: the precisions that the losses compute in.
        smallest_loss: the error of a loss counts where its true value is larger.

    Returns:
        Columns algorithm, dtype, tau, scale, loss_error (missing where no loss counts), gradient_error.
    """
    rows = []
    for tau, scale in product(taus, scales):
        scaled = scores * scale
        true_losses, true_gradients = exact_loss(scaled, labels, k=k, tau=tau)
        counted = true_losses > smallest_loss
        for (name, loss), dtype in product(losses.items(), dtypes):
            values, gradients = value_and_gradient(loss, scaled.to(dtype), labels, k=k, tau=tau)
            counts = bool(counted.any())
            error = largest_relative_error(values[counted, None], true_losses[counted, None]) if counts else np.nan
            cell = {"algorithm": name, "dtype": str(dtype).removeprefix("torch."), "tau": tau, "scale": scale}
            gradient_error = largest_relative_error(gradients, true_gradients)
            rows.append({**cell, "loss_error": error, "gradient_error": gradient_error})
    return pd.DataFrame(rows)


def random_scores(samples: int, classes: int) -> tuple[Tensor, Tensor]:
    """Returns normal scores (N, n) in float32 and uniform labels (N,), the same at every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, classes, generator=generator), torch.randint(classes, (samples,), generator=generator)


def value_and_gradient(
    loss: Callable[..., Tensor], scores: Tensor, labels: Tensor, *, k: int, tau: float
) -> tuple[Tensor, Tensor]:
    """Returns the losses (N,) of a function under test and the derivatives (N, n) of each by its own scores."""
    scores = scores.clone().requires_grad_()
    losses = loss(scores, labels, k=k, tau=tau)
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    return losses.detach(), gradient


def largest_relative_error(values: Tensor, truth: Tensor) -> float:
    """Returns the largest |value - truth| of a row ÷ its largest |truth|, over all rows; infinite if not finite.

    A truth too small to have all its digits in the dtype of the values counts as the smallest that has them.
    """
    limits = torch.finfo(values.dtype)
    difference = (values.detach().double() - truth).abs().amax(1)
    error = (difference / truth.abs().amax(1).clamp(min=limits.tiny / limits.eps)).max().item()
    return error if error < torch.inf else torch.inf


def measure_stability(
    scores: Tensor,
    labels: Tensor,
    *,
    k: int = 5,
    taus: Sequence[float] = TAUS,
    track: Callable[[Sequence], Iterable] = iter,
) -> pd.DataFrame:
    """Table 5: whether the forward pass overflows, and the largest errors of the loss and of the gradient.

    Args:
        scores: (N, n) real scores.
        track: shows the progress of an iterable, such as tqdm.

    Returns:
        Columns algorithm, dtype, tau, k, samples, stable (no infinity, no NaN), error (of the loss), gradient_error.
    """
    table = error_table(losses_under_test(), scores, labels, k=k, taus=track(taus), dtypes=BOTH_PRECISIONS)
    table = table.rename(columns={"loss_error": "error"})
    table = table.assign(k=k, samples=len(labels), stable=np.isfinite(table["error"]))
    return table[["algorithm", "dtype", "tau", "k", "samples", "stable", "error", "gradient_error"]]


def accuracy_grid(
    *,
    taus: Sequence[float] = TAUS,
    scales: Sequence[float] = SCALES,
    sizes: Sequence[tuple[int, int]] = SIZES,
    track: Callable[[Sequence], Iterable] = iter,
) -> pd.DataFrame:
    """The error of every algorithm over the grid: random scores, ties, and deleted classes (-inf) in each cell.

    Returns:
        Columns algorithm, dtype, k, n, tau, scale, loss_error (where the loss exceeds 1e-6), gradient_error.
    """
    parts = []
    for (k, n), scale in track(list(product(sizes, scales))):
        scores, labels = grid_scores(k, n)
        table = error_table(
            losses_under_test(), scores, labels, k=k, taus=taus, scales=[scale], dtypes=BOTH_PRECISIONS,
            smallest_loss=SMALLEST_LOSS,
        )  # fmt: skip
        parts.append(table.assign(k=k, n=n))
    columns = ["algorithm", "dtype", "k", "n", "tau", "scale", "loss_error", "gradient_error"]
    return pd.concat(parts, ignore_index=True)[columns]


def worst_errors(grid: pd.DataFrame, by: Sequence[str] = ("algorithm", "dtype", "k", "n")) -> pd.DataFrame:
    """Returns the worst cell of a grid for loss and gradient, with the tau and scale where it occurs."""
    rows = []
    for key, part in grid.groupby(list(by), sort=False):
        row = dict(zip(by, key, strict=True))
        for error in ("loss_error", "gradient_error"):
            worst = part.loc[part[error].fillna(-1).idxmax()]
            row |= {error: worst[error], f"{error}_at": f"tau {worst['tau']:g}, scale {worst['scale']:g}"}
            row[f"{error}_at"] += "" if "n" in by else f", k {worst['k']}, n {worst['n']}"
        rows.append(row)
    return pd.DataFrame(rows)


def losses_under_test() -> dict[str, Callable[..., Tensor]]:
    """Name -> loss of each sample; the fused path where it can run on this CPU."""
    losses: dict[str, Callable[..., Tensor]] = {
        name: partial(smooth_topk_loss, algorithm=name, backend="torch", reduction="none") for name in ALGORITHMS
    }
    if not backend_missing("numba", "cpu"):
        losses["fused_numba"] = partial(smooth_topk_loss, reduction="none")
    return losses


def grid_scores(k: int, n: int) -> tuple[Tensor, Tensor]:
    """Four rows in float32: normal scores, scores with many ties, all scores equal, and normal ones without a class."""
    generator = torch.Generator().manual_seed(1000 * n + k)
    scores = torch.randn(4, n, generator=generator)
    labels = torch.randint(n, (4,), generator=generator)
    scores[1] = torch.randint(3, (n,), generator=generator)
    scores[2] = 1.0
    deleted = (labels[3] + 1) % n
    if n - 2 >= k:  # k other classes must be left
        scores[3, deleted] = -torch.inf
    return scores, labels

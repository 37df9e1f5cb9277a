"""Table 5 with errors, and the worst error of every algorithm over a grid of temperatures, scales and sizes.

The truth is 50-digit arithmetic (smooth_topk.study.exact).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product

import pandas as pd
import torch
from torch import Tensor

from smooth_topk import smooth_topk_loss
from smooth_topk.study.benchmarks.contenders import backend_missing
from smooth_topk.study.exact import exact_loss
from smooth_topk.study.tables.errors import largest_relative_error

ALGORITHMS = ("summation", "divide_and_conquer", "divide_and_conquer_autograd", "pivot")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
TAUS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001)
SCALES = (0.01, 1.0, 10.0, 100.0)
SIZES = ((1, 2), (1, 1000), (2, 3), (3, 40), (5, 6), (5, 100), (5, 1000), (10, 12), (20, 22), (20, 1000), (50, 100))
SMALLEST_LOSS = 1e-6  # below, a relative error of the loss does not count


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

    Returns:
        Columns algorithm, dtype, tau, k, samples, stable (no infinity, no NaN), error (of the loss, relative),
        gradient_error (relative to the largest entry of a row); infinite where a result is not finite.
    """
    rows = []
    for tau in track(taus):
        truth = exact_loss(scores, labels, k=k, tau=tau)
        for (name, loss), (dtype_name, dtype) in product(losses_under_test().items(), DTYPES.items()):
            losses, gradient = _value_and_gradient(loss, scores.to(dtype), labels, k, tau)
            errors = [largest_relative_error(losses[:, None], truth[0][:, None])]
            errors.append(largest_relative_error(gradient, truth[1]))
            fixed = {"algorithm": name, "dtype": dtype_name, "tau": tau, "k": k, "samples": len(labels)}
            stable = bool(losses.isfinite().all())
            rows.append({**fixed, "stable": stable, "error": errors[0], "gradient_error": errors[1]})
    return pd.DataFrame(rows)


def accuracy_grid(
    *,
    taus: Sequence[float] = TAUS,
    scales: Sequence[float] = SCALES,
    sizes: Sequence[tuple[int, int]] = SIZES,
    track: Callable[[Sequence], Iterable] = iter,
) -> pd.DataFrame:
    """The error of every algorithm over the grid: random scores, ties, and deleted classes (-inf) in each cell.

    Returns:
        Columns algorithm, dtype, k, n, tau, scale, loss_error (relative, where the loss exceeds 1e-6), gradient_error
        (relative to the largest entry of a row).
    """
    rows = []
    for (k, n), scale in track(list(product(sizes, scales))):
        scores, labels = grid_scores(k, n, scale)
        for tau in taus:
            truth = exact_loss(scores, labels, k=k, tau=tau)
            for (name, loss), (dtype_name, dtype) in product(losses_under_test().items(), DTYPES.items()):
                losses, gradient = _value_and_gradient(loss, scores.to(dtype), labels, k, tau)
                counted = truth[0] > SMALLEST_LOSS
                fixed = {"algorithm": name, "dtype": dtype_name, "k": k, "n": n, "tau": tau, "scale": scale}
                loss_error = _largest(losses[counted, None], truth[0][counted, None])
                rows.append({**fixed, "loss_error": loss_error, "gradient_error": _largest(gradient, truth[1])})
    return pd.DataFrame(rows)


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
    losses = {name: partial(smooth_topk_loss, algorithm=name, reduction="none") for name in ALGORITHMS}
    if not backend_missing("numba", "cpu"):
        losses["fused_numba"] = partial(smooth_topk_loss, reduction="none")
    return losses


def grid_scores(k: int, n: int, scale: float) -> tuple[Tensor, Tensor]:
    """Four rows in float32: normal scores, scores with many ties, all scores equal, and normal ones without a class."""
    generator = torch.Generator().manual_seed(1000 * n + k)
    scores = scale * torch.randn(4, n, generator=generator)
    labels = torch.randint(n, (4,), generator=generator)
    scores[1] = scale * torch.randint(3, (n,), generator=generator)
    scores[2] = scale
    deleted = (labels[3] + 1) % n
    if n - 2 >= k:  # k other classes must be left
        scores[3, deleted] = -torch.inf
    return scores, labels


def _value_and_gradient(loss: Callable, scores: Tensor, labels: Tensor, k: int, tau: float) -> tuple[Tensor, Tensor]:
    scores = scores.clone().requires_grad_()
    losses = loss(scores, labels, k=k, tau=tau)
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    return losses.detach(), gradient


def _largest(values: Tensor, truth: Tensor) -> float:
    return largest_relative_error(values, truth) if len(values) else float("nan")

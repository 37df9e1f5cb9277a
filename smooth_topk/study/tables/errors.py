"""Errors of the algorithms against 50 digits: the tables behind the error maps of chapters 4 to 6."""

from collections.abc import Callable, Iterable
from itertools import product

import pandas as pd
import torch
from torch import Tensor

from smooth_topk.study.exact import exact_loss


def error_table(
    losses: dict[str, Callable],
    *,
    taus: Iterable[float],
    scales: Iterable[float] = (1.0,),
    k: int,
    classes: int = 40,
    samples: int = 4,
    dtype: torch.dtype = torch.float32,
    scores: Tensor | None = None,
    labels: Tensor | None = None,
) -> pd.DataFrame:
    """Returns the largest error of each loss function and of its gradient over temperatures and scales of the scores.

    Args:
        losses: name -> function called as f(scores, labels, k=..., tau=...), one loss a sample, differentiable.
        scales: the scores are multiplied by it.
        scores: (N, n) real scores; without them, `samples` normal random rows of `classes` classes, random labels.

    Returns:
        Columns algorithm, tau, scale, loss_error (relative), gradient_error (relative to the row's largest entry);
        infinite where a result is not finite.
    """
    if scores is None:
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn(samples, classes, generator=generator)
        labels = torch.randint(classes, (samples,), generator=generator)
    rows = []
    for tau, scale in product(taus, scales):
        scaled = (scores * scale).to(dtype)
        truth = exact_loss(scaled, labels, k=k, tau=tau)
        for name, loss in losses.items():
            errors = errors_of(loss, scaled, labels, truth, k=k, tau=tau)
            rows.append({"algorithm": name, "tau": tau, "scale": scale, **errors})
    return pd.DataFrame(rows)


def errors_of(
    loss: Callable, scores: Tensor, labels: Tensor, truth: tuple[Tensor, Tensor], *, k: int, tau: float
) -> dict[str, float]:
    """Returns the largest error over the samples of a loss function's values and of its gradients."""
    scores = scores.clone().requires_grad_()
    losses = loss(scores, labels, k=k, tau=tau)
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    return {
        "loss_error": largest_relative_error(losses[:, None], truth[0][:, None]),
        "gradient_error": largest_relative_error(gradient, truth[1]),
    }


def largest_relative_error(values: Tensor, truth: Tensor) -> float:
    """Returns the largest |value - truth| of a row ÷ its largest |truth|, over all rows; infinite if not finite.

    A truth too small to have all its digits in the dtype of the values counts as the smallest that has them.
    """
    limits = torch.finfo(values.dtype)
    difference = (values.detach().double() - truth).abs().amax(1)
    error = (difference / truth.abs().amax(1).clamp(min=limits.tiny / limits.eps)).max().item()
    return error if error < torch.inf else torch.inf

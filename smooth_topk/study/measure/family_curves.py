"""The losses of the family as functions of the true score: the table behind the live figure of chapter 15."""

import importlib.util

import pandas as pd
import torch
from torch import Tensor

from smooth_topk.study.losses import FAMILY

# Without the switch, a variant of L_{k,τ}, and without the loss that depends on a training set.
SHOWN = tuple(name for name, loss in FAMILY.items() if name != "switched_topk" and not loss.needs_counts)
DRAWS = 200  # of the noised loss: its curve is a mean over them, the same for every score
BELOW, ABOVE = 4.0, 8.0  # how far the true score moves around the k-th largest of the others


def family_curve_table(others: Tensor, *, k: int, tau: float = 1.0, points: int = 121) -> pd.DataFrame:
    """Returns every loss of the family for one sample whose true score moves across the other scores.

    Losses have their defaults beside k and tau. A loss whose package is not installed is left out.

    Args:
        others: scores of the classes that are not the true one, shape (n - 1,), n - 1 at least k.
        k: size of the prediction.
        tau: of L_{k,τ}.

    Returns:
        Columns loss, true_score, value, pull (minus the derivative by the true score) and kth, the k-th largest of the
        other scores, above which the true class belongs to the prediction.

    Example:
        >>> table = family_curve_table(torch.tensor([2.0, 1.0, 0.0]), k=2)
        >>> print(table.loc[table["loss"] == "hard", "pull"].max())  # its slope is 1/k
        0.5
    """
    others = others.detach().double()
    kth = others.topk(k).values[-1].item()
    moving = torch.linspace(kth - BELOW, kth + ABOVE, points, dtype=torch.float64).requires_grad_()
    scores = torch.cat([moving[:, None], others.expand(points, -1)], 1)
    labels = torch.zeros(points, dtype=torch.long)
    parts = []
    for name in (name for name in SHOWN if is_installed(name)):
        chosen = {"k": k, "tau": tau}
        options = {key: value for key, value in chosen.items() if key in FAMILY[name].hyper_parameters}
        given = {"noise": _same_noise(scores)} if name == "noised_topk" else {}
        value = FAMILY[name].bound(**options)(scores, labels, reduction="none", **given)
        (slope,) = torch.autograd.grad(value.sum(), moving, retain_graph=True)
        columns = {"true_score": moving.detach().numpy(), "value": value.detach().numpy(), "pull": -slope.numpy()}
        parts.append(pd.DataFrame({"loss": name, **columns, "kth": kth}))
    return pd.concat(parts, ignore_index=True)


def is_installed(name: str) -> bool:
    """Whether a loss of the family can be computed here: one of them needs a package of its own."""
    package = FAMILY[name].package
    return not package or importlib.util.find_spec(package) is not None


def _same_noise(scores: Tensor) -> Tensor:
    """Draws that are the same for every row, so that a curve is smooth, and the same in every call."""
    noise = torch.randn(scores.shape[1], DRAWS, generator=torch.Generator().manual_seed(0), dtype=scores.dtype)
    return noise.expand(len(scores), -1, -1)

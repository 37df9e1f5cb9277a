"""Share of the loss's derivatives that are not numerically zero, by tau: Figure 2(b)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study.datasets import load_data
from smooth_topk.study.machine import describe_machine
from smooth_topk.study.models import build_model
from smooth_topk.study.records import append_rows
from smooth_topk.study.run_config import RunConfig

FILE = "gradient_sparsity.csv"
KEY = ("dataset", "network", "images", "k", "tau", "seed")


def nonzero_share(scores: Tensor, labels: Tensor, *, k: int, tau: float) -> float:
    """Returns the share of the derivatives ∂loss/∂s that are not zero in the precision of the scores.

    Args:
        scores: (N, n).
        labels: (N,).
        tau: 0 is the hard loss, which has at most two derivatives per sample that are not zero.

    Example:
        >>> nonzero_share(torch.zeros(1, 4), torch.tensor([0]), k=2, tau=1.0)
        1.0
    """
    scores = scores.detach().requires_grad_()
    # The sum, not the mean: dividing by N could turn the smallest derivatives into zeros.
    options = {"k": k, "reduction": "sum"}
    loss = smooth_topk_loss(scores, labels, tau=tau, **options) if tau else hard_topk_loss(scores, labels, **options)
    (derivatives,) = torch.autograd.grad(loss, scores)
    return (derivatives != 0).double().mean().item()


@torch.no_grad()
def initial_scores(config: RunConfig, images: int, data_folder: str | Path | None = None) -> tuple[Tensor, Tensor]:
    """Returns scores (N, n) and labels (N,) of training images, not augmented, under the network's initial weights.

    Batch normalisation uses the statistics of the batch, as in the first step of a training.
    """
    data = load_data(replace(config, augment=False), data_folder)
    available = data.batches_per_epoch * data.batch_size
    if not 1 <= images <= available:
        raise ValueError(f"images must be between 1 and the {available} of one epoch, got images={images}.")
    torch.manual_seed(config.seed)
    network = build_model(config.model, data.num_classes).train()
    batches = islice(data.train_batches(0), math.ceil(images / data.batch_size))
    scores, labels = zip(*((network(batch), labels) for batch, labels in batches), strict=True)
    return torch.cat(scores)[:images], torch.cat(labels)[:images]


def measure_sparsity(
    config: RunConfig,
    taus: Sequence[float],
    *,
    images: int,
    results_folder: str | Path,
    data_folder: str | Path | None = None,
) -> pd.DataFrame:
    """Measures the shares that are not recorded yet, records them, and returns all of them.

    Args:
        config: decides the data set, the network, k, the batch size and the seed.
        taus: temperatures; 0 is the hard loss.
        images: training images that the shares are averaged over.
        results_folder: where gradient_sparsity.csv is.

    Returns:
        One row a tau: dataset, network, images, k, tau, seed, share, and where and when it was measured.
    """
    known = _recorded(results_folder)
    setting = {"dataset": config.dataset, "network": config.model, "images": images, "k": config.k, "seed": config.seed}
    missing = [tau for tau in taus if float(tau) not in set(_matching(known, setting)["tau"])]
    if missing:
        scores, labels = initial_scores(config, images, data_folder)
        place = {**describe_machine(scores.device), "date": datetime.now(UTC).isoformat(timespec="seconds")}
        rows = [
            {**setting, "tau": float(tau), "share": nonzero_share(scores, labels, k=config.k, tau=tau), **place}
            for tau in missing
        ]
        append_rows(Path(results_folder) / FILE, rows, key=KEY)
    measured = _matching(_recorded(results_folder), setting)
    return measured[measured["tau"].isin([float(tau) for tau in taus])].sort_values("tau", ignore_index=True)


def read_sparsity(folder: str | Path) -> pd.DataFrame:
    """Returns the shares of gradient_sparsity.csv, of each network those over the most images; empty without a file."""
    table = _recorded(folder)
    return table[table["images"] == table.groupby("network")["images"].transform("max")]


def _recorded(folder: str | Path) -> pd.DataFrame:
    path = Path(folder) / FILE
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*KEY, "share"])


def _matching(table: pd.DataFrame, setting: dict) -> pd.DataFrame:
    same = [table[name] == value for name, value in setting.items()]
    return table[pd.concat(same, axis=1).all(axis=1)] if len(table) else table

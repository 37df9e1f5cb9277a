"""The share of derivatives that are not zero under the initial weights of a network, by tau: Figure 2(b)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure.gradients import nonzero_shares
from smooth_topk.study.records.gradient_sparsity import FILE, KEY, read_all_sparsity
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.published import add_rows
from smooth_topk.study.training.models import build_model


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
    folder: str | Path,
    data_folder: str | Path | None = None,
) -> pd.DataFrame:
    """Measures the shares that are not recorded yet, records them, and returns all of them.

    Args:
        config: decides the data set, the network, k, the batch size and the seed.
        taus: temperatures; 0 is the hard loss.
        images: training images that the shares are averaged over.
        folder: where gradient_sparsity.csv is.

    Returns:
        One row per tau: dataset, network, images, k, tau, seed, share, and where and when it was measured.
    """
    known = read_all_sparsity(folder)
    setting = {"dataset": config.dataset, "network": config.model, "images": images, "k": config.k, "seed": config.seed}
    missing = [tau for tau in taus if float(tau) not in set(_matching(known, setting)["tau"])]
    if missing:
        scores, labels = initial_scores(config, images, data_folder)
        place = {**describe_machine(scores.device), "date": datetime.now(UTC).isoformat(timespec="seconds")}
        shares = nonzero_shares(scores, labels, k=config.k, taus=missing).to_dict("records")
        add_rows(Path(folder) / FILE, [{**setting, **row, **place} for row in shares], key=KEY)
    measured = _matching(read_all_sparsity(folder), setting)
    return measured[measured["tau"].isin([float(tau) for tau in taus])].sort_values("tau", ignore_index=True)


def _matching(table: pd.DataFrame, setting: dict) -> pd.DataFrame:
    same = [table[name] == value for name, value in setting.items()]
    return table[pd.concat(same, axis=1).all(axis=1)] if len(table) else table

"""What a loss tells the scores during a training: the share of derivatives that are not zero, their norm, the rank.

    python -m smooth_topk.study.measure.training_gradients

trains a small network on CIFAR-100 images with cross-entropy and with the smooth loss at three temperatures, and
records book/results/training_gradients.csv. The runs are those of chapters 8 and 9; here they are watched.
"""

import argparse
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.data.sources import Request
from smooth_topk.study.experiments.paper_runs import LAPTOP, LAPTOP_LOSSES
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure.gradients import effective_number
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import published_folder
from smooth_topk.study.records.published import add_rows
from smooth_topk.study.records.training_gradients import FILE, KEY, read_training_gradients
from smooth_topk.study.training.fit import make_fabric
from smooth_topk.study.training.loop import Run
from smooth_topk.study.training.schedules import loss_at

TAUS = (1e-3, 0.1, 1.0)
IMAGES = 1_000  # of the training set, the same after every epoch


def watched_runs() -> tuple[RunConfig, ...]:
    """Cross-entropy and three temperatures on images, with the rates and decays of chapters 8 and 9."""
    cross_entropy, smooth = LAPTOP_LOSSES
    return (replace(LAPTOP, **cross_entropy), *(replace(LAPTOP, **smooth | {"tau": tau}) for tau in TAUS))


def watch(config: RunConfig, *, images: int = IMAGES, data_folder: str | Path | None = None) -> list[dict]:
    """Trains one run and returns a row for its initial weights (epoch 0) and for the end of every epoch.

    Returns:
        Rows with run_id, epoch, loss (its name), seed, images, share (of derivatives that are not zero), effective
        (their effective number, the mean), norm (of the derivatives of one sample, the mean), rank (of the true class,
        the median), machine and date.
    """
    data, fabric = load_data(config, data_folder), make_fabric(config)
    request = Request(data.train.rows[:images])
    inputs = data.source.normalised(next(data.source.read("train", [request], fabric.device)))
    labels, rows = data.train.labels[:images].to(fabric.device), []
    with TemporaryDirectory() as folder:
        run = Run(config, data, fabric, Path(folder))

        def record(epoch: int) -> None:
            place = {**describe_machine(fabric.device), "date": datetime.now(UTC).isoformat(timespec="seconds")}
            name = {"run_id": config.run_id, "epoch": epoch, "loss": config.loss_name, "seed": config.seed}
            told = _told(run, config, inputs, labels, max(epoch - 1, 0))
            rows.append({**name, "images": len(labels), **told, **place})

        record(0)
        run.train(show=False, on_epoch=lambda row: record(row["epoch"] + 1))
    return rows


def _told(run: Run, config: RunConfig, inputs: Tensor, labels: Tensor, epoch: int) -> dict[str, float]:
    was_training = run.network.training
    run.network.eval()
    with torch.no_grad():
        scores = torch.cat([run.network(part) for part in inputs.split(250)])
    run.network.train(was_training)
    leaf = scores.clone().requires_grad_()
    loss_at(config, epoch)(leaf, labels, reduction="sum").backward()
    rank = 1 + (scores > scores.gather(1, labels[:, None])).sum(1)
    gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return {
        "share": (gradient != 0).double().mean().item(),
        "effective": effective_number(gradient).mean().item(),
        "norm": gradient.double().norm(dim=1).mean().item(),
        "rank": rank.double().median().item(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Records the runs that are not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=published_folder(), help="the folder of training_gradients.csv")
    folder = parser.parse_args(arguments).output
    for config in watched_runs():
        if config.run_id not in set(read_training_gradients(folder)["run_id"]):
            print(f"training {config.describe()}", flush=True)
            add_rows(folder / FILE, watch(config), key=KEY)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What a study would cost, by experiment: a profile and its chapters in, a table as text out. Needs no data."""

from collections.abc import Sequence

import pandas as pd
import torch

from smooth_topk.study.book.plan import missing_data
from smooth_topk.study.experiments.expected_cost import ASSUMPTIONS, expected_seconds, makespan
from smooth_topk.study.experiments.registry import EXPERIMENTS
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure.disk_space import checkpoint_bytes
from smooth_topk.study.records.paths import data_folder_or_default, results_folder
from smooth_topk.study.records.runs import read_runs
from smooth_topk.study.training.checkpoints import KEPT
from smooth_topk.study.training.models import build_model

CLASSES = {"imagenet": 1000}  # the other data sets have 100


def describe_experiments(profile: str, chapters: Sequence[str], devices: int) -> str:
    """Returns a table of the experiments that these chapters show, and below it the assumption and the missing data.

    Args:
        profile: decides the runs, and whether the time is that of a GPU ("paper") or of a CPU core.
        chapters: names of chapters; experiments of other chapters are left out.
        devices: the number of GPUs, or cores, beside one.
    """
    device, unit = ("gpu", "GPU") if profile == "paper" else ("cpu", "core")
    table = cost_by_experiment(profile, chapters, devices, device)
    if table.empty:
        return "These chapters train nothing."
    shown = table.assign(
        hours=table["hours"].map("{:,.1f}".format),
        days=table["days"].map("{:,.2f}".format),
        days_together=table["days_together"].map("{:,.2f}".format),
        disk=table["disk"].map("{:,.0f} MB".format),
    ).rename(columns={
        "hours": f"{unit}-hours left", "days": f"days on 1 {unit}", "days_together": f"days on {devices} {unit}s",
    })  # fmt: skip
    absent = missing_data(table["data"][:-1])
    needs = "; ".join(f"{name} is not in {data_folder_or_default()}, run `{how}`" for name, how in absent.items())
    return (
        f"{shown.to_string()}\n\nA run that several experiments share counts where it stands first. The time assumes "
        f"{ASSUMPTIONS[device]}. Disk is what {devices} unfinished runs keep beside the data.\n"
        f"Missing data: {needs or 'none'}."
    )


def cost_by_experiment(profile: str, chapters: Sequence[str], devices: int, device: str) -> pd.DataFrame:
    """Returns one row per experiment and one for all.

    Returns:
        runs, recorded, hours (of what is left), days and days_together (of what is left, on one device and on so many),
        disk (MB of the checkpoints of as many unfinished runs), data.
    """
    known = set(read_runs(results_folder(profile))["run_id"])
    rows: dict[str, dict] = {}
    everything: dict[str, RunConfig] = {}
    for name, experiment in EXPERIMENTS.items():
        runs = {run.run_id: run for run in experiment.runs(profile) if run.run_id not in everything}
        if experiment.chapter in chapters and runs:
            rows[name] = _row(runs, known, devices, device)
            everything |= runs
    if rows:
        rows["all"] = _row(everything, known, devices, device) | {"data": ""}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("experiment")


def _row(runs: dict[str, RunConfig], known: set[str], devices: int, device: str) -> dict:
    left = [run for run_id, run in runs.items() if run_id not in known]
    seconds = [expected_seconds(run, device) for run in left]
    rooms = sorted((_room(run) for run in left), reverse=True)
    return {
        "runs": len(runs),
        "recorded": len(runs) - len(left),
        "hours": sum(seconds) / 3_600,
        "days": sum(seconds) / 86_400,
        "days_together": makespan(seconds, devices) / 86_400,
        "disk": sum(rooms[:devices]) / 1e6,
        "data": next(iter(runs.values())).dataset,
    }


def _room(run: RunConfig) -> int:
    """Returns the bytes of the checkpoints that an unfinished run keeps, with the one that is being written."""
    with torch.device("meta"):
        network = build_model(run.model, CLASSES.get(run.dataset, 100))
    return (KEPT + 1) * checkpoint_bytes(network)

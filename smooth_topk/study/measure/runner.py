"""What the runner adds to the work of a run, per step and per run, as ratios, which hardly depend on the machine.

Per step: the CPU time of the training loop with its input pipeline, sums and checks is divided by that of forward pass,
backward pass and optimiser on one batch that stays in memory; the two are measured in turns. Per run: the time of a
grid of short runs, the start of its workers included, is divided by the time that the runs themselves recorded.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pandas as pd
import torch
from tqdm.auto import tqdm

from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid import run_grid
from smooth_topk.study.records.machine import available_cores
from smooth_topk.study.training.fit import make_fabric
from smooth_topk.study.training.loop import Run
from smooth_topk.study.training.schedules import loss_at

STEPS = RunConfig(train_size=2_000, epochs=1, batch_size=50)  # 40 steps of the small net, flips and crops
SHORT = RunConfig(train_size=1_000, epochs=2, batch_size=50)
FEW, MANY = 2, 6  # runs of the grids, whose difference tells the cost of a run from that of a start


def measure_runner(rounds: int = 9, grid_rounds: int = 3, track: Callable[[Sequence], Iterable] = iter) -> pd.DataFrame:
    """Measures the overhead per step and per run.

    Args:
        rounds: epochs of each kind, in turns.
        grid_rounds: grids of each size, in turns.
        track: shows the progress of an iterable, such as tqdm.

    Returns:
        One row each for "step", "grid, 1 worker" and "grid, all cores": ratio, seconds with and without the runner,
        samples; for the grid on one worker also seconds_per_run and seconds_at_start.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        steps = _epoch_pairs(Path(folder), track(range(rounds)))
        grids = [_grid_triple(Path(folder) / str(number)) for number in track(range(grid_rounds))]
    few, many, wide = (pd.DataFrame(part).median() for part in zip(*grids, strict=True))
    per_run = (many["over"] - few["over"]) / (MANY - FEW)
    alone = {"seconds_per_run": per_run, "seconds_at_start": few["over"] - FEW * per_run}
    rows = [
        {"overhead": "step", **_ratio([a for a, _ in steps], [b for _, b in steps])},
        {"overhead": "grid, 1 worker", **_ratio(*_columns(grids, 1)), **alone},
        {"overhead": "grid, all cores", **_ratio(*_columns(grids, 2)), "workers": wide["workers"]},
    ]
    return pd.DataFrame(rows)


def _epoch_pairs(folder: Path, rounds: Iterable[int]) -> list[tuple[float, float]]:
    """Returns pairs of CPU seconds per step: of one epoch of a run, and of as many bare steps."""
    fabric = make_fabric(STEPS)
    run = Run(STEPS, load_data(STEPS), fabric, folder / "run")
    images, labels = next(iter(run.data.train_batches(0)))
    loss = loss_at(STEPS, 0)

    def bare() -> None:
        run.network.train()
        for _ in range(run.batches):
            loss(run.network(images), labels).backward()
            run.optimizer.step()
            run.optimizer.zero_grad()

    def whole() -> None:
        run.progress.batch = 0
        run.train_epoch(tqdm(disable=True))

    whole()  # caches and memory are warm
    bare()
    return [(_cpu_seconds(whole) / run.batches, _cpu_seconds(bare) / run.batches) for _ in rounds]


def _grid_triple(folder: Path) -> list[dict]:
    """Runs a small and a larger grid on one worker, and the larger one on all cores."""
    cores = available_cores()
    return [_grid(folder / name, runs, workers) for name, runs, workers in
            (("few", FEW, 1), ("many", MANY, 1), ("wide", MANY, cores))]  # fmt: skip


def _grid(folder: Path, runs: int, workers: int) -> dict:
    configs = [replace(SHORT, seed=seed) for seed in range(runs)]
    start = time.monotonic()
    folders = {"records_folder": folder / "records", "checkpoints_folder": folder / "checkpoints"}
    records = run_grid(configs, **folders, workers=workers, executor="local", progress=False)
    seconds = workers * (time.monotonic() - start)
    own = records["seconds"].sum()
    return {"with": seconds, "without": own, "over": seconds - own, "workers": workers}


def _columns(grids: list[list[dict]], place: int) -> tuple[list[float], list[float]]:
    return [grid[place]["with"] for grid in grids], [grid[place]["without"] for grid in grids]


def _ratio(seconds: list[float], bare: list[float]) -> dict:
    """The median of the ratios of each pair, which a machine that slows down hardly moves."""
    ratios = sorted(a / b for a, b in zip(seconds, bare, strict=True))
    return {
        "ratio": median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
        "seconds_with": median(seconds),
        "seconds_without": median(bare),
        "samples": len(ratios),
    }


def _cpu_seconds(call: Callable[[], None]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start

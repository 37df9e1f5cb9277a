"""How fast a device trains: times training steps of the runs of a profile, and keeps them in its folder.

Steps are timed on random images that are in memory: reading and decoding image files is not part of them.
"""

import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from statistics import median
from typing import NamedTuple

import pandas as pd
import torch

from smooth_topk.study.experiments.expected_cost import (
    ASSUMPTIONS,
    CPU_RATES,
    MULTIPLY_ADDS,
    TRAINING_FACTOR,
    StepKind,
    StepTime,
    step_kind,
)
from smooth_topk.study.experiments.run_config import FEATURES, RunConfig
from smooth_topk.study.records.files import make_folder, write_whole
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import runs_folder
from smooth_topk.study.training.fit import make_fabric
from smooth_topk.study.training.models import build_model
from smooth_topk.study.training.schedules import loss_at

FILE = "step_times-{device}.csv"
CLASSES = {"imagenet": 1000, "constructed_1000": 1000, "constructed_10000": 10_000}  # the other data sets have 100
ROUNDS = 5  # timed steps, after one that does not count
CPU_STEP_SECONDS = 1.0  # on a CPU a batch is made smaller until its step is expected to take no longer


class Speed(NamedTuple):
    """Whose steps the times are: a device that was measured, or the assumption; "gpu" or "cpu"."""

    device: str
    kind: str
    times: dict[StepKind, StepTime]


def read_speed(profile: str) -> Speed:
    """Returns the newest measurement in the folder of the profile, else the assumption for a GPU or a CPU core."""
    files = sorted(runs_folder(profile).glob(FILE.format(device="*")), key=lambda path: path.stat().st_mtime)
    if not files:
        kind = "gpu" if profile == "paper" else "cpu"
        return Speed(f"assumption ({ASSUMPTIONS[kind]}); --calibrate measures this device", kind, {})
    table = pd.read_csv(files[-1])
    kinds = [StepKind(*values) for values in table[list(StepKind._fields)].itertuples(index=False)]
    times = map(StepTime._make, zip(table["step_seconds"], table["evaluated_image_seconds"], strict=True))
    last = table.iloc[-1]
    name = last["cpu"] if last["device"] == "cpu" else last["device"]
    measured = f"measurement on {name} ({last['date']}; images in memory), {len(table)} kinds of steps"
    return Speed(measured, "cpu" if last["device"] == "cpu" else "gpu", dict(zip(kinds, times, strict=True)))


def save_step_times(profile: str, runs: Iterable[RunConfig]) -> str:
    """Times a step of every kind that the runs make, on a GPU or one CPU thread, and keeps the times.

    Returns:
        The times as text, and the file where they are.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    origin = describe_machine(device) | {"date": f"{datetime.now().astimezone():%Y-%m-%d}"}
    kinds = {step_kind(run): run for run in runs}
    rows, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [{**kind._asdict(), **step_times(run), **origin} for kind, run in kinds.items()]
    finally:
        torch.set_num_threads(threads)
    name = re.sub(r"[^a-z0-9]+", "-", (origin["cpu"] if device == "cpu" else origin["device"]).lower()).strip("-")
    path = make_folder(runs_folder(profile)) / FILE.format(device=name)
    write_whole(path, pd.DataFrame(rows).to_csv(index=False, float_format="%.6g").encode())
    lines = [f"{row['model']}, batches of {row['batch_size']}: {1000 * row['step_seconds']:.1f} ms per step, "
             f"{row['images_per_second']:,.0f} images per second{row['memory']}" for row in rows]  # fmt: skip
    return "\n".join([*lines, f"Kept in {path}."])


def step_times(config: RunConfig) -> dict[str, float | str]:
    """Times training steps of a run on random images that are in memory, and forward passes without gradients."""
    fabric = make_fabric(config)
    batch = config.batch_size
    per_image = TRAINING_FACTOR * MULTIPLY_ADDS[config.model] / CPU_RATES[config.model]
    while fabric.device.type == "cpu" and batch > 2 and batch * per_image > CPU_STEP_SECONDS:
        batch //= 2
    classes = CLASSES.get(config.dataset, 100)
    network = network_of(config.model, config.dataset)
    network, optimizer = fabric.setup(network, torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9))
    side = 224 if config.dataset == "imagenet" else 32
    shape = (FEATURES[config.dataset],) if config.dataset in FEATURES else (3, side, side)
    images = torch.randn(batch, *shape, device=fabric.device)
    labels = torch.arange(batch, device=fabric.device) % classes
    loss = loss_at(config, 0)

    def step() -> None:
        fabric.backward(loss(network(images), labels))
        optimizer.step()
        optimizer.zero_grad()

    def judge() -> None:
        with torch.no_grad():
            network(images)

    seconds = _seconds(step, fabric.device) * config.batch_size / batch
    memory = f", {torch.cuda.max_memory_allocated(fabric.device) / 1e9:.1f} GB" if fabric.device.type == "cuda" else ""
    evaluated = _seconds(judge, fabric.device) / batch
    return {"step_seconds": seconds, "evaluated_image_seconds": evaluated,
            "images_per_second": config.batch_size / seconds, "memory": memory}  # fmt: skip


def network_of(model: str, dataset: str) -> torch.nn.Module:
    """Returns the network of a run, with all classes of its data set."""
    return build_model(model, CLASSES.get(dataset, 100), FEATURES.get(dataset, 128))


def _seconds(call: Callable[[], None], device: torch.device) -> float:
    """Returns the median time of a call; on a CPU the processor's time, which other programs hardly change."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    samples = []
    for _ in range(1 + ROUNDS):
        start = clock()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        samples.append(clock() - start)
    return median(samples[1:])

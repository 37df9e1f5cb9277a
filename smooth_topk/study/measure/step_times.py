"""How fast this device trains: configurations in, a table of step times and memory out, kept in a file per device.

The training loop itself is timed, with its augmentation, loss and optimiser, on images that are all alike, because the
time does not depend on what they show. Reading and decoding image files is not part of it.
"""

import contextlib
import io
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pandas as pd
import torch
from tqdm.auto import tqdm

from smooth_topk.study.data.datasets import Data
from smooth_topk.study.data.features import FeatureSource
from smooth_topk.study.data.sources import ArraySource
from smooth_topk.study.experiments.expected_cost import (
    CPU_RATES,
    MULTIPLY_ADDS,
    TRAINING_FACTOR,
    StepKind,
    StepTime,
    step_kind,
)
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure.disk_space import CLASSES, IMAGE_SHAPES, image_bytes, training_bytes
from smooth_topk.study.records.files import make_folder, write_whole
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.training.evaluation import evaluate
from smooth_topk.study.training.fit import make_fabric
from smooth_topk.study.training.loop import OutOfMemoryError, Run

FILES = "step_times-{device}.csv"
STEPS = 4  # per round; the first round warms up
CPU_STEP_SECONDS = 1.0  # on a CPU a batch is made smaller until its step is expected to take no longer
MEASURED, COMPUTED = "measured", "computed"  # where a number of bytes comes from


class DeviceSpeed(NamedTuple):
    """What the file of a device says: its name, whether it is a GPU, the times and the memory by kind of step."""

    device: str
    on_gpu: bool
    date: str
    times: dict[StepKind, StepTime]
    memory: dict[StepKind, tuple[float, str]]


def measure_step_times(
    configs: Iterable[RunConfig], rounds: int = 3, track: Callable[[Sequence], Iterable] = iter
) -> tuple[pd.DataFrame, list[str]]:
    """Times a training step of every kind that the runs make, on the GPU if there is one, else on one CPU thread.

    Args:
        configs: the runs of a study; of each kind of step, one run stands for the others.
        rounds: of four steps; the median of the rounds counts.
        track: shows the progress of an iterable, such as tqdm.

    Returns:
        One row per kind: step_seconds, evaluated_image_seconds, images_per_second, memory_bytes and where these come
        from, timed_batch (smaller than batch_size on a CPU, and scaled to it); and a sentence per kind that did not fit
        into the memory of the device.
    """
    kinds = {step_kind(config): config for config in configs}
    origin = describe_machine(_device()) | {"date": f"{datetime.now().astimezone():%Y-%m-%d %H:%M}"}
    rows, failures = [], []
    with _one_thread(), tempfile.TemporaryDirectory() as folder:
        for number, (kind, config) in enumerate(track(list(kinds.items()))):
            try:
                rows.append({**kind._asdict(), **_measured(config, rounds, Path(folder) / str(number)), **origin})
            except OutOfMemoryError:
                failures.append(
                    f"A step of {kind.model} with {kind.batch_size} images does not fit into the memory of "
                    f"{origin['device']}: its time is left to the assumption."
                )
    return pd.DataFrame(rows), failures


def save_step_times(table: pd.DataFrame, folder: Path) -> Path:
    """Writes the table to the file of its device in the folder; other kinds of steps measured before stay in it."""
    path = make_folder(folder) / FILES.format(device=_slug(table.iloc[0]))
    if path.exists():
        table = pd.concat([pd.read_csv(path), table]).drop_duplicates(list(StepKind._fields), keep="last")
    text = io.StringIO()
    table.to_csv(text, index=False, float_format="%.6g")
    write_whole(path, text.getvalue().encode())
    return path


def read_step_times(folder: Path) -> DeviceSpeed | None:
    """Returns what was measured on this device, else on the device whose file is newest; None where there is no file.

    A login node without a GPU thus shows what was measured on a node that has one.

    Raises:
        ValueError: the file cannot be read.
    """
    own = folder / FILES.format(device=_slug(describe_machine(_device())))
    files = sorted(folder.glob(FILES.format(device="*")), key=lambda path: (path == own, path.stat().st_mtime))
    if not files:
        return None
    try:
        table = pd.read_csv(files[-1])
        first = table.iloc[-1]
        kinds = [StepKind(*values) for values in table[list(StepKind._fields)].itertuples(index=False)]
        times = map(StepTime._make, zip(table["step_seconds"], table["evaluated_image_seconds"], strict=True))
        memory = zip(table["memory_bytes"], table["memory_from"], strict=True)
        return DeviceSpeed(
            device=first["cpu"] if first["device"] == "cpu" else first["device"],
            on_gpu=first["device"] != "cpu",
            date=first["date"],
            times=dict(zip(kinds, times, strict=True)),
            memory=dict(zip(kinds, memory, strict=True)),
        )
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise ValueError(f"{files[-1]} cannot be read ({error}): delete it, and measure again.") from None


def _measured(config: RunConfig, rounds: int, folder: Path) -> dict:
    fabric = make_fabric(config)
    batch = config.batch_size if fabric.device.type == "cuda" else _cpu_batch(config)
    source = _all_alike(config.dataset, batch)
    data = Data(RunConfig.from_dict(config.to_dict() | {"batch_size": batch, "train_size": None}), source)
    run = Run(data.config, data, fabric, folder)
    if fabric.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(fabric.device)

    def train() -> None:
        run.progress.batch = 0
        run.train_epoch(tqdm(disable=True))

    def judge() -> None:
        evaluate(run.network, data.validation_batches(device=fabric.device), fabric=fabric)

    step = _seconds(train, rounds, fabric.device) / data.batches_per_epoch * (config.batch_size / batch)
    memory, origin = training_bytes(config.model, config.dataset, config.batch_size), COMPUTED
    if fabric.device.type == "cuda":
        stand_ins = sum(images.nbytes for images in source.images.values())
        memory, origin = torch.cuda.max_memory_allocated(fabric.device) - stand_ins, MEASURED
    if config.dataset in ("cifar100", "synthetic"):
        memory += image_bytes(config.dataset)
    return {
        "step_seconds": step,
        "evaluated_image_seconds": _seconds(judge, rounds, fabric.device) / len(data.validation),
        "images_per_second": config.batch_size / step,
        "timed_batch": batch,
        "memory_bytes": memory,
        "memory_from": origin,
    }


def _seconds(call: Callable[[], None], rounds: int, device: torch.device) -> float:
    """Returns the median time of a call after one that does not count.

    On a CPU it is the time of the processor, which on one thread is that of a free core, however busy the machine is.
    """
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    samples = []
    for _ in range(1 + rounds):
        start = clock()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        samples.append(clock() - start)
    return median(samples[1:])


def _cpu_batch(config: RunConfig) -> int:
    """Returns the largest batch, halved from that of the run, whose step takes a CPU thread about a second."""
    per_image = TRAINING_FACTOR * MULTIPLY_ADDS[config.model] / CPU_RATES[config.model]
    batch = config.batch_size
    while batch > 2 and batch * per_image > CPU_STEP_SECONDS:
        batch //= 2
    return batch


def _all_alike(dataset: str, batch: int) -> ArraySource:
    """Returns a source of equal images, enough for four steps; they take the memory of one until a GPU copies them."""
    classes, shape = CLASSES.get(dataset, 100), IMAGE_SHAPES[dataset]
    labels = torch.arange((STEPS + 1) * batch) % 2  # a fifth is held out; two classes occur, of all that there are
    image = torch.randint(127, (1, *shape), dtype=torch.int8 if len(shape) == 1 else torch.uint8)
    kind = FeatureSource if len(shape) == 1 else ArraySource
    return kind(
        images={"train": image.expand(len(labels), *shape), "test": image},
        labels={"train": labels, "test": labels[:1]},
        class_names=tuple(map(str, range(classes))),
        class_to_superclass=tuple(range(classes)),
        held_out_per_class=batch // 2,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        evaluation_batch=min(batch, 250),
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """On a CPU the study gives every run one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _slug(row: dict | pd.Series) -> str:
    name = row["cpu"] if row["device"] == "cpu" else row["device"]
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()

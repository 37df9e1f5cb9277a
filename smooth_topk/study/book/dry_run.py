"""What trainings would cost, by experiment: runs in, a table as text out. Needs no data.

The time comes from `--calibrate`, which times steps on a device and leaves a file in the folder of the profile, or from
the assumption of `experiments/expected_cost.py`.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from smooth_topk.study.book.plain_text import bytes_in_words, seconds_in_words
from smooth_topk.study.book.plan import missing_data
from smooth_topk.study.experiments.expected_cost import ASSUMPTIONS, expected_seconds, makespan, step_kind
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure.disk_space import checkpoint_bytes, image_bytes, network_without_memory, training_bytes
from smooth_topk.study.measure.step_times import (
    COMPUTED,
    DeviceSpeed,
    measure_step_times,
    read_step_times,
    save_step_times,
)
from smooth_topk.study.records.paths import data_folder_or_default, records_folder, runs_folder
from smooth_topk.study.records.runs import recorded_ids
from smooth_topk.study.training.checkpoints import KEPT


def calibrate(profile: str, experiments: Mapping[str, Sequence[RunConfig]]) -> str:
    """Times the steps of these runs on this device, keeps them in the folder of the profile, and says what it found."""
    table, failures = measure_step_times([run for runs in experiments.values() for run in runs])
    if table.empty:
        return "\n".join(failures) or "These chapters train nothing."
    path = save_step_times(table, runs_folder(profile))
    lines = [
        f"{row.model}, batches of {row.batch_size}: {seconds_in_words(row.step_seconds)} per step, "
        f"{row.images_per_second:,.1f} images per second, {bytes_in_words(row.memory_bytes)} ({row.memory_from})"
        + (f"; timed with {row.timed_batch} images" if row.timed_batch != row.batch_size else "")
        for row in table.itertuples()
    ]
    return "\n".join([*lines, *failures, f"Kept in {path}; a dry run uses it."])


def describe_experiments(profile: str, experiments: Mapping[str, Sequence[RunConfig]], devices: int) -> str:
    """Returns a table of the experiments, and below it where the time comes from and which data is missing.

    Args:
        profile: where recorded runs and measured steps are looked for. Without measured steps the time is that of a
            GPU for "paper", and of a CPU core otherwise.
        experiments: the runs by experiment.
        devices: the number of GPUs, or cores, beside one.
    """
    speed = read_step_times(runs_folder(profile))
    on_gpu = speed.on_gpu if speed else profile == "paper"
    table = cost_by_experiment(profile, experiments, devices, "gpu" if on_gpu else "cpu", speed)
    if table.empty:
        return "These chapters train nothing."
    unit = "GPU" if on_gpu else "core"
    shown = pd.DataFrame({
        "runs": table["runs"],
        "recorded": table["recorded"],
        f"{unit}-hours left": table["seconds"].map(lambda seconds: f"{seconds / 3600:,.1f}"),
        f"on 1 {unit}": table["seconds"].map(seconds_in_words),
        f"on {devices} {unit}s": table["seconds_together"].map(seconds_in_words),
        "memory per run": table["memory"].map(bytes_in_words),
        "disk": table["disk"].map(bytes_in_words),
        "data": table["data"],
    })  # fmt: skip
    absent = missing_data(table["data"][:-1])
    needs = "; ".join(f"{name} is not in {data_folder_or_default()}, run `{how}`" for name, how in absent.items())
    return "\n".join([
        shown.to_string(),
        "",
        "A run that several experiments share counts where it stands first.",
        _origin_of_times(table, speed, on_gpu),
        _origin_of_memory(speed),
        f"Disk is what {devices} unfinished runs keep beside the data.",
        f"Missing data: {needs or 'none'}.",
    ])  # fmt: skip


def cost_by_experiment(
    profile: str,
    experiments: Mapping[str, Sequence[RunConfig]],
    devices: int,
    device: str,
    speed: DeviceSpeed | None = None,
) -> pd.DataFrame:
    """Returns one row per experiment and one for all.

    Returns:
        runs, recorded, timed (runs left whose steps were measured), seconds and seconds_together (of what is left, on
        one device and on so many), memory (bytes of the largest run), disk (bytes of the checkpoints of as many
        unfinished runs), data.
    """
    known = recorded_ids(records_folder(profile))
    rows = {name: _row(runs, known, devices, device, speed) for name, runs in experiments.items() if runs}
    if rows:
        everything = [run for runs in experiments.values() for run in runs]
        rows["all"] = _row(everything, known, devices, device, speed) | {"data": ""}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("experiment")


def _row(
    runs: Sequence[RunConfig], known: set[str], devices: int, device: str, speed: DeviceSpeed | None
) -> dict[str, object]:
    left = [run for run in runs if run.run_id not in known]
    times = speed.times if speed else {}
    seconds = [expected_seconds(run, device, times) for run in left]
    rooms = sorted((_room(run) for run in left), reverse=True)
    kinds = {step_kind(run): run for run in runs}
    return {
        "runs": len(runs),
        "recorded": len(runs) - len(left),
        "timed": sum(step_kind(run) in times for run in left),
        "seconds": sum(seconds),
        "seconds_together": makespan(seconds, devices),
        "memory": max(_memory(run, speed) for run in kinds.values()),
        "disk": sum(rooms[:devices]),
        "data": runs[0].dataset,
    }


def _origin_of_times(table: pd.DataFrame, speed: DeviceSpeed | None, on_gpu: bool) -> str:
    assumed = f"the time assumes {ASSUMPTIONS['gpu' if on_gpu else 'cpu']}"
    everything = table.loc["all"]
    left, timed = everything["runs"] - everything["recorded"], everything["timed"]
    if speed is None:
        return f"T{assumed[1:]}. Run the same command with --calibrate to time steps on this machine."
    rest = f" For the other {left - timed} {assumed}." if timed < left else ""
    files = "" if "imagenet" not in set(table["data"]) else " Decoding the image files of ImageNet is not in it."
    return f"The time of {timed} of {left} runs was measured on {speed.device} ({speed.date}).{rest}{files}"


def _origin_of_memory(speed: DeviceSpeed | None) -> str:
    if speed and any(origin != COMPUTED for _, origin in speed.memory.values()):
        return "Memory was measured on that device where the time was."
    return "Memory is computed: images, weights, gradients, momentum and what the layers keep for the backward pass."


def _memory(run: RunConfig, speed: DeviceSpeed | None) -> float:
    if speed and (found := speed.memory.get(step_kind(run))):
        return found[0]
    images = image_bytes(run.dataset) if run.dataset in ("cifar100", "synthetic") else 0
    return images + training_bytes(run.model, run.dataset, run.batch_size)


def _room(run: RunConfig) -> int:
    """Returns the bytes of the checkpoints that an unfinished run keeps, with the one that is being written."""
    return (KEPT + 1) * checkpoint_bytes(network_without_memory(run.model, run.dataset))

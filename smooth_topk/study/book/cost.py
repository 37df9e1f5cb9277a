"""What trainings cost: runs, GPU-hours, days on several GPUs, disk and missing data, computed from the configurations.

All times are those of the missing runs. They come from steps that `--dry-run --calibrate` timed on a device and kept in
the folder of the profile, or from the assumption of `experiments/expected_cost.py`.
"""

import functools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import torch

from smooth_topk.study.book.plan import Chapter, missing_data
from smooth_topk.study.experiments.expected_cost import ASSUMPTIONS, expected_seconds, makespan
from smooth_topk.study.experiments.names import data_name, network_name
from smooth_topk.study.experiments.registry import EXPERIMENTS, runs_by_chapter
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure.step_times import Speed, network_of, read_speed, save_step_times
from smooth_topk.study.records.machine import available_cores
from smooth_topk.study.records.paths import data_folder_or_default, records_folder
from smooth_topk.study.records.runs import recorded_ids
from smooth_topk.study.training.checkpoints import KEPT

WIDTH = 100  # of the terminal
GPUS = 8  # for which a dry run says the days, where --workers says nothing
FEW_AND_MANY = (1, 2, 4, 8, 16, 32)


def seconds_in_words(seconds: float) -> str:
    """Returns a duration in the unit that people would use.

    Example:
        >>> [seconds_in_words(seconds) for seconds in (8, 150, 9_000, 400_000)]
        ['8 s', '2.5 min', '2.5 h', '4.6 days']
    """
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


def in_short(profile: str, runs: Sequence[RunConfig], workers: int) -> str:
    """Returns in one line how many runs are found, how many are missing, and how long these take."""
    speed, missing = read_speed(profile), missing_runs(profile, runs)
    seconds = makespan([expected_seconds(run, speed.kind, speed.times) for run in missing], workers) if missing else 0
    rest = f"{len(missing)} to train, {workers} at a time, about {seconds_in_words(seconds)}" if missing else "all done"
    return f"{len(runs)} runs, {len(runs) - len(missing)} found; {rest}"


def missing_runs(profile: str, runs: Iterable[RunConfig]) -> list[RunConfig]:
    known = recorded_ids(records_folder(profile))
    return [run for run in runs if run.run_id not in known]


def dry_run(
    profile: str,
    plan: Sequence[Chapter],
    experiments: Mapping[str, Sequence[RunConfig]],
    workers: int | None,
    calibrate: bool,
) -> str:
    """Returns the chapters with their parameters, the cost by experiment, its origin and the missing data."""
    parts = []
    if plan:
        lines = [f"{one.name}: {', '.join(f'{name}={value!r}' for name, value in one.values.items())}" for one in plan]
        parts.append("\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in lines))
    if calibrate:
        parts.append(save_step_times(profile, [run for runs in experiments.values() for run in runs]))
    speed = read_speed(profile)
    count = workers or (GPUS if speed.kind == "gpu" else available_cores())
    table = cost_table(profile, experiments, count, speed)
    if table.empty:
        return "\n\n".join([*parts, "These chapters train nothing."])
    absent = missing_data(table["data"])
    needs = "; ".join(f"{name} is not in {data_folder_or_default()}, run `{how}`" for name, how in absent.items())
    notes = [
        f"Times are those of the missing runs, by {speed.device}. A run of several experiments is counted once.",
        f"Disk: the checkpoints of {count} unfinished runs, and the data.",
        f"Missing data: {needs or 'none'}.",
    ]
    parts += [shown(table, speed, count), "\n".join(textwrap.fill(note, WIDTH) for note in notes)]
    return "\n\n".join(parts)


def cost_table(profile: str, experiments: Mapping[str, Sequence[RunConfig]], count: int, speed: Speed) -> pd.DataFrame:
    """Returns one row per experiment and one for all: runs, recorded, seconds on one device and on several, disk, data.

    Times and disk are those of the runs that are not recorded.
    """
    groups = {name: list(runs) for name, runs in experiments.items() if runs}
    rows = {name: _row(profile, runs, count, speed) | {"data": runs[0].dataset} for name, runs in groups.items()}
    if rows:
        rows["all"] = _row(profile, [run for runs in groups.values() for run in runs], count, speed) | {"data": ""}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("experiment")


def shown(table: pd.DataFrame, speed: Speed, count: int) -> str:
    unit = "GPU" if speed.kind == "gpu" else "core"
    columns = {
        "runs": table["runs"],
        "recorded": table["recorded"],
        f"{unit}-hours": table["seconds"].map(lambda seconds: f"{seconds / 3600:,.1f}"),
        f"{count} {unit}s": table["together"].map(seconds_in_words),
        "disk": table["disk"].map(lambda size: f"{size / 1e6:,.0f} MB"),
        "data": table["data"],
    }
    return pd.DataFrame(columns).rename_axis(None).to_string()


def _row(profile: str, runs: Sequence[RunConfig], count: int, speed: Speed) -> dict[str, object]:
    missing = missing_runs(profile, runs)
    seconds = [expected_seconds(run, speed.kind, speed.times) for run in missing]
    return {
        "runs": len(runs),
        "recorded": len(runs) - len(missing),
        "seconds": sum(seconds),
        "together": makespan(seconds, count),
        "disk": sum(sorted((disk_bytes(run.model, run.dataset) for run in missing), reverse=True)[:count]),
    }


@functools.cache
def disk_bytes(model: str, dataset: str) -> int:
    """Returns the bytes that an unfinished run keeps: checkpoints of weights, best weights and momentum."""
    with torch.device("meta"):  # no memory behind the tensors
        network = network_of(model, dataset)
    weights = sum(value.nbytes for value in network.state_dict().values())
    momentum = sum(parameter.nbytes for parameter in network.parameters())
    return (KEPT + 1) * (2 * weights + momentum)  # one more while it is written


def write_costs(folder: Path, results: Path) -> None:
    """Writes the tables that gpu_server.md includes: what the paper's runs cost, on how many GPUs, and the faults."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"costs": paper_costs(), "scaling": scaling(), "faults": faults(results)}.items():
        (folder / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


def paper_costs() -> str:
    """Returns a Markdown table of the paper's experiments with their runs, hours and disk space."""
    seen: set[str] = set()
    rows = []
    for experiment in EXPERIMENTS.values():
        runs = {run.run_id: run for run in experiment.runs("paper") if run.run_id not in seen}
        if experiment.in_paper and runs:
            seen |= set(runs)
            hours = [expected_seconds(run, "gpu") / 3600 for run in runs.values()]
            first = next(iter(runs.values()))
            rows.append((experiment.paper, data_name(first.dataset), network_name(first.model), len(runs), first.epochs,
                         max(hours), sum(hours), disk_bytes(first.model, first.dataset) / 1e6))  # fmt: skip
    names = ["experiment", "data", "network", "runs", "epochs", "longest run (h)", "all runs (h)", "disk of a run (MB)"]
    table = pd.DataFrame(rows, columns=names).set_index("experiment")
    total = f"{paper_hours():,.0f} hours on one GPU in all, if it is {ASSUMPTIONS['gpu']}."
    return f"{table.to_markdown(floatfmt=',.0f')}\n\n{total}"


def paper_hours() -> float:
    """Returns the hours of all runs of the paper on one GPU of its kind."""
    return sum(hours_of_paper_runs())


def hours_of_paper_runs() -> list[float]:
    return [expected_seconds(run, "gpu") / 3600 for runs in runs_by_chapter("paper").values() for run in runs]


def scaling() -> str:
    """Returns a Markdown table of the days that the whole study takes on several GPUs, one run per GPU."""
    hours = hours_of_paper_runs()
    days = pd.Series({count: makespan(hours, count) / 24 for count in FEW_AND_MANY}, name="days").rename_axis("GPUs")
    return f"{days.to_frame().to_markdown(floatfmt='.1f')}\n\nMore than {sum(hours) / max(hours):.0f} GPUs cannot help."


def faults(results: Path) -> str:
    """Returns a Markdown table of what `pytest -m chaos` recorded."""
    rows = pd.read_csv(results / "faults.csv")
    first, count = rows.iloc[0], rows["tried"].sum()
    shown = rows.set_index("fault")[["tried", "survived"]].to_markdown()
    return (
        f"{shown}\n\n{count} faults in {first['minutes']:.0f} minutes (seed {first['seed']}), of which "
        f"{rows['survived'].sum()} ended with the records of the undisturbed grid to the last bit; "
        f"{first['cpu']}, {first['machine']}, {first['date'][:10]}."
    )

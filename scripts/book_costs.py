"""What the page on servers says in numbers: configurations, networks and measurements in, MyST Markdown out."""

from pathlib import Path

import pandas as pd

from smooth_topk.study import scaling
from smooth_topk.study.costs import ASSUMPTIONS, GPU_RATES
from smooth_topk.study.tables import NOT_RUN
from smooth_topk.study.tables.costs import cost_table, disk_table, image_bytes

OVERHEAD_FILE = "runner_overhead.csv"
FEW_AND_MANY = (1, 2, 4, 8, 16, 32)
OVERHEADS = {  # rows of the file in words
    "step": "a training step with input pipeline and bookkeeping ÷ forward, backward and optimiser alone (CPU time)",
    "grid, 1 worker": "a grid of short runs on one worker ÷ the runs' own time",
    "grid, all cores": "the same with one worker a core, times the workers",
}


def write_costs(folder: Path, results: Path) -> None:
    """Writes costs.txt, scaling.txt, disk.txt and overhead.txt, which gpu_server.md includes."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"costs": costs(), "scaling": lengths(), "disk": disk(), "overhead": overhead(results)}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


def costs() -> str:
    table = cost_table("paper")
    hours = {name: table[name].map("{:,.0f}".format) for name in ("longest run", "all runs")}
    rates = ", ".join(f"{name} {GPU_RATES[name] / 1e6:g}" for name in sorted(set(table["network"]) - {""}))
    return (
        f"{markdown(table.assign(**hours))}\n\nHours on one GPU. **The assumption**: {ASSUMPTIONS['gpu']}. In 10¹² "
        f"multiply-adds a second, forward and backward: {rates}. Divide by how much faster your card is. A run that "
        "two experiments share is counted once."
    )


def lengths() -> str:
    chapters = scaling.study_runs("paper")
    table = scaling.scaling_table(chapters, FEW_AND_MANY)
    days = {name: (table[name] / 24).map("{:.1f}".format) for name in ("together", "one_by_one", "least")}
    names = {"together": "one grid", "one_by_one": "chapter after chapter", "least": "no order is faster"}
    shown = table.assign(**days, efficiency=table["efficiency"].map("{:.0%}".format)).rename(columns=names)
    useful = scaling.useful_gpus(chapters)
    return (
        f"{markdown(shown.rename(columns={'efficiency': 'GPUs at work'}).rename_axis('GPUs'))}\n\n"
        f"Days, by the assumption above. The total work W is {useful:.1f} times the longest run d. Up to about that "
        "many GPUs the study gets shorter almost in proportion; beyond, it is as long as one full ImageNet run."
    )


def disk() -> str:
    table = disk_table()
    shown = table.map("{:,.1f}".format)
    megabytes = image_bytes("cifar100") / 1e6
    return (
        f"{markdown(shown)}\n\nCheckpoint and room are in MB, from the number of parameters. CIFAR-100 takes "
        f"{megabytes:.0f} MB on disk, mapped into memory, which the runs of a machine share."
    )


def overhead(results: Path) -> str:
    path = results / OVERHEAD_FILE
    if not path.exists():
        return f"The overhead of the runner: {NOT_RUN} (`python scripts/benchmark.py --only runner`)."
    rows = pd.read_csv(path).set_index("overhead")
    table = pd.DataFrame(
        {OVERHEADS[name]: {"ratio": f"{row['ratio']:.3f}", "samples": row["samples"]} for name, row in rows.iterrows()}
    ).T.rename_axis("what")
    per_run, start = (rows.loc["grid, 1 worker", name] for name in ("seconds_per_run", "seconds_at_start"))
    where = f"{rows['cpu'].iloc[0]}, {rows['machine'].iloc[0]}, {rows['date'].iloc[0]}"
    return (
        f"{markdown(table)}\n\nMeasured on: {where}. Per run the runner adds {per_run:.2f} s (data, network, records), "
        f"and {start:.1f} s once for the start of a worker: nothing beside hours."
    )


def markdown(table: pd.DataFrame) -> str:
    """A Markdown table with its index as the first column."""
    lines = [[table.index.name, *table.columns], ["---"] * (1 + table.shape[1])]
    lines += [[name, *row] for name, row in zip(table.index, table.to_numpy(), strict=True)]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)

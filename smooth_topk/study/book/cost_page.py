"""What the page on servers says in numbers: configurations, networks and measurements in, MyST Markdown out."""

from pathlib import Path

import pandas as pd

from smooth_topk.study.book.plain_text import plain
from smooth_topk.study.experiments import gpu_scaling, registry
from smooth_topk.study.experiments.expected_cost import ASSUMPTIONS, GPU_RATES, expected_seconds
from smooth_topk.study.experiments.names import data_name, network_name
from smooth_topk.study.experiments.selections import NIGHT, NIGHT_LEVEL, selected_runs
from smooth_topk.study.measure.disk_space import disk_table, image_bytes, training_bytes
from smooth_topk.study.tables import NOT_RUN
from smooth_topk.study.tables.expected_cost import expected_cost_table

OVERHEAD_FILE = "runner_overhead.csv"
FAULTS_FILE = "faults.csv"
NIGHT_HOURS = 10
FEW_AND_MANY = (1, 2, 4, 8, 16, 32)
OVERHEADS = {  # rows of the file in words
    "step": "a training step with input pipeline and bookkeeping ÷ forward, backward and optimiser alone (CPU time)",
    "grid, 1 worker": "a grid of short runs on one worker ÷ the runs' own time",
    "grid, all cores": "the same with one worker per core, times the workers",
}


def write_costs(folder: Path, results: Path) -> None:
    """Writes the texts that gpu_server.md includes: costs, scaling, disk, overhead, faults and one night."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"costs": costs(), "scaling": lengths(), "disk": disk(), "overhead": overhead(results)}
    texts |= {"faults": faults(results), "night": night()}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


def costs() -> str:
    table = expected_cost_table("paper")
    shown = {name: table[name].map("{:,.0f}".format) for name in ("longest run", "all runs")}
    shown |= {"data": table["data"].map(data_name), "network": table["network"].map(network_name)}
    networks = sorted(set(table["network"]) - {""})
    rates = ", ".join(f"{network_name(name)} {GPU_RATES[name] / 1e6:g}" for name in networks)
    return table_with_text(
        table.assign(**shown).rename(columns={name: f"{name} (hours)" for name in ("longest run", "all runs")}),
        f"Hours are those of one GPU. **The assumption**: {ASSUMPTIONS['gpu']}. In 10¹² "
        f"multiply-adds per second, forward and backward: {rates}. Divide by how much faster your card is. A run that "
        "two experiments share is counted once.",
    )


def lengths() -> str:
    chapters = registry.runs_by_chapter("paper")
    table = gpu_scaling.scaling_table(chapters, FEW_AND_MANY)
    days = {name: (table[name] / 24).map("{:.1f}".format) for name in ("together", "one_by_one", "least")}
    names = {"together": "one grid", "one_by_one": "chapter after chapter", "least": "shortest possible"}
    names = {name: f"{words} (days)" for name, words in names.items()}
    names["efficiency"] = "GPUs at work"
    shown = table.assign(**days, efficiency=table["efficiency"].map("{:.0%}".format).str.replace("%", " %"))
    shown = shown.rename(columns=names).rename_axis("GPUs")
    useful = gpu_scaling.useful_gpus(chapters)
    return table_with_text(
        shown,
        f"By the assumption above the total work W is {useful:.1f} times the longest run d. Up to about that "
        "many GPUs the study gets shorter almost in proportion; beyond, it is as long as one full ImageNet run.",
    )


def night() -> str:
    experiments = selected_runs("paper", [NIGHT])
    hours = {name: sum(expected_seconds(run, "gpu") for run in runs) / 3600 for name, runs in experiments.items()}
    figure, noise = experiments["figure_2_temperature"], experiments["table_1_noise"]
    total = sum(hours.values())
    return (
        f"The smallest selection that shows two results of the paper at its own size is `{NIGHT}`: Figure 2 "
        f"({len(figure)} runs of DenseNet 40-12, {hours['figure_2_temperature']:.1f} hours) and Table 1 at p = "
        f"{NIGHT_LEVEL:g} with one seed instead of three ({len(noise)} runs of DenseNet 40-40, "
        f"{hours['table_1_noise']:.1f} hours). By the assumption below that is about {total:.0f} hours on one Titan "
        f"Xp. It fits into a night of {NIGHT_HOURS} hours on a card that is {total / NIGHT_HOURS:.0f} times as fast; "
        "the first command says how long it takes on yours."
    )


def disk() -> str:
    megabytes = image_bytes("cifar100") / 1e6
    table = disk_table().map("{:,.1f}".format)
    runs = {run.model: run for runs in registry.runs_by_chapter("paper").values() for run in runs}
    memory = {name: f"{training_bytes(name, run.dataset, run.batch_size) / 1e9:.1f}" for name, run in runs.items()}
    table = table.rename(columns={name: f"{name} (MB)" for name in ("checkpoint", "room for one run")})
    table["memory of a training (GB)"] = [memory.get(name, "—") for name in table.index]
    return table_with_text(
        table.rename(index=network_name),
        "Checkpoint and room follow from the number of parameters. The memory of a training is computed for the "
        "paper's networks and batches: weights, gradients, momentum and what the layers keep for the backward pass. "
        f"CIFAR-100 takes {megabytes:.0f} MB on disk, mapped into memory, which the runs of a machine share, and as "
        "much on each GPU.",
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
    where = plain(f"{rows['cpu'].iloc[0]}, {rows['machine'].iloc[0]}, {rows['date'].iloc[0]}")
    adds = f"{per_run:.2f} s" if per_run >= 0.005 else "less time than this measurement can resolve"
    return table_with_text(
        table,
        f"Measured on: {where}. The runs of these grids take seconds, so what the grids add is mainly the start of a "
        f"worker, {start:.1f} s, once. For each run (data, network, records) the runner adds {adds}. Both are "
        "negligible beside runs of hours.",
    )


def faults(results: Path) -> str:
    path = results / FAULTS_FILE
    if not path.exists():
        return f"The faults: {NOT_RUN} (`python scripts/abuse.py --minutes 30 --output book/results`)."
    rows = pd.read_csv(path)
    first, tried, survived = rows.iloc[0], rows["tried"].sum(), rows["survived"].sum()
    shown = rows.set_index("fault")[["tried", "survived", "rows_lost", "outcome"]]
    shown["outcome"] = shown["outcome"].map(plain)
    shown = shown.rename(columns={"rows_lost": "rows lost", "outcome": "what happened the last time"})
    where = plain(f"{first['cpu']}, {first['machine']}, {first['date'][:10]}")
    return table_with_text(
        shown,
        f"{tried} faults in {first['minutes']:.0f} minutes (seed {first['seed']}), of which {survived} ended with the "
        f"records of the undisturbed grid to the last bit; {rows['rows_lost'].sum()} recorded rows were lost. {where}.",
    )


def table_with_text(table: pd.DataFrame, text: str) -> str:
    """Returns a Markdown table, with its numbers written as they are in the cells, and a paragraph below it."""
    return f"{table.to_markdown(disable_numparse=True)}\n\n{text}"

"""The results page of the book: the CSV files of book/results in, a page with the paper beside ours out.

Our runs are those of an experiment of `configs.py` with the profile laptop or paper, one table each. What has no row
in the files says "not run".
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from html import escape
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from smooth_topk.study import configs, evidence, tables
from smooth_topk.study.records import read_runs
from smooth_topk.study.tables.costs import cost_table
from smooth_topk.study.tables.show import has_sentences

TIMES = ["algorithm", "direction", "n", "seconds"]
STABILITY = ["algorithm", "dtype", "tau", "stable"]
OPENING = """# Results

The paper's numbers stand beside ours. Accuracies are in percent, times in seconds; a cell of ours is the mean over
seeds, with the standard deviation and the number of seeds. **Every number comes from a CSV file** in `book/results`:
the paper's from `paper/`, ours with machine, versions and date. What is not in these files was not run, and says so.
"""
IN_SHORT = """## In short

The study that was run is small: CIFAR-100, mostly 5,000 training images, a network of 160 thousand
parameters, 24 epochs, two CPU cores (profile `laptop`). It shows whether an effect exists at that scale; it does not
check the paper's numbers. Accuracies are top-5 in percent, differences in points, means over seeds.

{findings}

**Not run**: the paper's own settings, 300 epochs of DenseNet 40-40 on CIFAR-100 and ResNet-18 on ImageNet. `bash
scripts/study.sh --profile paper` runs them in about {hours} hours on one GPU of the paper's kind;
[Run it on a GPU server](gpu_server) says how this is estimated.
"""
COMMENTED = "[Paper versus ours](chapters/14_paper_versus_ours) comments on each table.\n"


def results_page(folder: Path, chapters: set[str] = frozenset()) -> str:
    """Returns the page in MyST Markdown.

    Args:
        folder: book/results.
        chapters: names of the chapters in this book; the page links to no other.
    """
    opening = OPENING + (COMMENTED if "14_paper_versus_ours" in chapters else "")
    hours = cost_table("paper").loc["all", "all runs"]
    in_short = IN_SHORT.format(findings=_html(tables.findings_table(folder)), hours=f"{hours:,.0f}")
    return "\n\n".join([opening, in_short, *(_shown(section) for section in _sections(folder))])


class Section(NamedTuple):
    """One table of the paper."""

    title: str
    groups: Iterable[pd.DataFrame]  # our rows, one table each
    empty: pd.DataFrame  # the same columns without a row
    table: Callable[[pd.DataFrame], pd.DataFrame]


def _sections(folder: Path) -> list[Section]:
    empty, epochs = evidence.recorded_runs([], folder), evidence.epochs_of(read_runs(folder), folder)

    def training(title: str, experiment: Callable, table: Callable) -> Section:
        groups = [evidence.recorded_runs(experiment(profile), folder) for profile in ("laptop", "paper")]
        return Section(title, [runs for runs in groups if len(runs)], empty, table)

    return [
        training("Tables 1 and 9: noisy labels, drawn from the same superclass",
                 configs.table_1_noise, partial(tables.noise_table, grouping="superclass")),
        training("Tables 1 and 9, with the noise of the authors' public code: five consecutive labels",
                 configs.table_1_noise, partial(tables.noise_table, grouping="index_blocks")),
        training("Table 2: small training sets", configs.table_2_small_data, tables.small_data_table),
        _speed(folder, "Table 3: time of the forward pass", "forward"),
        _speed(folder, "Table 4: time of the backward pass", "backward"),
        Section("Table 5: stability of the forward pass", evidence.measurements(STABILITY, folder),
                pd.DataFrame(columns=STABILITY), tables.stability_table),
        training("Table 6: the temperature", configs.figure_2_temperature,
                 partial(tables.temperature_table, epochs=epochs)),
        training("Table 7: the margin, k = 1", configs.table_7_margin_top1, partial(tables.margin_table, k=1)),
        training("Table 8: the margin, k = 5", configs.table_8_margin_top5, partial(tables.margin_table, k=5)),
    ]  # fmt: skip


def _speed(folder: Path, title: str, direction: str) -> Section:
    parts = evidence.measurements(TIMES, folder, direction=direction)
    return Section(title, parts, pd.DataFrame(columns=TIMES), partial(tables.speed_table, direction=direction))


def _shown(section: Section) -> str:
    """A heading and our tables beside the paper's; the paper's alone where nothing was run."""
    ours = [f"{_origin(part)}\n\n{_html(section.table(part))}" for part in section.groups]
    return "\n\n".join([f"## {section.title}", *(ours or [_html(section.table(section.empty))])])


def _origin(part: pd.DataFrame) -> str:
    where = evidence.where_and_when(part)
    if "dataset" not in part:
        return f"Ours: {where}."
    first = part.iloc[0]
    rates = ", ".join(f"{rate:g}" for rate in sorted(set(part["learning_rate"])))
    images = set(part["train_images"].dropna())
    data = first["dataset"] + "".join(f", {count:,} images" for count in images if len(images) == 1)
    size = f"{first['epochs']} epochs, batch {first['batch_size']}"
    return f"Ours: {data}, {first['model']}, {size}, rate {rates}; {where}."


def _html(table: pd.DataFrame) -> str:
    """A table that scrolls sideways on a phone; losses are typeset, and what was not run is set apart."""
    classes = "table results sentences" if has_sentences(table) else "table results"
    text = table.to_html(border=0, classes=classes, escape=True, na_rep="")
    text = re.sub(r"\b([Ll])_(?:\{([^}]*)\}|(\d+))", lambda m: f"<i>{m[1]}</i><sub>{m[2] or m[3]}</sub>", text)
    text = text.replace(f"<td>{escape(tables.NOT_RUN)}</td>", f'<td class="not-run">{escape(tables.NOT_RUN)}</td>')
    return f'<div class="table-scroll">\n{text}\n</div>'

"""The results page of the book: the CSV files of book/results in, a page with the paper beside ours out.

Our runs are shown group by group: runs of one table that share data set, network and schedule. What has no row in the
files says "not run".
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from html import escape
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from smooth_topk.study import tables
from smooth_topk.study.records import RESULT_TYPES, read_epochs, read_runs
from smooth_topk.study.run_config import RunConfig

# What may differ between the runs of one table. Rates and decays are tuned for each loss, as in the paper.
SETTINGS = [field.name for field in fields(RunConfig) if field.name != "seed"]
LOSS = ["loss", "k", "tau", "margin", "tau_final"]
TUNED = ["learning_rate", "weight_decay"]
CONDITIONS = ("device", "cpu", "machine", "threads", "batch", "batch_size", "k")
TIMES = ["algorithm", "direction", "n", "seconds"]
STABILITY = ["algorithm", "dtype", "tau", "stable"]
OPENING = """# Results

The paper's numbers stand beside ours. Accuracies are in percent, times in seconds; a cell of ours is the mean over
seeds, with the standard deviation and the number of seeds. **Every number comes from a CSV file** in `book/results`:
the paper's from `paper/`, ours with machine, versions and date. What is not in these files was not run, and says so.
"""
COMMENTED = "[Paper versus ours](chapters/14_paper_versus_ours) comments on each table.\n"


def results_page(folder: Path, chapters: set[str] = frozenset()) -> str:
    """Returns the page in MyST Markdown.

    Args:
        folder: book/results.
        chapters: names of the chapters in this book; the page links to no other.
    """
    opening = OPENING + (COMMENTED if "14_paper_versus_ours" in chapters else "")
    return "\n\n".join([opening, *(_shown(section) for section in _sections(folder))])


class Section(NamedTuple):
    """One table of the paper."""

    title: str
    groups: Iterable[pd.DataFrame]  # our rows, one table each
    empty: pd.DataFrame  # the same columns without a row
    table: Callable[[pd.DataFrame], pd.DataFrame]


def _sections(folder: Path) -> list[Section]:
    runs, epochs = read_runs(folder), read_epochs(folder)
    runs = runs.reindex(columns=[*runs, *(name for name in RESULT_TYPES if name not in runs)])
    steady = runs[runs["tau_final"].isna()]
    noisy = steady[steady["train_size"].isna() & (steady["margin"] == 1)]
    small = steady[(steady["noise_level"] == 0) & (steady["margin"] == 1)]
    whole = steady[(steady["noise_level"] == 0) & steady["train_size"].isna()]

    def training(title: str, groups: Iterable[pd.DataFrame], table: Callable) -> Section:
        return Section(title, groups, runs.iloc[:0], table)

    return [
        training("Tables 1 and 9: noisy labels, drawn from the same superclass",
                 _noise_groups(noisy, "superclass"), partial(tables.noise_table, grouping="superclass")),
        training("Tables 1 and 9, with the noise of the authors' public code: five consecutive labels",
                 _noise_groups(noisy, "index_blocks"), partial(tables.noise_table, grouping="index_blocks")),
        training("Table 2: small training sets", _groups(small, [*LOSS, "train_size"]), tables.small_data_table),
        _speed(folder, "Table 3: time of the forward pass", "forward"),
        _speed(folder, "Table 4: time of the backward pass", "backward"),
        Section("Table 5: stability of the forward pass", _measured(folder, STABILITY), pd.DataFrame(columns=STABILITY),
                tables.stability_table),
        training("Table 6: the temperature", _groups(whole[whole["margin"] == 1], LOSS),
                 partial(tables.temperature_table, epochs=epochs)),
        training("Table 7: the margin, k = 1", _groups(whole, LOSS), partial(tables.margin_table, k=1)),
        training("Table 8: the margin, k = 5", _groups(whole, LOSS), partial(tables.margin_table, k=5)),
    ]  # fmt: skip


def _speed(folder: Path, title: str, direction: str) -> Section:
    parts = [part[part["direction"] == direction] for part in _measured(folder, TIMES)]
    table = partial(tables.speed_table, direction=direction)
    return Section(title, [part for part in parts if len(part)], pd.DataFrame(columns=TIMES), table)


def _noise_groups(runs: pd.DataFrame, grouping: str) -> Iterator[pd.DataFrame]:
    """Groups with at least one noisy run of this grouping; their clean runs belong to both groupings."""
    chosen = runs[(runs["noise_grouping"] == grouping) | (runs["noise_level"] == 0)]
    for part in _groups(chosen, [*LOSS, "noise_level", "noise_grouping", "validation_labels"]):
        if (part["noise_level"] > 0).any():
            yield part


def _groups(runs: pd.DataFrame, varied: list[str]) -> Iterator[pd.DataFrame]:
    fixed = [name for name in SETTINGS if name not in {*varied, *TUNED} and name in runs]
    for _, part in runs.groupby(runs[fixed].astype(str).agg("|".join, axis=1) if len(runs) else [], sort=False):
        if len(part[varied].astype(str).drop_duplicates()) > 1:  # else there is nothing to compare
            yield part


def _shown(section: Section) -> str:
    """A heading and our tables beside the paper's; the paper's alone where nothing was run."""
    ours = [text for part in section.groups if (text := _group(part, section.table))]
    return "\n\n".join([f"## {section.title}", *(ours or [_html(section.table(section.empty))])])


def _group(part: pd.DataFrame, table: Callable[[pd.DataFrame], pd.DataFrame]) -> str:
    """One table and where it comes from; where a rate was searched, one table for each rate and decay."""
    try:
        shown = table(part)
    except ValueError:
        pieces = [piece for _, piece in part.groupby(TUNED, sort=True)] if len(part) > 1 else []
        return "\n\n".join(_group(piece, table) for piece in pieces if len(piece) < len(part))
    if "dataset" not in part:
        return f"Ours: {_where(part)}\n\n{_html(shown)}"
    if not shown.astype(str).apply(lambda column: column.str.contains("seed")).to_numpy().any():
        return ""
    return f"{_origin(part)}\n\n{_html(shown)}"


def _origin(part: pd.DataFrame) -> str:
    first = part.iloc[0]
    rates = ", ".join(f"{rate:g}" for rate in sorted(set(part["learning_rate"])))
    size = f"{first['epochs']} epochs, batch {first['batch_size']}"
    return f"Ours: {first['dataset']}, {first['model']}, {size}, rate {rates}; {_where(part)}"


def _where(part: pd.DataFrame) -> str:
    """Machines and days of the rows, as far as they are recorded."""
    machines = [name for name in ("device", "cpu", "machine") if name in part]
    names = {", ".join(str(value) for value in row if str(value) != "nan") for row in part[machines].to_numpy()}
    days = sorted({str(day)[:10] for day in part["date"].dropna()}) if "date" in part else []
    span = f", {days[0]}" + (f" to {days[-1]}" if days[-1] != days[0] else "") if days else ""
    return f"{'; '.join(sorted(names))}{span}."


def _measured(folder: Path, columns: list[str]) -> list[pd.DataFrame]:
    """Our measurements that have these columns, one table for each machine, batch size and k of each file."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        table = pd.read_csv(path)
        if set(columns) <= set(table.columns):
            conditions = [name for name in CONDITIONS if name in table]
            found += [part for _, part in table.groupby(conditions, dropna=False)] if conditions else [table]
    return found


def _html(table: pd.DataFrame) -> str:
    """A table that scrolls sideways on a phone; losses are typeset, and what was not run is set apart."""
    text = table.to_html(border=0, classes="table results", escape=True, na_rep="")
    text = re.sub(r"\b([Ll])_(?:\{([^}]*)\}|(\d+))", lambda m: f"<i>{m[1]}</i><sub>{m[2] or m[3]}</sub>", text)
    text = text.replace(f"<td>{escape(tables.NOT_RUN)}</td>", f'<td class="not-run">{escape(tables.NOT_RUN)}</td>')
    return f'<div class="table-scroll">\n{text}\n</div>'

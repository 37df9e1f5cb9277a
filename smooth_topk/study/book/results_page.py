"""The results page of the book: the CSV files of book/results in, a page with the paper beside ours out.

Our runs are those of an experiment of `registry.py` on features, on images or in the paper's own setting, one table
each. Where nothing was run, the page shows the paper's table and one line that says so.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from smooth_topk.study import tables
from smooth_topk.study.book.plain_text import plain
from smooth_topk.study.experiments import registry
from smooth_topk.study.experiments.names import network_name
from smooth_topk.study.records import evidence
from smooth_topk.study.records.published import published_runs
from smooth_topk.study.tables.cells import NOT_IN_PAPER
from smooth_topk.study.tables.differences import signed
from smooth_topk.study.tables.expected_cost import expected_cost_table
from smooth_topk.study.tables.findings import RECORDED_SEEDS
from smooth_topk.study.tables.show import has_sentences, paper_alone, typeset_losses

TIMES = ["algorithm", "direction", "n", "seconds"]
STABILITY = ["algorithm", "dtype", "tau", "stable"]
OPENING = """# Results

Every number of the paper stands beside ours: first in one figure, then table by table.

```{{figure}} _static/pictures/claims.svg
:alt: One line per claim: a hollow dot for the paper's number, a filled dot with an interval for ours.

The claims of the paper that can be put as one difference in points. The paper's number is hollow; ours is filled, with
its 95 % interval over seeds, a circle for features and a triangle for images. Where the line crosses zero, our runs do
not tell the two losses (or margins) apart.
```

{claims}

**Every number comes from a CSV file** in `book/results`: the paper's from `paper/`, ours with machine, versions and
date. Ours come from two scales, and each number says from which:

- **features**: a small head on built-in features of CIFAR-100, mostly five seeds (profile `quick`);
- **images**: a network of 160 thousand parameters on CIFAR-100, one to three seeds (profile `laptop`).

The paper's own setting (profile `paper`) was not run. In the tables a number in brackets behind an accuracy is the
standard deviation over seeds.
"""
IN_SHORT = """## In short

Accuracies are top-5 in percent, differences in points, means over seeds; a range in brackets is a 95 % interval.

{findings}

**Not run**: the paper's own setting, 300 epochs of DenseNet 40-40 on CIFAR-100 and ResNet-18 on ImageNet. `bash
scripts/study.sh --profile paper` runs them in about {hours} hours on one GPU of the paper's kind;
[Run it on a GPU server](gpu_server) says how this is estimated.
"""
COMMENTED = "\n[Paper versus ours](chapters/14_paper_versus_ours) comments on each table.\n"
SCALES = {"quick": "features", "laptop": "images", "paper": "the paper's own setting"}


def results_page(folder: Path, chapters: Collection[str] = frozenset()) -> str:
    """Returns the page in MyST Markdown.

    Args:
        folder: book/results.
        chapters: names of the chapters in this book; the page links to no other.
    """
    opening = OPENING.format(claims=_claims(folder, chapters)) + (
        COMMENTED if "14_paper_versus_ours" in chapters else ""
    )
    hours = expected_cost_table("paper").loc["all", "all runs"]
    contents = "```{contents} On this page\n:local:\n:depth: 1\n:backlinks: none\n```"
    in_short = IN_SHORT.format(findings=_html(tables.findings_table(folder)), hours=f"{hours:,.0f}")
    return "\n\n".join([opening, contents, in_short, *(_shown(section) for section in _sections(folder))])


def _claims(folder: Path, chapters: Collection[str]) -> str:
    """One line per claim of the figure, with a link to its chapter where the book has it."""
    lines = []
    for row in tables.claims(folder).to_dict("records"):
        claim = " ".join(row["claim"].replace("$", "").split())
        name = f"[{claim}](chapters/{row['chapter']})" if row["chapter"] in chapters else claim
        ours = tables.interval_text(row["mean"], row["low"], row["high"])
        lines.append(f"- {name}: {ours} on {row['scale']}; paper {signed(row['paper'], 2)}.")
    return typeset_losses("\n".join(lines)) or "Ours: not run."


class Section(NamedTuple):
    """One table of the paper."""

    title: str
    groups: Mapping[str, pd.DataFrame]  # our rows by scale, one table each
    empty: pd.DataFrame  # the same columns without a row
    table: Callable[[pd.DataFrame], pd.DataFrame]


def _sections(folder: Path) -> list[Section]:
    empty, epochs = evidence.published([], folder), evidence.epochs_of(published_runs(folder), folder)

    def training(title: str, experiment: Callable, table: Callable) -> Section:
        groups = {SCALES[profile]: _recorded(experiment, profile, folder) for profile in SCALES}
        return Section(title, {scale: runs for scale, runs in groups.items() if len(runs)}, empty, table)

    def noise(grouping: str, metric: str, words: str) -> Section:
        title = f"Tables 1 and 9: noisy labels, top-{metric[-1]}, {words}"
        return training(title, registry.table_1_noise, partial(tables.noise_table, grouping=grouping, metric=metric))

    papers_pair = evidence.published(registry.noise_with_the_papers_pair(), folder)
    same_pair = {"features, the paper's rate and decay for both losses": papers_pair} if len(papers_pair) else {}

    return [
        noise("superclass", "top5", "drawn from the same superclass"),
        noise("superclass", "top1", "drawn from the same superclass"),
        Section("Tables 1 and 9: noisy labels, top-5, same superclass, with the paper's rate and decay", same_pair,
                empty, tables.noise_table),
        noise("index_blocks", "top5", "drawn from five consecutive labels as in the authors' public code"),
        noise("index_blocks", "top1", "drawn from five consecutive labels as in the authors' public code"),
        training("Table 2: small training sets", registry.table_2_small_data, tables.small_data_table),
        _speed(folder, "Table 3: time of the forward pass", "forward"),
        _speed(folder, "Table 4: time of the backward pass", "backward"),
        Section("Table 5: stability of the forward pass", _numbered(evidence.measurements(STABILITY, folder)),
                pd.DataFrame(columns=STABILITY), tables.stability_table),
        training("Table 6: the temperature", registry.figure_2_temperature,
                 partial(tables.temperature_table, epochs=epochs)),
        training("Table 7: the margin, k = 1", registry.table_7_margin_top1,
                 partial(tables.margin_table, epochs=epochs, k=1)),
        training("Table 8: the margin, k = 5", registry.table_8_margin_top5,
                 partial(tables.margin_table, epochs=epochs, k=5)),
    ]  # fmt: skip


def _recorded(experiment: Callable, profile: str, folder: Path) -> pd.DataFrame:
    """The recorded runs of a profile; on features with five seeds, but for the temperatures, which have two."""
    five = profile == "quick" and experiment is not registry.figure_2_temperature
    return evidence.published(experiment(profile, seeds=RECORDED_SEEDS if five else None), folder)


def _speed(folder: Path, title: str, direction: str) -> Section:
    parts = _numbered(evidence.measurements(TIMES, folder, direction=direction))
    return Section(title, parts, pd.DataFrame(columns=TIMES), partial(tables.speed_table, direction=direction))


def _numbered(parts: list[pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Measurements have no scale: their machine tells them apart."""
    return {str(number): part for number, part in enumerate(parts)}


def _shown(section: Section) -> str:
    """A heading and our tables beside the paper's; where nothing was run, the paper's alone and one line."""
    ours = [f"{_origin(scale, part)}\n\n{_html(section.table(part))}" for scale, part in section.groups.items()]
    alone = [_html(paper_alone(section.table(section.empty))), "Ours: not run."]
    return "\n\n".join([f"## {section.title}", *(ours or alone)])


def _origin(scale: str, part: pd.DataFrame) -> str:
    where = plain(evidence.where_and_when(part))
    if "dataset" not in part:
        return f"Ours: {where}."
    first = part.iloc[0]
    rates = " or ".join(f"{rate:g}" for rate in sorted(set(part["learning_rate"])))
    size = f"{network_name(first['model'])}, batch {first['batch_size']}, rate {rates}"
    return f"**Ours on {scale}**: {tables.setting_name(part)}, {size}; {where}."


def _html(table: pd.DataFrame) -> str:
    """A table that scrolls sideways on a phone; losses are typeset, and what was not run is set apart."""
    classes = "table results sentences" if has_sentences(table) else "table results"
    text = table.to_html(border=0, classes=classes, escape=True, na_rep="")
    text = typeset_losses(text)
    for words in (tables.NOT_RUN, NOT_IN_PAPER):
        text = text.replace(f"<td>{escape(words)}</td>", f'<td class="not-run">{escape(words)}</td>')
    return f'<div class="table-scroll">\n{text}\n</div>'

"""The numbers of the page before the experiments are those of book/results/training_demo.csv."""

import math

import pandas as pd

from smooth_topk.study.records.paths import project_root

T_95 = 2.262  # of Student's t with nine degrees of freedom
MINUS = "\N{MINUS SIGN}"


def ends(k: int) -> pd.DataFrame:
    """Top-k accuracy at the end in percent, with label noise: one row per draw, columns (loss, decay)."""
    table = pd.read_csv(project_root() / "book/results/training_demo.csv").query("noise > 0 and k == @k")
    assert table["seed"].nunique() == 10
    ends = table.pivot(index="seed", columns=["loss", "decay"], values=["memorised", "topk"]) * 100
    return ends.sort_index(axis=1)


def interval(differences: pd.Series) -> str:
    half = T_95 * differences.std() / math.sqrt(len(differences))
    return f"{differences.mean():.1f} ± {half:.1f}".replace("-", MINUS)


def test_the_table_and_the_differences_of_the_page_are_those_of_the_recorded_trainings():
    page = (project_root() / "book/experiments.md").read_text(encoding="utf-8")
    rows = {"memorised": [], "topk": [], "best": []}
    for k in (2, 3):
        table = ends(k)
        best = {}
        for loss in ("cross", "smooth"):
            rows["memorised"].append(f"{table['memorised', loss, 0.0].mean():.0f} %")
            rows["topk"].append(f"{table['topk', loss, 0.0].mean():.1f} %")
            means = table["topk", loss].mean()
            best[loss] = means.idxmax()
            assert means.index.min() < best[loss] < means.index.max()  # inside the range of the slider
            rows["best"].append(f"{means.max():.1f} %")
        assert interval(table["topk", "smooth", 0.0] - table["topk", "cross", 0.0]) in page
        assert interval(table["topk", "smooth", best["smooth"]] - table["topk", "cross", best["cross"]]) in page
    for cells in rows.values():
        assert " | ".join(cells) in page

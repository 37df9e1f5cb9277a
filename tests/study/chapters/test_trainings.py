"""What a chapter shows of the runs on this machine next to the published ones."""

import pytest

from smooth_topk.study.chapters import trainings
from smooth_topk.study.records.evidence import published
from smooth_topk.study.records.runs import write_record


def test_runs_of_this_machine_stand_next_to_the_published_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("SMOOTH_TOPK_RUNS", str(tmp_path))
    grid = trainings.runs_of("table_1_noise", "laptop")
    rows = published(grid)
    assert trainings.published_and_yours(grid, "laptop")["yours"].eq(trainings.NOT_RUN).all()
    for row in rows[rows["noise_level"] == 0.8].to_dict("records"):
        write_record(
            tmp_path / "laptop" / "records",
            {"run_id": row["run_id"], "test_top5": row["test_top5"] + 0.01},
            [],
        )
    table = trainings.published_and_yours(grid, "laptop")
    noisy = table.xs("0.8", level="noise")
    assert noisy["difference"].tolist() == ["1.00"] * 4
    assert set(noisy["runs"]) == {2}
    assert table.drop("0.8", level="noise")["yours"].eq(trainings.NOT_RUN).all()
    first = rows[(rows["noise_level"] == 0.8) & (rows["noise_grouping"] == "superclass")].groupby("loss", sort=False)
    assert noisy["published"].iloc[0] == f"{100 * first['test_top5'].mean().iloc[0]:.2f}"


def test_a_grid_without_runs_is_refused():
    with pytest.raises(ValueError, match="laptop"):
        trainings.run_missing(trainings.runs_of("table_1_noise", "laptop", seeds=[77]), "laptop")

"""Which recorded runs a chapter shows, and what it says about them."""

import pandas as pd
import pytest

from smooth_topk.study.chapters import trainings
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records import evidence
from smooth_topk.study.records.published import add_rows, publish
from smooth_topk.study.records.runs import write_record

GRID = [RunConfig(seed=0), RunConfig(seed=1)]


def record(folder, config, **row):
    place = {"cpu": "a processor", "machine": "2 cores", "torch": "2.13", "date": "2026-11-16T08:00:00+00:00"}
    row = {"run_id": config.run_id, **config.to_dict(), "status": "finished", "test_top5": 0.5, **place, **row}
    write_record(folder / "records", row, [{"run_id": config.run_id, "epoch": 0, "train_top5": 0.25}])
    publish([folder / "records"], folder)


def test_only_runs_of_the_grid_are_shown(tmp_path):
    record(tmp_path, GRID[0])
    record(tmp_path, RunConfig(seed=7))
    runs = evidence.published(GRID, tmp_path)
    assert runs["run_id"].tolist() == [GRID[0].run_id]
    assert evidence.epochs_of(runs, tmp_path)["train_top5"].tolist() == [0.25]


def test_where_nothing_is_recorded_the_columns_of_results_are_there(tmp_path):
    runs = evidence.published(GRID, tmp_path)
    assert runs.empty
    assert {"test_top5", "last_test_top5", "best_epoch"} <= set(runs)
    assert "train_top5" in evidence.epochs_of(runs, tmp_path)


def test_the_origin_counts_runs_and_names_machine_and_day(tmp_path):
    record(tmp_path, GRID[0])
    text = evidence.origin(evidence.published(GRID, tmp_path), GRID)
    assert text.startswith("1 of 2 runs recorded: drawn patterns, small network, 8 epochs;")
    assert text.endswith("a processor, 2 cores, torch 2.13, 2026-11-16.")
    assert evidence.origin(pd.DataFrame({"run_id": []}), GRID) == "0 of 2 runs recorded: not run."


def test_measurements_of_different_conditions_stay_apart(tmp_path):
    rows = [{"n": n, "seconds": 1.0, "k": k, "machine": m} for n in (10, 20) for k in (1, 5) for m in ("a", "b")]
    add_rows(tmp_path / "speed.csv", rows, key=("n", "k", "machine"))
    add_rows(tmp_path / "other.csv", [{"n": 1}], key=("n",))
    found = evidence.measurements(["n", "seconds"], tmp_path, k=5)
    assert [len(part) for part in found] == [2, 2]
    assert all(set(part["k"]) == {5} and part["machine"].nunique() == 1 for part in found)


def test_a_change_that_is_none_changes_nothing():
    runs = trainings.runs_of("table_1_noise", "quick")
    assert {run.seed for run in runs} == {0}
    assert trainings.runs_of("table_1_noise", "quick", epochs=None) == runs
    assert {run.epochs for run in trainings.runs_of("table_1_noise", "quick", epochs=2)} == {2}
    assert {run.seed for run in trainings.runs_of("table_1_noise", "quick", seeds=[1])} == {1}


def test_failed_runs_stop_the_chapter_with_their_reason(tmp_path, monkeypatch):
    rows = pd.DataFrame({"run_id": ["a"], "status": ["failed"], "failure": ["no memory"]})
    monkeypatch.setattr(trainings, "run_grid", lambda *_, **__: rows)
    monkeypatch.setenv("SMOOTH_TOPK_RUNS", str(tmp_path))
    with pytest.raises(RuntimeError, match="1 of 1 runs failed: no memory"):
        trainings.run_missing(GRID, "smoke")

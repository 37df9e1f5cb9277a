import errno
import multiprocessing
import os

import numpy as np
import pytest

from smooth_topk.study import records
from smooth_topk.study.records import append_rows, append_run, find_run, read_epochs, read_runs
from smooth_topk.study.run_config import RunConfig


def run_row(seed=0, **extra):
    config = RunConfig(seed=seed, schedule="steps", milestones=(3, 5), train_size=0.05)
    return {"run_id": config.run_id, **config.to_dict(), "status": "finished", "test_top5": 0.1 + 0.2, **extra}


def epoch_rows(run_id, count=3):
    return [{"run_id": run_id, "epoch": epoch, "train_loss": 1 / (3 + epoch)} for epoch in range(count)]


def test_a_row_is_read_back_with_every_digit_and_its_types(tmp_path):
    row = run_row(best_epoch=4, commit="abc, with a comma", seconds=12.5)
    assert append_run(tmp_path, row, epoch_rows(row["run_id"]))
    runs, epochs = read_runs(tmp_path), read_epochs(tmp_path)
    assert runs.dtypes[["seed", "nesterov", "tau", "tau_final", "best_epoch"]].astype(str).tolist() == [
        "Int64", "boolean", "float64", "float64", "Int64",
    ]  # fmt: skip
    found = find_run(tmp_path, row["run_id"])
    assert found["milestones"] == (3, 5)
    assert found["train_size"] == 0.05
    assert np.isnan(found["tau_final"])
    assert {name: found[name] for name in ("test_top5", "commit", "seconds", "nesterov", "best_epoch")} == {
        name: row[name] for name in ("test_top5", "commit", "seconds", "nesterov", "best_epoch")
    }
    assert epochs["train_loss"].tolist() == [1 / 3, 1 / 4, 1 / 5]


def test_every_field_of_a_configuration_survives_the_file(tmp_path):
    config = RunConfig(loss="smooth", tau=0.3, tau_final=0.1, train_size=2000, nesterov=False)
    append_run(tmp_path, {"run_id": config.run_id, **config.to_dict()})
    found = find_run(tmp_path, config.run_id)
    assert RunConfig.from_dict({name: value for name, value in found.items() if name != "run_id"}) == config


def test_a_folder_without_records_reads_as_empty_tables(tmp_path):
    assert read_runs(tmp_path / "nowhere").empty
    assert "run_id" in read_epochs(tmp_path).columns
    assert find_run(tmp_path, "0" * 12) is None


def test_a_recorded_run_and_its_epochs_never_appear_twice(tmp_path):
    row = run_row()
    append_rows(tmp_path / "epochs.csv", epoch_rows(row["run_id"], 2), key=("run_id", "epoch"))
    assert append_run(tmp_path, row, epoch_rows(row["run_id"], 4))
    assert not append_run(tmp_path, row | {"test_top5": 0.9}, epoch_rows(row["run_id"], 4))
    assert read_runs(tmp_path)["test_top5"].tolist() == [0.1 + 0.2]
    assert read_epochs(tmp_path)["epoch"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_half_written_last_line_is_left_out_with_a_warning_and_repaired_by_the_next_append(tmp_path, cut):
    append_run(tmp_path, run_row(0))
    append_run(tmp_path, run_row(1))
    path = tmp_path / "runs.csv"
    os.truncate(path, path.stat().st_size - cut)
    with pytest.warns(UserWarning, match="half-written"):
        assert read_runs(tmp_path)["seed"].tolist() == [0]
    with pytest.warns(UserWarning, match="half-written"):
        append_run(tmp_path, run_row(1))
    assert read_runs(tmp_path)["seed"].tolist() == [0, 1]


def test_a_file_whose_header_is_half_written_starts_anew(tmp_path):
    (tmp_path / "runs.csv").write_text("run_id,data")
    with pytest.warns(UserWarning, match="half-written"):
        append_run(tmp_path, run_row())
    assert read_runs(tmp_path)["seed"].tolist() == [0]


def test_a_line_with_a_missing_field_is_named(tmp_path):
    append_run(tmp_path, run_row(0))
    with open(tmp_path / "runs.csv", "a") as file:
        file.write("a,b\n")
    with pytest.raises(ValueError, match=r"Line 3 of .*runs.csv has 2 fields"):
        read_runs(tmp_path)


def test_new_columns_are_added_and_missing_ones_are_blank(tmp_path):
    append_run(tmp_path, run_row(0))
    append_run(tmp_path, run_row(1, note="new"))
    append_run(tmp_path, {name: value for name, value in run_row(2).items() if name != "test_top5"})
    runs = read_runs(tmp_path)
    assert runs["seed"].tolist() == [0, 1, 2]
    assert runs["note"].tolist() == [None, "new", None]
    assert runs["test_top5"].isna().tolist() == [False, False, True]


def test_a_line_break_in_a_value_stays_inside_its_row(tmp_path):
    append_run(tmp_path, run_row(0, note="one\ntwo"))
    assert read_runs(tmp_path)["note"].tolist() == ["one two"]


def _append_many(folder, first, start):
    start.wait()
    for seed in range(first, first + 40):
        # Every tenth row brings a column of its own, so that the file is replaced while others append.
        append_run(folder, run_row(seed, **({f"extra_{seed}": "x"} if seed % 10 == 0 else {})))


def test_several_processes_append_without_losing_or_mixing_rows(tmp_path):
    context = multiprocessing.get_context("fork")
    start = context.Event()
    # The middle ranges overlap: their rows must still appear once.
    processes = [context.Process(target=_append_many, args=(tmp_path, first, start)) for first in (0, 20, 40)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    runs = read_runs(tmp_path)
    assert sorted(runs["seed"]) == list(range(80))
    assert runs["run_id"].is_unique
    assert runs.loc[runs["seed"] == 70, "extra_70"].item() == "x"


def test_a_full_disk_leaves_the_file_as_it_was_and_says_what_to_do(tmp_path, monkeypatch):
    append_run(tmp_path, run_row(0))
    before = (tmp_path / "runs.csv").read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(records.os, "fsync", full)
    with pytest.raises(OSError, match=r"Could not write .*runs\.csv: No space left on device.*start again"):
        append_run(tmp_path, run_row(1))
    assert (tmp_path / "runs.csv").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"Could not write .*file"):
        append_run(tmp_path / "file" / "results", run_row())

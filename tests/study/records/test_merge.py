"""Results of two machines in one folder."""

import pytest

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.merge import merge_records
from smooth_topk.study.records.runs import append_run, read_epochs, read_runs

RUNS = [RunConfig(seed=seed, epochs=2) for seed in range(3)]


def record(folder, config, epochs=2, **changes):
    row = {"run_id": config.run_id, **config.to_dict(), "status": "finished", "test_top5": 0.5, "seconds": 10.0}
    row |= {"machine": "a <machine>", "date": "2026-11-16T11:01:57+00:00"} | changes
    append_run(folder, row, [{"run_id": config.run_id, "epoch": e, "train_loss": 1 / (3 + e)} for e in range(epochs)])


@pytest.fixture
def folders(tmp_path):
    home, server = tmp_path / "home", tmp_path / "server"
    record(home, RUNS[0])
    record(home, RUNS[1])
    record(server, RUNS[1], seconds=99.0, machine="another", date="2026-11-17T11:01:57+00:00")
    record(server, RUNS[2])
    return home, server


def test_runs_that_are_missing_come_with_their_epochs_and_known_ones_stay(folders):
    home, server = folders
    assert merge_records(server, home) == (1, 1)
    runs = read_runs(home)
    assert runs["run_id"].tolist() == [config.run_id for config in RUNS]
    assert runs["seconds"].tolist() == [10.0] * 3
    assert read_epochs(home)["run_id"].tolist() == [config.run_id for config in RUNS for _ in range(2)]
    assert merge_records(server, home) == (0, 2)


def test_merging_into_an_empty_folder_copies_every_digit(folders, tmp_path):
    _, server = folders
    assert merge_records(server, tmp_path / "new") == (2, 0)
    for read in (read_runs, read_epochs):
        assert read(tmp_path / "new")[list(read(server))].equals(read(server))


def test_a_run_with_other_results_is_refused_by_name_and_nothing_is_written(folders, tmp_path):
    home, _ = folders
    other = tmp_path / "other"
    record(other, RUNS[0], test_top5=0.75)
    record(other, RUNS[2])
    before = (home / "runs.csv").read_bytes(), (home / "epochs.csv").read_bytes()
    sentence = rf"The run {RUNS[0].run_id} is recorded with different results .*test_top5 is 0.5 here and 0.75 there"
    with pytest.raises(ValueError, match=sentence):
        merge_records(other, home)
    assert ((home / "runs.csv").read_bytes(), (home / "epochs.csv").read_bytes()) == before


def test_a_run_without_all_its_epochs_is_refused(folders, tmp_path):
    home, _ = folders
    other = tmp_path / "other"
    record(other, RUNS[2], epochs=1)
    with pytest.raises(ValueError, match=rf"has 1 of the 2 epochs of run {RUNS[2].run_id}.*Nothing was merged"):
        merge_records(other, home)
    assert len(read_runs(home)) == 2


def test_a_folder_without_records_is_named(folders, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere/runs.csv does not exist: --merge takes a folder"):
        merge_records(tmp_path / "nowhere", folders[0])

"""Results of two machines in one folder."""

import threading

import pytest

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records import merge
from smooth_topk.study.records.merge import merge_records
from smooth_topk.study.records.paths import recorded_folder
from smooth_topk.study.records.runs import EPOCH_KEY, append_rows, append_run, read_epochs, read_runs

RUNS = [RunConfig(seed=seed, epochs=2) for seed in range(3)]


def record(folder, config, epochs=2, **changes):
    row = {"run_id": config.run_id, **config.to_dict(), "status": "finished", "test_top5": 0.5, "seconds": 10.0}
    row["best_epoch"] = 1
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


def test_of_two_merges_at_once_the_second_sees_what_the_first_has_added(tmp_path, monkeypatch):
    """Without a lock around comparison and writing, a run of one folder could get the epochs of the other."""
    home, errors = tmp_path / "home", []
    for name, accuracy in (("first", 0.5), ("second", 0.75)):
        record(tmp_path / name, RUNS[0], test_top5=accuracy)

    def merge_second():
        try:
            merge_records(tmp_path / "second", home)
        except ValueError as error:
            errors.append(str(error))

    second = threading.Thread(target=merge_second)
    write = merge.append_rows

    def write_while_another_merge_begins(*arguments, **options):
        monkeypatch.setattr(merge, "append_rows", write)
        second.start()
        second.join(timeout=1)
        return write(*arguments, **options)

    monkeypatch.setattr(merge, "append_rows", write_while_another_merge_begins)
    assert merge_records(tmp_path / "first", home) == (1, 0)
    second.join()
    assert read_runs(home)["test_top5"].tolist() == [0.5]
    assert len(errors) == 1
    assert "test_top5 is 0.5 here and 0.75 there" in errors[0]


def test_a_run_without_all_its_epochs_is_refused(folders, tmp_path):
    home, _ = folders
    other = tmp_path / "other"
    record(other, RUNS[2], epochs=1)
    with pytest.raises(ValueError, match=rf"has 1 of the 2 epochs of run {RUNS[2].run_id}.*Nothing was merged"):
        merge_records(other, home)
    assert len(read_runs(home)) == 2


def test_a_run_that_was_deleted_here_comes_with_its_own_epochs(folders, tmp_path):
    home, _ = folders
    other = tmp_path / "other"
    append_rows(other / "epochs.csv", [{"run_id": RUNS[0].run_id, "epoch": e, "train_loss": 7.0} for e in range(2)],
                key=EPOCH_KEY)  # fmt: skip
    record(other, RUNS[0], epochs=0, test_top5=0.75)
    lines = (home / "runs.csv").read_text().splitlines(keepends=True)
    (home / "runs.csv").write_text("".join(line for line in lines if RUNS[0].run_id not in line))
    assert merge_records(other, home) == (1, 0)
    epochs = read_epochs(home).set_index("run_id")["train_loss"]
    assert epochs[RUNS[0].run_id].tolist() == [7.0, 7.0]
    assert epochs[RUNS[1].run_id].tolist() == [1 / 3, 1 / 4]


def test_a_folder_without_records_is_named(folders, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere/runs.csv does not exist: --merge takes a folder"):
        merge_records(tmp_path / "nowhere", folders[0])


def merged(source, target):
    """What merging does to a target that has no records: the sentence of the refusal, after nothing was written."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        merge_records(source, target)
    assert not target.exists()
    sentence = str(caught.value)
    assert str(source) in sentence
    return sentence


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"run_id": "zzz"}, ["'zzz'", f"the id of the configuration in this row is {RUNS[2].run_id}"]),
        ({"seed": 77}, [RUNS[2].run_id, f"in this row is {RunConfig(seed=77, epochs=2).run_id}", "run_id"]),
        ({"seed": None}, ["seed must be an integer, got seed=None"]),
        ({"loss": "absent"}, ["loss must be one of", "got loss='absent'"]),
        ({"validation_top5": 49.3}, ["validation_top5 must lie between 0 and 1, got validation_top5=49.3"]),
        ({"test_top5": -0.1}, ["got test_top5=-0.1"]),
        ({"last_test_top1": float("inf")}, ["got last_test_top1=inf"]),
        ({"status": "Finished"}, ["status must be finished or diverged, got status='Finished'"]),
        ({"status": "failed"}, ["got status='failed'"]),
        ({"status": None}, ["got status=None"]),
        ({"best_epoch": None}, [RUNS[2].run_id, "best_epoch must lie between 0 and 1, got none"]),
        ({"best_epoch": 2}, ["best_epoch must lie between 0 and 1, got best_epoch=2"]),
        ({"best_epoch": -1, "status": "diverged"}, ["between 0 and 1, got best_epoch=-1"]),
        ({"status": "finished\0"}, ["Line 2 of", "a NUL byte"]),
    ],
)
def test_a_run_that_cannot_be_true_is_refused_with_its_column_and_value(tmp_path, changes, parts):
    record(tmp_path / "server", RUNS[2], **changes)
    sentence = merged(tmp_path / "server", tmp_path / "home")
    assert "runs.csv" in sentence
    for part in parts:
        assert part in sentence


def test_an_impossible_accuracy_of_an_epoch_is_refused_with_its_epoch(tmp_path):
    record(tmp_path / "server", RUNS[2], epochs=0)
    rows = [{"run_id": RUNS[2].run_id, "epoch": epoch, "train_top1": 0.5 + epoch} for epoch in range(2)]
    append_rows(tmp_path / "server" / "epochs.csv", rows, key=EPOCH_KEY)
    sentence = merged(tmp_path / "server", tmp_path / "home")
    assert f"epochs.csv, run_id {RUNS[2].run_id}, epoch 1: train_top1 must lie between 0 and 1" in sentence


@pytest.mark.parametrize("status", ["finished", "diverged"])
@pytest.mark.parametrize("wrong", [2, -1])
def test_an_epoch_that_the_run_cannot_have_is_refused(tmp_path, status, wrong):
    record(tmp_path / "server", RUNS[2], epochs=1, status=status)
    append_rows(tmp_path / "server" / "epochs.csv", [{"run_id": RUNS[2].run_id, "epoch": wrong}], key=EPOCH_KEY)
    sentence = merged(tmp_path / "server", tmp_path / "home")
    assert f"epochs.csv, run_id {RUNS[2].run_id}: epoch must lie between 0 and 1, got epoch={wrong}." in sentence


def test_a_diverged_run_without_one_of_its_first_epochs_is_refused(tmp_path):
    record(tmp_path / "server", RUNS[2], epochs=0, status="diverged", best_epoch=None)
    append_rows(tmp_path / "server" / "epochs.csv", [{"run_id": RUNS[2].run_id, "epoch": 1}], key=EPOCH_KEY)
    assert "has 1 of the 2 epochs of run" in merged(tmp_path / "server", tmp_path / "home")


def test_blank_accuracies_are_merged(tmp_path):
    blank = {"test_top5": None, "validation_top5": float("nan"), "best_epoch": None}
    record(tmp_path / "server", RUNS[0], epochs=1, status="diverged", **blank)
    record(tmp_path / "server", RUNS[1], test_top10=None)
    assert merge_records(tmp_path / "server", tmp_path / "home") == (2, 0)


@pytest.mark.parametrize("name", ["runs.csv", "epochs.csv"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_files_in_utf_16_are_refused_by_name(tmp_path, name, encoding):
    record(tmp_path / "server", RUNS[2])
    path = tmp_path / "server" / name
    path.write_bytes(path.read_text().encode(encoding))
    assert f"Line 1 of {path} holds" in (sentence := merged(tmp_path / "server", tmp_path / "home"))
    assert "Save the file as CSV in UTF-8" in sentence


@pytest.mark.parametrize("name", ["runs.csv", "epochs.csv"])
def test_a_folder_in_place_of_a_file_is_refused_by_name(tmp_path, name):
    record(tmp_path / "server", RUNS[2])
    (tmp_path / "server" / name).unlink()
    (tmp_path / "server" / name).mkdir()
    assert f"{tmp_path / 'server' / name} is not a file" in merged(tmp_path / "server", tmp_path / "home")


def test_every_recorded_run_can_be_merged_and_merged_again(tmp_path):
    count = len(read_runs(recorded_folder()))
    assert count >= 1549
    assert merge_records(recorded_folder(), tmp_path) == (count, 0)
    assert merge_records(recorded_folder(), tmp_path) == (0, count)

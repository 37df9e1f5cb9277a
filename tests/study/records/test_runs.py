import errno
import multiprocessing
import os

import pytest

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records import files
from smooth_topk.study.records.runs import append_rows, append_run, find_run, read_epochs, read_runs


def run_row(seed=0, **extra):
    config = RunConfig(seed=seed, schedule="steps", milestones=(3, 5), train_size=0.05)
    results = {"status": "finished", "test_top5": 0.1 + 0.2, **extra}
    return {"run_id": config.run_id, **config.to_dict(), **results, "date": "2026-11-16T11:01:57+00:00"}


def epoch_rows(run_id, count=3):
    return [{"run_id": run_id, "epoch": epoch, "train_loss": 1 / (3 + epoch)} for epoch in range(count)]


def test_a_row_is_read_back_with_every_digit_and_its_types(tmp_path):
    row = run_row(best_epoch=4, commit="abc, with a comma", seconds=12.5)
    append_run(tmp_path, row, epoch_rows(row["run_id"]))
    runs, epochs = read_runs(tmp_path), read_epochs(tmp_path)
    assert runs.dtypes[["seed", "nesterov", "tau", "tau_final", "best_epoch"]].astype(str).tolist() == [
        "Int64", "boolean", "float64", "float64", "Int64",
    ]  # fmt: skip
    found = find_run(tmp_path, row["run_id"])
    assert found["milestones"] == (3, 5)
    assert found["train_size"] == 0.05
    assert found["tau_final"] is None
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
    for accuracy in (0.1 + 0.2, 0.9):
        recorded = append_run(tmp_path, row | {"test_top5": accuracy}, epoch_rows(row["run_id"], 4))
        assert recorded == find_run(tmp_path, row["run_id"])
    assert read_runs(tmp_path)["test_top5"].tolist() == [0.1 + 0.2]
    assert read_epochs(tmp_path)["epoch"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("cut", [2, 5, 10, 40])
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

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"Could not write .*runs\.csv: No space left on device.*start again"):
        append_run(tmp_path, run_row(1))
    assert (tmp_path / "runs.csv").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"Could not write .*file"):
        append_run(tmp_path / "file" / "results", run_row())


def edited(folder, change):
    """Two recorded runs whose runs.csv somebody changed, and its content before that."""
    append_run(folder, run_row(0))
    append_run(folder, run_row(1))
    path = folder / "runs.csv"
    before = path.read_bytes()
    path.write_bytes(change(before))
    return path, before


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"\xef\xbb\xbf" + content,
        lambda content: 2 * b"\xef\xbb\xbf" + content,
        lambda content: content.replace(b"\n", b"\n\xef\xbb\xbf"),
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content[:-1],
        lambda content: content.replace(b"\n", b"\r\n")[:-2],
        lambda content: content + b"\n \t\n",
    ],
    ids=[
        "byte order mark",
        "two of them",
        "in every line",
        "line ends of Windows",
        "no last line end",
        "both",
        "blank lines",
    ],
)
def test_what_an_editor_changes_without_doubt_is_read_and_the_next_append_keeps_every_row(tmp_path, change):
    path, before = edited(tmp_path, change)
    assert read_runs(tmp_path)["seed"].tolist() == [0, 1]
    append_run(tmp_path, run_row(2))
    assert read_runs(tmp_path)["seed"].tolist() == [0, 1, 2]
    assert path.read_bytes().startswith(before)


def test_spaces_and_tabs_around_names_and_values_do_not_count(tmp_path):
    append_run(tmp_path / "clean", run_row(0))
    append_run(tmp_path / "clean", run_row(1))
    edited(tmp_path, lambda content: content.replace(b",", b"\t , "))
    assert read_runs(tmp_path).equals(read_runs(tmp_path / "clean"))
    append_run(tmp_path, run_row(0))
    assert len(read_runs(tmp_path)) == 2


def without_first_column(content):
    return b"".join(line.split(b",", 1)[1] for line in content.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content.replace(b",", b";"), "Line 1 of .*separated by semicolons: save it with commas"),
        (lambda content: content.replace(b",", b"\t"), "Line 1 of .*separated by tabs"),
        (lambda content: content.replace(b"\n", b"\r"), "Line 1 of .*ends in a carriage return alone"),
        (without_first_column, "Line 1 of .*names no column run_id; a column is missing"),
        (lambda content: content.replace(b"run_id,dataset", b"run_id,run_id"), "column run_id more than once"),
        (lambda content: content.replace(b",batch_size,", b",,"), "Line 1 of .*has a column without a name, column 1"),
        (lambda content: content.replace(b"synthetic", b'"synthetic', 1), "Line 2 of .*has 13 fields, its header has"),
        (lambda content: content.replace(b"synthetic", b"x" * 200_000, 1), "Line 2 of .*is not CSV: field larger than"),
        (lambda content: content + b"a,b\n", "Line 4 of .*has 2 fields, its header has"),
        (lambda content: content + b"," * content.split(b"\n")[0].count(b",") + b"\n", "Line 4 .*blank run_id"),
    ],
    ids=[
        "semicolons",
        "tabs",
        "carriage returns",
        "missing column",
        "two run_id",
        "no name",
        "open quote",
        "huge",
        "short row",
        "blank row",
    ],
)
def test_what_cannot_be_read_without_doubt_is_refused_with_the_line_and_left_alone(tmp_path, change, sentence):
    path, _ = edited(tmp_path, change)
    content = path.read_bytes()
    for use in (lambda: read_runs(tmp_path), lambda: append_run(tmp_path, run_row(2)), lambda: find_run(tmp_path, "x")):
        with pytest.raises(ValueError, match=sentence) as caught:
            use()
        assert str(path) in str(caught.value)
        assert "from version control" in str(caught.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (b",64,", b",1.5,", r"Line 2 of .*runs.csv, column batch_size: '1.5' is not an integer"),
        (b",64,", b",true,", r"Line 2 of .*runs.csv, column batch_size: 'true' is not an integer"),
        (b",true,", b",TRUE,", r"Line 2 of .*runs.csv, column nesterov: 'TRUE' is not true or false"),
        (b"0.30000000000000004", b"30 %", r"Line 2 of .*runs.csv, column test_top5: '30 %' is not a number"),
        (
            b",64,",
            b"," + b"9" * 19 + b",",
            r"Line 2 of .*column batch_size: '9{19}' is not an integer of at most 64 bits",
        ),
        (b",64,", b",-" + b"9" * 99 + b",", r"Line 2 of .*column batch_size: '-9{59}...' is not an integer of at most"),
        (b'"[3, 5]"', b"[" * 50_000, r"Line 2 of .*column milestones: '\[{60}...' is not JSON"),
        (b'"[3, 5]"', b'"[3, 5"', r"Line 2 of .*runs.csv, column milestones: '\[3, 5' is not JSON"),
        (b",steps,", b",st\xe9ps,", r"Line 2 of .*runs.csv, column schedule: .* is not text in UTF-8"),
    ],
)
def test_a_wrong_value_names_file_line_and_column(tmp_path, old, new, sentence):
    path, _ = edited(tmp_path, lambda content: content.replace(old, new, 1))
    assert new in path.read_bytes()
    with pytest.raises(ValueError, match=sentence):
        read_runs(tmp_path)
    with pytest.raises(ValueError, match=sentence.split("column ")[1]):
        find_run(tmp_path, run_row(0)["run_id"])
    assert find_run(tmp_path, run_row(1)["run_id"])["seed"] == 1


def test_a_wrong_value_in_a_last_row_without_a_line_end_is_refused_and_the_row_not_dropped(tmp_path):
    path, _ = edited(tmp_path, lambda content: content.replace(b",0.30000000000000004,", b",30 %,").rstrip())
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"column test_top5: '30 %' is not a number"):
        read_runs(tmp_path)
    append_run(tmp_path, run_row(2))
    assert path.read_bytes().startswith(content)


def test_a_row_that_stands_there_twice_counts_once_with_a_note(tmp_path):
    edited(tmp_path, lambda content: content + content.splitlines(keepends=True)[1])
    run_id = run_row(0)["run_id"]
    with pytest.warns(UserWarning, match=rf"more than once; each counts once: run_id {run_id}\."):
        assert read_runs(tmp_path)["seed"].tolist() == [0, 1]


def test_two_rows_of_a_run_that_contradict_each_other_are_refused_by_name(tmp_path):
    def add_another(content):
        return content + content.splitlines(keepends=True)[1].replace(b"0.30000000000000004", b"0.9")

    edited(tmp_path, add_another)
    sentence = (
        rf"two rows of run_id {run_row(0)['run_id']}, in lines 2 and 4, which differ in test_top5\. Delete the one"
    )
    with pytest.raises(ValueError, match=sentence):
        read_runs(tmp_path)


def test_epochs_that_stand_there_twice_count_once(tmp_path):
    append_run(tmp_path, run_row(0), epoch_rows(run_row(0)["run_id"]))
    path = tmp_path / "epochs.csv"
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[2])
    with pytest.warns(UserWarning, match=r"each counts once: run_id \w+, epoch 1\."):
        assert read_epochs(tmp_path)["epoch"].tolist() == [0, 1, 2]


def test_a_cut_number_at_the_end_of_the_last_epoch_is_replaced_when_its_run_is_recorded(tmp_path):
    """The end of a number that was cut off cannot be told from a short number: the row comes again, whole."""
    rows = epoch_rows(run_row(0)["run_id"], 2)
    append_rows(tmp_path / "epochs.csv", rows, key=("run_id", "epoch"))
    path = tmp_path / "epochs.csv"
    path.write_bytes(path.read_bytes()[:-2])
    assert read_epochs(tmp_path)["train_loss"].tolist() == [1 / 3, 0.2]
    append_run(tmp_path, run_row(0), rows)
    assert read_epochs(tmp_path)["train_loss"].tolist() == [1 / 3, 1 / 4]


def test_new_columns_stand_before_the_date(tmp_path):
    append_run(tmp_path, run_row(0))
    append_run(tmp_path, run_row(1, note="new"))
    assert (tmp_path / "runs.csv").read_text().splitlines()[0].endswith(",test_top5,note,date")


def test_what_a_killed_append_left_behind_is_removed_by_the_next(tmp_path):
    (tmp_path / ".runs.csv.123.tmp").write_text("half")
    append_run(tmp_path, run_row(0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.csv"]


def test_a_file_that_is_a_link_stays_one(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "runs.csv").symlink_to(tmp_path / "elsewhere.csv")
    append_run(tmp_path / "results", run_row(0))
    assert (tmp_path / "results" / "runs.csv").is_symlink()
    assert run_row(0)["run_id"] in (tmp_path / "elsewhere.csv").read_text()

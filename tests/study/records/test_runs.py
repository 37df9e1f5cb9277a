"""One JSON file per run, and publishing: what is recorded counts once, and what is published is not contradicted."""

import math
from dataclasses import replace

import pytest
from pandas.testing import assert_frame_equal

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records import published, runs
from smooth_topk.study.records.files import CannotWriteError

BASE = RunConfig(dataset="cifar100", schedule="steps", milestones=(1, 2), epochs=3, train_size=0.5)
DATE = "2026-11-18T20:00:00+00:00"


def rows_of(config: RunConfig, accuracy: float = 0.1 + 0.2) -> tuple[dict, list[dict]]:
    row = {"run_id": config.run_id, **config.to_dict(), "status": "finished", "best_epoch": 2, "test_top5": accuracy}
    epochs = [{"run_id": config.run_id, "epoch": e, "train_loss": 1 / (e + 3)} for e in range(3)]
    return row | {"seconds": 1.5, "machine": "a machine", "date": DATE}, epochs


def record(folder, config: RunConfig = BASE, accuracy: float = 0.1 + 0.2) -> dict:
    return runs.write_record(folder, *rows_of(config, accuracy))


def test_every_digit_and_every_type_of_a_record_comes_back(tmp_path):
    config = replace(BASE, loss="label_smoothing", loss_options={"label_smoothing": 0.2}, tau_final=None)
    row = record(tmp_path, config)
    assert runs.read_record(tmp_path, config.run_id) == row
    found, epochs = runs.read_runs(tmp_path), runs.read_epochs(tmp_path)
    assert RunConfig.from_dict({name: row[name] for name in config.to_dict()}) == config
    assert found["test_top5"].item() == 0.30000000000000004
    assert (found["milestones"].item(), found["train_size"].item()) == ((1, 2), 0.5)
    assert found["loss_options"].item() == (("label_smoothing", 0.2),)
    assert epochs["train_loss"].tolist() == [1 / 3, 1 / 4, 1 / 5]
    assert runs.recorded_ids(tmp_path) == {config.run_id}


def test_where_nothing_is_recorded_every_column_is_there(tmp_path):
    assert runs.recorded_ids(tmp_path / "nowhere") == set()
    assert runs.read_record(tmp_path, BASE.run_id) is None
    assert {"run_id", "test_top5", "ten_crop_softmax_top1"} <= set(runs.read_runs(tmp_path))
    assert {"run_id", "train_top5"} <= set(runs.read_epochs(tmp_path))


def test_the_first_record_of_a_run_wins(tmp_path):
    record(tmp_path, accuracy=0.5)
    assert record(tmp_path, accuracy=0.75)["test_top5"] == 0.5
    assert runs.read_runs(tmp_path)["test_top5"].tolist() == [0.5]


def test_a_value_that_is_no_number_is_recorded_as_a_blank(tmp_path):
    record(tmp_path, accuracy=math.nan)
    assert runs.read_record(tmp_path, BASE.run_id)["test_top5"] is None


def test_a_folder_that_cannot_be_written_to_and_a_damaged_record_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWriteError, match="file"):
        record(tmp_path / "file" / "records")
    (tmp_path / "abc.json").write_text("{")
    with pytest.raises(ValueError, match=r"abc\.json"):
        runs.read_runs(tmp_path)


def test_published_rows_are_those_of_the_records(tmp_path):
    configs = [replace(BASE, seed=seed) for seed in range(3)]
    for config in configs:
        record(tmp_path / "a", config)
    target = tmp_path / "published"
    target.mkdir()
    assert published.publish([tmp_path / "a"], target) == (3, 0)
    assert_frame_equal(published.published_runs(target), runs.read_runs(tmp_path / "a"))
    assert_frame_equal(published.published_epochs(target), runs.read_epochs(tmp_path / "a"))
    before = (target / published.RUNS).read_bytes()
    record(tmp_path / "b", replace(BASE, seed=3))
    record(tmp_path / "b", configs[0])
    assert published.publish([tmp_path / "a", tmp_path / "b"], target, epochs=False) == (1, 3)
    assert (target / published.RUNS).read_bytes().startswith(before)
    assert len(published.published_epochs(target)) == 9


def test_another_result_of_a_published_run_is_refused_unless_it_is_to_replace_it(tmp_path):
    record(tmp_path / "a", accuracy=0.5)
    record(tmp_path / "a", replace(BASE, seed=1), accuracy=0.5)
    published.publish([tmp_path / "a"], tmp_path)
    record(tmp_path / "b", accuracy=0.75)
    with pytest.raises(ValueError, match=r"test_top5 was 0\.5, got 0\.75"):
        published.publish([tmp_path / "b"], tmp_path)
    assert published.publish([tmp_path / "b"], tmp_path, replace=True) == (1, 1)
    found = published.published_runs(tmp_path).set_index("seed")["test_top5"]
    assert found.to_dict() == {0: 0.75, 1: 0.5}
    assert len(published.published_epochs(tmp_path)) == 6


def test_a_record_whose_configuration_was_changed_is_refused(tmp_path):
    row, epochs = rows_of(BASE)
    runs.write_record(tmp_path / "a", row | {"seed": 7}, epochs)
    with pytest.raises(ValueError, match=BASE.run_id):
        published.publish([tmp_path / "a"], tmp_path)
    assert not (tmp_path / published.RUNS).exists()


def test_publishing_leaves_the_rows_of_the_project_as_they_are(tmp_path):
    for name in (published.RUNS, published.EPOCHS):
        (tmp_path / name).write_bytes((published.published_folder() / name).read_bytes())
    before = published.published_runs()
    record(tmp_path / "records", replace(BASE, seed=99))
    assert published.publish([tmp_path / "records"], tmp_path) == (1, len(before))
    assert_frame_equal(published.published_runs(tmp_path).iloc[:-1][before.columns], before)
    assert_frame_equal(published.published_epochs(tmp_path).iloc[:-3], published.published_epochs())


def test_every_published_row_has_the_id_of_its_configuration():
    for row in published.published_runs().to_dict("records"):
        values = {name: row[name] for name in BASE.to_dict()}
        values = {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()}
        assert RunConfig.from_dict(values).run_id == row["run_id"]


def test_a_measurement_with_a_known_key_is_not_added_again(tmp_path):
    path = tmp_path / "speed.csv"
    published.add_rows(path, [{"n": 1, "seconds": 0.1 + 0.2}], key=("n",))
    published.add_rows(path, [{"n": 1, "seconds": 5.0}, {"n": 2, "seconds": 1.0, "note": "new"}], key=("n",))
    assert path.read_text() == "n,seconds,note\n1,0.30000000000000004,\n2,1.0,new\n"


def test_a_number_of_images_and_a_share_of_them_stay_what_they_are_in_one_table(tmp_path):
    for size in (20_000, 0.5, None):
        run = RunConfig(train_size=size)
        runs.write_record(tmp_path, {"run_id": run.run_id, **run.to_dict()}, [])
    sizes = list(runs.read_runs(tmp_path)["train_size"])
    assert sorted(map(repr, sizes)) == ["0.5", "20000", "None"]

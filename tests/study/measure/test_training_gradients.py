"""What the scores are told during a training, watched on a run of seconds."""

from dataclasses import replace

import pytest

from smooth_topk.study.experiments import registry
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.figures.training_gradients import training_gradients
from smooth_topk.study.measure.training_gradients import main, watch, watched_runs
from smooth_topk.study.records.training_gradients import read_training_gradients

SMALL = RunConfig(
    dataset="cifar100_features", model="head", train_size=200, epochs=2, batch_size=50, loss="smooth", tau=1.0
)


@pytest.fixture(scope="module")
def watched():
    return {config.loss: watch(config, images=60) for config in (SMALL, replace(SMALL, loss="hard"))}


def test_every_epoch_and_the_initial_weights_have_a_row(watched):
    assert [row["epoch"] for row in watched["smooth"]] == [0, 1, 2]
    assert {row["run_id"] for row in watched["smooth"]} == {SMALL.run_id}
    assert all(row["images"] == 60 and row["date"] and row["cpu"] for row in watched["smooth"])


def test_the_smooth_loss_tells_every_class_and_the_hard_loss_two_per_sample(watched):
    assert [row["share"] for row in watched["smooth"]] == [1.0] * 3
    assert all(0 < row["share"] <= 2 / 100 for row in watched["hard"])


def test_the_true_class_rises_during_the_training(watched):
    first, last = watched["smooth"][0], watched["smooth"][-1]
    assert first["rank"] > 20
    assert last["rank"] < first["rank"] / 2
    assert last["norm"] > 0


def test_the_watched_runs_are_recorded_runs_of_the_chapters():
    known = {run.run_id for runs in (registry.figure_2_temperature, registry.table_1_noise) for run in runs("laptop")}
    assert {run.run_id for run in watched_runs()} <= known


def test_what_is_recorded_is_not_trained_again_and_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("smooth_topk.study.measure.training_gradients.watched_runs", lambda: (SMALL,))
    assert main(["--output", str(tmp_path)]) == 0
    monkeypatch.setattr("smooth_topk.study.measure.training_gradients.watch", lambda *_: pytest.fail("trained again"))
    assert main(["--output", str(tmp_path)]) == 0
    table = read_training_gradients(tmp_path)
    axes = training_gradients(table)
    assert axes[0].lines[0].get_ydata().tolist() == (100 * table["share"]).tolist()
    assert axes[2].lines[0].get_ydata().tolist() == table["rank"].tolist()

"""Step times: measured on this machine, kept per device, found again, and turned into the time of a run."""

from dataclasses import replace

import pytest

from smooth_topk.study.experiments.expected_cost import StepTime, expected_seconds, images_of, step_kind
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure import step_times
from smooth_topk.study.measure.step_times import measure_step_times, read_step_times, save_step_times
from smooth_topk.study.training.loop import OutOfMemoryError

FEATURES = RunConfig(dataset="cifar100_features", model="head", batch_size=128, epochs=3)
SMALL = RunConfig(loss="smooth", train_size=1_000, epochs=2, batch_size=32)


@pytest.fixture(scope="module")
def table():
    found, failures = measure_step_times([SMALL, FEATURES, replace(SMALL, seed=1)], rounds=1)
    assert failures == []
    return found


def test_every_kind_of_step_is_timed_once(table):
    assert table["model"].tolist() == ["small", "head"]
    assert (table["step_seconds"] > 0).all()
    assert (table["evaluated_image_seconds"] > 0).all()
    assert table["images_per_second"].tolist() == pytest.approx((table["batch_size"] / table["step_seconds"]).tolist())
    assert table["timed_batch"].tolist() == [32, 128]


def test_a_large_network_is_timed_with_a_smaller_batch_on_a_cpu():
    assert step_times._cpu_batch(RunConfig(dataset="cifar100", model="densenet40_40_bc", batch_size=64)) == 8
    assert step_times._cpu_batch(RunConfig(dataset="cifar100", model="small", batch_size=128)) == 128


def test_the_time_of_a_run_is_that_of_its_steps_and_evaluations():
    times = {step_kind(SMALL): StepTime(step=0.5, evaluated_image=0.01)}
    training, evaluated = images_of(SMALL)
    assert (training, evaluated) == (2_000, 2 * 500 + 2_000)
    assert expected_seconds(SMALL, "gpu", times) == pytest.approx(2_000 / 32 * 0.5 + 3_000 * 0.01)
    other = replace(SMALL, batch_size=64)
    assert expected_seconds(other, "gpu", times) == expected_seconds(other, "gpu"), "the assumption holds for it"


def test_what_was_measured_is_found_again_and_other_kinds_stay(table, tmp_path):
    assert read_step_times(tmp_path) is None
    path = save_step_times(table[:1], tmp_path)
    assert save_step_times(table.assign(step_seconds=2.0)[1:], tmp_path) == path
    found = read_step_times(tmp_path)
    assert not found.on_gpu
    assert found.device == table["cpu"][0]
    assert found.times[step_kind(SMALL)].step == pytest.approx(table["step_seconds"][0], rel=1e-5)  # six digits
    assert found.times[step_kind(FEATURES)].step == 2.0
    assert found.memory[step_kind(SMALL)] == (table["memory_bytes"][0], "computed")


def test_this_device_comes_before_another_and_another_before_none(table, tmp_path):
    card = table.assign(device="A Card 80GB", memory_from="measured")
    other = save_step_times(card, tmp_path)
    assert other.name == "step_times-a-card-80gb.csv"
    assert read_step_times(tmp_path).device == "A Card 80GB"
    assert read_step_times(tmp_path).on_gpu
    save_step_times(table, tmp_path)
    other.touch()
    assert not read_step_times(tmp_path).on_gpu


def test_a_damaged_file_is_named(table, tmp_path):
    path = save_step_times(table, tmp_path)
    path.write_text("model,step_seconds\nsmall,fast\n")
    with pytest.raises(ValueError, match=rf"{path.name} cannot be read .*: delete it, and measure again"):
        read_step_times(tmp_path)


def test_a_network_that_does_not_fit_is_named_and_the_others_are_timed(monkeypatch):
    real = step_times._measured

    def too_large(config, *others):
        if config.model == "small":
            raise OutOfMemoryError("too large")
        return real(config, *others)

    monkeypatch.setattr(step_times, "_measured", too_large)
    found, failures = measure_step_times([SMALL, FEATURES], rounds=1)
    assert found["model"].tolist() == ["head"]
    assert failures == ["A step of small with 32 images does not fit into the memory of cpu: its time is left to the "
                        "assumption."]  # fmt: skip

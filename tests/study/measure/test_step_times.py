"""Step times: measured on this machine, kept per device, found again, and turned into the time of a run."""

from dataclasses import replace

import pandas as pd
import pytest

from smooth_topk.study.experiments.expected_cost import StepTime, expected_seconds, images_of, step_kind
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure.step_times import network_of, read_speed, save_step_times, step_times

FEATURES = RunConfig(dataset="cifar100_features", model="head", batch_size=128, epochs=3)
SMALL = RunConfig(loss="smooth", train_size=1_000, epochs=2, batch_size=32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SMOOTH_TOPK_RUNS", str(tmp_path))
    return tmp_path / "smoke"


def test_every_kind_of_step_is_timed_once_and_found_again(folder):
    assert read_speed("smoke").times == {}
    text = save_step_times("smoke", [SMALL, FEATURES, replace(SMALL, seed=1)])
    (file,) = folder.iterdir()
    assert str(file) in text
    table = pd.read_csv(file)
    assert table["model"].tolist() == ["small", "head"]
    assert (table[["step_seconds", "evaluated_image_seconds"]] > 0).all(axis=None)
    speed = read_speed("smoke")
    assert set(speed.times) == {step_kind(SMALL), step_kind(FEATURES)}
    assert speed.kind == "cpu"
    assert table["cpu"][0] in speed.device
    assert speed.times[step_kind(SMALL)].step == pytest.approx(table["step_seconds"][0], rel=1e-5)  # six digits


def test_a_login_node_shows_what_was_measured_on_a_gpu(folder):
    save_step_times("smoke", [FEATURES])
    (file,) = folder.iterdir()
    pd.read_csv(file).assign(device="A Card 80GB").to_csv(file, index=False)
    assert (read_speed("smoke").kind, "A Card 80GB" in read_speed("smoke").device) == ("gpu", True)


def test_a_large_network_is_timed_with_a_smaller_batch_on_a_cpu(monkeypatch):
    sizes = []

    def network(*names):
        made = network_of(*names)
        made.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
        return made

    monkeypatch.setattr("smooth_topk.study.measure.step_times.network_of", network)
    monkeypatch.setattr("smooth_topk.study.measure.step_times.CPU_STEP_SECONDS", 0.01)
    found = step_times(replace(SMALL, batch_size=128))
    assert set(sizes) == {8}
    assert found["images_per_second"] == pytest.approx(128 / found["step_seconds"])


def test_the_time_of_a_run_is_that_of_its_steps_and_evaluations():
    times = {step_kind(SMALL): StepTime(step=0.5, evaluated_image=0.01)}
    training, evaluated = images_of(SMALL)
    assert (training, evaluated) == (2_000, 2 * 500 + 2_000)
    assert expected_seconds(SMALL, "gpu", times) == pytest.approx(2_000 / 32 * 0.5 + 3_000 * 0.01)
    other = replace(SMALL, batch_size=64)
    assert expected_seconds(other, "gpu", times) == expected_seconds(other, "gpu"), "the assumption holds for it"

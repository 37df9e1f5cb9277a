import json
import math
import random
import signal
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from PIL import Image
from small_runs import assert_same_results, assert_same_weights, fit_small, small_config, start_fit

from smooth_topk.study.data import imagenet
from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments.paper_runs import table_1_noise
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.endings import ended_in_order
from smooth_topk.study.records.evidence import epochs_of, published
from smooth_topk.study.records.runs import read_epochs, read_runs, unpacked
from smooth_topk.study.training import __main__ as command
from smooth_topk.study.training import fit as fit_module
from smooth_topk.study.training.evaluation import evaluate
from smooth_topk.study.training.loop import Run
from smooth_topk.study.training.models import build_model
from smooth_topk.study.training.schedules import learning_rate_at, loss_at, tau_at


def test_a_run_learns_and_records_every_epoch_and_both_tests(reference):
    runs, epochs = read_runs(reference / "results"), read_epochs(reference / "results")
    row = runs.iloc[0]
    assert row["status"] == "finished"
    assert row["test_top1"] > 2 / 6  # twice better than guessing
    assert epochs["epoch"].tolist() == [0, 1, 2]
    assert epochs["train_loss"].iloc[-1] < epochs["train_loss"].iloc[0]
    best = epochs["validation_top5"].to_numpy().argmax()
    assert row["best_epoch"] == best
    assert row["validation_top5"] == epochs["validation_top5"][best]
    assert row["last_validation_top1"] == epochs["validation_top1"].iloc[-1]
    assert (runs[["seconds", "images_per_second", "parameters"]] > 0).all(axis=None)
    assert runs[["device", "cpu", "machine", "python", "torch", "package", "commit", "date"]].notna().all(axis=None)


def test_the_recorded_test_figures_are_those_of_the_best_and_of_the_last_weights(data, tmp_path, monkeypatch):
    # A rate that destroys the network late: the best epoch is not the last.
    config = small_config(schedule="steps", epochs=3)
    real, tests = Run._evaluate, []

    def evaluate(run, batches, with_loss=False, **options):
        found = real(run, batches, with_loss=with_loss, **options)
        if not with_loss:
            tests.append(found)
        elif run.progress.epoch > 0:
            found["top5"] = 0.0
        return found

    monkeypatch.setattr(Run, "_evaluate", evaluate)
    record = fit_small(tmp_path, data, config)
    assert record["best_epoch"] == 0
    assert len(tests) == 2
    assert [record["last_test_top1"], record["test_top1"]] == [found["top1"] for found in tests]
    assert tests[0] != tests[1]
    hits = unpacked(record["test_hits"], len(load_data(config, data).test))
    assert hits.mean() == pytest.approx(tests[1]["top5"])


def test_a_recorded_run_is_not_trained_again(reference, data, monkeypatch):
    monkeypatch.setattr(fit_module, "Run", None)
    record = fit_small(reference, data)
    assert record["run_id"] == small_config().run_id
    assert len(read_runs(reference / "results")) == 1


def test_the_same_run_twice_gives_the_same_bits(reference, data, tmp_path):
    fit_small(tmp_path, data, keep_best=True)
    assert_same_results(tmp_path, reference)
    assert_same_weights(tmp_path, reference)


def test_checkpoints_go_when_the_run_is_recorded_and_best_weights_stay_if_asked(reference, data, tmp_path):
    fit_small(tmp_path, data)
    assert list((tmp_path / "runs").iterdir()) == []
    folder = reference / "runs" / small_config().run_id
    assert [path.name for path in folder.iterdir()] == ["best.pt"]


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(reference, data, tmp_path):
    """SIGKILL at random times after the run has begun, with a checkpoint after every step, until three have hit it."""
    moments, hits = random.Random(0), 0
    run_folder = tmp_path / "runs" / small_config().run_id
    while hits < 3:
        pace = 0.1 if hits else 1.0  # the first kill always hits: after the first checkpoint 20 seconds are left
        process = start_fit(tmp_path, data, checkpoint_minutes=0, keep_best=True, seconds_per_step=pace)
        while process.is_alive() and not list(run_folder.glob("checkpoint-*")):
            time.sleep(0.005)
        process.join(timeout=moments.uniform(0.0, 0.5))
        if process.exitcode == 0:
            break
        process.kill()
        process.join()
        hits += 1
    fit_small(tmp_path, data, keep_best=True)
    assert hits > 0
    assert read_runs(tmp_path / "results")["resumes"].item() > 0
    assert_same_results(tmp_path, reference)
    assert_same_weights(tmp_path, reference)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "smooth", "tau": 1.0, "tau_final": 0.1, "schedule": "cosine"},
        {"loss": "noised_topk", "k": 2},
        {"loss": "hard", "k": 2, "schedule": "steps", "milestones": (1, 2)},
        {"loss": "smooth", "k": 3, "precision": "bf16-mixed", "augment": False},
        {"precision": "64-true", "momentum": 0.0, "nesterov": False, "train_size": 60},
    ],
)
def test_every_loss_schedule_and_precision_resumes_within_an_epoch_to_the_same_bits(data, tmp_path, changes):
    config = small_config(epochs=2, **changes)
    fit_small(tmp_path / "whole", data, config)
    for write in (3, 7):  # one fsync per checkpoint, one checkpoint per step
        process = start_fit(tmp_path / "cut", data, config, checkpoint_minutes=0, die_at_write=write)
        process.join()
        assert process.exitcode == -9
    fit_small(tmp_path / "cut", data, config)
    assert read_runs(tmp_path / "cut" / "results")["resumes"].item() > 0
    assert_same_results(tmp_path / "cut", tmp_path / "whole")


def test_a_published_run_is_reproduced_to_the_last_digit(tmp_path):
    """One cross-entropy run of Table 1 on features, retrained."""
    (config,) = [
        run
        for run in table_1_noise("quick", seeds=(0,))
        if (run.loss, run.noise_level, run.noise_grouping) == ("cross_entropy", 0.4, "superclass")
    ]
    fit_small(tmp_path, None, config)
    expected = published([config]).dropna(axis=1)
    columns = ["run_id", "best_epoch", *(name for name in expected if "_top" in name)]
    assert_frame_equal(read_runs(tmp_path / "results")[columns], expected[columns], check_exact=True)
    epochs, known = read_epochs(tmp_path / "results"), epochs_of(expected).reset_index(drop=True).dropna(axis=1)
    columns = [name for name in known if name not in ("seconds", "images_per_second")]
    assert_frame_equal(epochs[columns], known[columns], check_exact=True)


@pytest.mark.parametrize("loss", ["lapsum", "aldr_kl", "logit_adjusted"])
def test_losses_with_options_train_on_a_long_tail(data, tmp_path, loss):
    options = {"lapsum": {"scale": 0.5}, "aldr_kl": {"adaptivity": 3.0}, "logit_adjusted": {"adjustment": 0.5}}[loss]
    config = small_config(loss=loss, k=2, loss_options=options, imbalance=4.0, epochs=2)
    record = fit_small(tmp_path, data, config)
    assert record["status"] == "finished"
    assert record["train_images"] < 120
    assert np.diff(read_epochs(tmp_path / "results")["train_loss"])[0] < 0


def test_a_run_on_a_cpu_uses_one_thread_whatever_a_notebook_has_set(data, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert fit_small(tmp_path, data, small_config(epochs=1))["threads"] == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_rate_follows_the_schedules_of_the_paper():
    imagenet = RunConfig(schedule="steps", milestones=(30, 60, 90), epochs=120, learning_rate=1.0)
    rates = [learning_rate_at(imagenet, epoch, 7, 100) for epoch in (0, 29, 30, 60, 119)]
    np.testing.assert_allclose(rates, [1, 1, 0.1, 0.01, 0.001])


@pytest.mark.parametrize("schedule", ["one_cycle", "cosine"])
def test_a_smooth_schedule_reaches_its_highest_rate_and_falls_to_almost_zero(schedule):
    config = RunConfig(schedule=schedule, epochs=10, learning_rate=0.4)
    rates = [learning_rate_at(config, epoch, batch, 50) for epoch in range(10) for batch in range(50)]
    highest = int(np.argmax(rates))
    assert max(rates) == pytest.approx(0.4, rel=1e-2)
    assert 0 < rates[-1] < 1e-4
    assert highest == {"one_cycle": 150, "cosine": 0}[schedule]
    assert all(np.diff(rates[highest:]) < 0)
    assert all(np.diff(rates[:highest]) > 0)


def test_tau_goes_geometrically_to_its_final_value():
    config = RunConfig(loss="smooth", tau=10.0, tau_final=0.1, epochs=5)
    taus = [tau_at(config, epoch) for epoch in range(5)]
    assert (taus[0], taus[-1]) == (10.0, 0.1)
    ratios = np.array(taus[1:]) / np.array(taus[:-1])
    np.testing.assert_allclose(ratios, ratios[0])
    assert tau_at(RunConfig(loss="smooth", tau=10.0, tau_final=0.1, epochs=1), 0) == 10.0


def test_a_second_cycle_fine_tunes_with_a_tenth_of_the_rate_and_tau_falls_there_alone():
    config = RunConfig(loss="smooth", tau=1.0, tau_final=0.01, epochs=20, cycles=2, learning_rate=0.4)
    once = replace(config, epochs=10, cycles=1)
    rates, first = ([learning_rate_at(c, epoch, 7, 50) for epoch in range(c.epochs)] for c in (config, once))
    np.testing.assert_allclose(rates, [*first, *(rate / 10 for rate in first)])
    taus = [tau_at(config, epoch) for epoch in range(20)]
    assert taus[:11] == [1.0] * 11
    assert taus[-1] == 0.01
    assert all(np.diff(taus[10:]) < 0)


def test_the_loss_of_an_epoch_is_the_configured_one():
    scores, labels = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 6
    k1 = RunConfig(loss="smooth", k=1, tau=1.0, margin=0.0)
    torch.testing.assert_close(loss_at(k1, 0)(scores, labels), loss_at(RunConfig(), 0)(scores, labels))
    sharp = RunConfig(loss="smooth", k=2, tau=1.0, tau_final=1e-6, epochs=2)
    hard = loss_at(RunConfig(loss="hard", k=2), 0)(scores, labels)
    torch.testing.assert_close(loss_at(sharp, 1)(scores, labels), hard, atol=1e-4, rtol=0)
    assert not math.isclose(loss_at(sharp, 0)(scores, labels), hard, rel_tol=1e-2)


def test_epochs_are_told_as_they_end(data, tmp_path):
    told = []
    fit_small(tmp_path, data, on_epoch=told.append)
    assert pd.DataFrame(told)["epoch"].tolist() == [0, 1, 2]


def test_the_command_line_trains_and_prints_the_record(data, tmp_path, capsys):
    folders = ["--records", str(tmp_path / "results"), "--checkpoints", str(tmp_path / "runs"), "--data", data]
    assert command.main(['{"dataset": "cifar100", "epochs": 1, "batch_size": 16}', *folders]) == 0
    record = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)  # NaN is not JSON
    assert record["status"] == "finished"
    assert record["tau_final"] is None


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ('{"epochs": 0}', "epochs=0"),
        ("[1]", "[1]"),
        ("null", "None"),
        ("{epochs: 3}", "'{epochs: 3}'"),
        ('{"precision": "16-mixed"}', "'16-mixed'"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_with_its_value(config, value, tmp_path, caplog):
    folders = ["--records", str(tmp_path / "results"), "--checkpoints", str(tmp_path / "runs")]
    assert command.main([config, *folders]) == 1
    assert value in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("place", ["load_data", "Run.train_epoch"], ids=["before training", "while training"])
def test_a_signal_ends_the_command_line_with_its_code(number, code, place, data, tmp_path, monkeypatch, capsys):
    whole, _, part = place.rpartition(".")
    owner = getattr(fit_module, whole) if whole else fit_module
    real = getattr(owner, part)

    def signalled(*arguments, **options):
        signal.raise_signal(number)
        return real(*arguments, **options)

    monkeypatch.setattr(owner, part, signalled)
    folders = ["--records", str(tmp_path / "results"), "--checkpoints", str(tmp_path / "runs"), "--data", data]
    arguments = ['{"dataset": "cifar100", "epochs": 1, "batch_size": 16}', *folders]
    assert ended_in_order(lambda: command.main(arguments)) == code
    assert number.name in capsys.readouterr().err


class FixedScores(torch.nn.Module):
    """Answers every crop with the same scores, one class far above the next."""

    def __init__(self, gap):
        super().__init__()
        self.scores = torch.nn.Parameter(-gap * torch.arange(8.0))

    def forward(self, images):
        return self.scores.expand(len(images), -1)


def test_marginals_that_are_all_one_in_float32_do_not_tie():
    """The fifth of five likely classes is not the most likely one, though both have a marginal of 1 - 1e-11."""
    batches = [(torch.zeros(2, 10, 3, 4, 4), torch.tensor([4, 4]))]
    found = evaluate(FixedScores(gap=25.0), batches, k=5)
    assert found["ten_crop_marginals_top1"] == 0.0
    assert found["ten_crop_marginals_top5"] == 1.0


class TwoViews(torch.nn.Module):
    """Sees the classes 0 and 1 in the first five of ten crops, and the classes 1 and 2 in the others."""

    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Parameter(torch.tensor([[10.0, 9.0, 0.0], [0.0, 9.0, 10.0]]))

    def forward(self, images):
        return self.scores[torch.arange(len(images)) % 10 // 5]


def test_averaged_marginals_prefer_the_class_that_every_crop_has_among_its_first_two():
    found = evaluate(TwoViews(), [(torch.zeros(2, 10, 3, 4, 4), torch.tensor([1, 1]))], k=2)
    assert found["ten_crop_marginals_top1"] == 1.0
    assert found["ten_crop_softmax_top1"] == found["top1"] == 0.0


def test_an_evaluation_without_an_image_says_so():
    with pytest.raises(ValueError, match="There is no image to evaluate"):
        evaluate(FixedScores(gap=1.0), [])


def test_the_test_of_a_run_with_ten_crops_averages_them_with_the_best_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(imagenet, "RESIZED", 40)
    monkeypatch.setattr(imagenet, "CROP", 32)
    random = np.random.default_rng(0)
    for part, count in {"train": 52, "val": 3}.items():
        for number, name in enumerate(("n01440764", "n02085620", "n02086240")):
            (tmp_path / "imagenet" / part / name).mkdir(parents=True)
            for image in range(count):
                pixels = random.normal(60 + 60 * number, 60, (40, 50, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / "imagenet" / part / name / f"{image}.JPEG")
    config = RunConfig(dataset="imagenet", model="small", ten_crop=True, epochs=2, batch_size=3, loss="smooth", k=2)
    real, of_best_weights = Run._evaluate, iter([False, True])

    def evaluate(run, batches, with_loss=False, **options):
        found = real(run, batches, with_loss=with_loss, **options)
        return found if with_loss or next(of_best_weights) else dict.fromkeys(found, -1.0)

    monkeypatch.setattr(Run, "_evaluate", evaluate)
    record = fit_small(tmp_path, tmp_path, config, keep_best=True)
    assert record["best_epoch"] == 0  # of three classes every epoch finds all among five, so the first is not surpassed
    network = build_model("small", 3)
    network.load_state_dict(torch.load(tmp_path / "runs" / config.run_id / "best.pt", weights_only=True))
    network.eval()
    hits = dict.fromkeys(("", "softmax_", "marginals_"), 0)
    with torch.no_grad():
        for crops, labels in load_data(config, tmp_path, workers=0).test_batches():
            assert crops.shape[1:] == (10, 3, 32, 32)
            for image, label in zip(crops, labels, strict=True):
                scores = network(image).double()
                # The class that a pair leaves out: the marginal of a class is the weight of the pairs that have it.
                left_out = (scores.sum(dim=1, keepdim=True) - scores).softmax(dim=1)
                hits[""] += int(scores[4].argmax() == label)
                hits["softmax_"] += int(scores.softmax(dim=1).mean(dim=0).argmax() == label)
                hits["marginals_"] += int((1 - left_out).mean(dim=0).argmax() == label)
    assert record["test_top1"] == hits[""] / 9
    assert record["ten_crop_softmax_top1"] == hits["softmax_"] / 9
    assert record["ten_crop_marginals_top1"] == hits["marginals_"] / 9
    assert record["ten_crop_marginals_top5"] == 1.0

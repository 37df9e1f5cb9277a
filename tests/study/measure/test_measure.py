"""The benchmark's instruments: clocks, memory, exponents, errors; no test looks at how long something takes."""

import time
from dataclasses import replace

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from reference import reference_gradient, reference_loss
from torch.nn import functional as F

from smooth_topk import smooth_topk_loss
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.measure import contenders, errors, exact, ten_crops, timing
from smooth_topk.study.measure.training_step import measure_training_step

mpl.use("agg")
TINY = measure.Settings(
    sizes=(20,), paper_sizes=(20,), peer_sizes=(20,), ks=(1, 3), cases=((4, 20, 3),), taus=(1.0,), threads=(1,),
    models=("small",), batch=4, rounds=1, sample_seconds=1e-4, budget=0.0,
    algorithms=("cross_entropy", "summation", "divide_and_conquer", "divide_and_conquer_autograd", "pivot"),
)  # fmt: skip
FLOAT32_LOSS, FLOAT32_GRADIENT = 2e-6, 1e-5  # the package's promise
LEFT_OF_FIFTY_DIGITS = 1e-45  # both subtract two probabilities that may be near one
FLOAT64_LOSS, FLOAT64_GRADIENT = 1e-12, 1e-11


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def clock(monkeypatch):
    """A machine whose clocks the test sets: seconds of wall, of this process, of the whole machine."""
    times = {"wall": 0.0, "own": 0.0, "machine": 0.0}
    monkeypatch.setattr(timing.time, "perf_counter", lambda: times["wall"])
    monkeypatch.setattr(timing.time, "process_time", lambda: times["own"])
    monkeypatch.setattr(timing, "machine_busy", lambda: times["machine"])
    return times


def worker(clock, seconds, others=lambda: 0.0):
    def work():
        clock["wall"] += seconds
        clock["own"] += seconds
        clock["machine"] += seconds + others()

    return work


def test_the_time_of_a_call_is_that_of_a_sample_divided_by_its_repeats(clock):
    timings = timing.interleave({"slow": worker(clock, 0.5), "fast": worker(clock, 0.001)}, rounds=4)
    assert timings["slow"].seconds == pytest.approx(0.5)
    assert timings["fast"].seconds == pytest.approx(0.001)
    assert (timings["fast"].samples, timings["fast"].dropped, timings["fast"].quiet) == (4, 0, True)
    assert timings["slow"].samples == 5  # its second warm-up was long enough for a sample


def test_samples_that_others_disturb_are_dropped_counted_and_taken_again(clock):
    calls = []

    def others():
        calls.append(1)
        return 5.0 if len(calls) % 3 == 0 else 0.0

    found = timing.interleave({"work": worker(clock, 1.0, others)}, rounds=5)["work"]
    assert found.quiet
    assert found.samples == 5
    assert found.dropped >= 2


def test_on_a_busy_machine_all_samples_count_and_the_row_says_so(clock):
    found = timing.interleave({"work": worker(clock, 1.0, lambda: 1.0)}, rounds=2)["work"]
    assert not found.quiet
    assert found.samples == 1 + timing.PATIENCE * 2
    assert found.seconds == pytest.approx(1.0)


def test_functions_take_turns_and_the_order_turns_too(clock):
    seen = []
    calls = {name: (lambda name=name: (seen.append(name), worker(clock, 1.0)())) for name in "ab"}
    timing.interleave(calls, rounds=3)
    assert "".join(seen) == "aabb" + "abba"  # warm-up, then two rounds


def test_no_round_starts_after_the_budget_once_there_are_three(clock):
    found = timing.interleave({"work": worker(clock, 10.0)}, rounds=9, budget=15.0)["work"]
    assert found.samples == timing.FEWEST


def test_the_machine_is_at_least_as_busy_as_this_process():
    busy, own, end = timing.machine_busy(), time.process_time(), time.perf_counter() + 0.2
    while time.perf_counter() < end:
        pass
    assert timing.machine_busy() - busy >= time.process_time() - own - timing.CLOCK_TICKS


def test_peak_memory_counts_what_is_alive_at_once_and_what_operators_hide():
    scores = torch.randn(64, 1000, requires_grad=True)
    labels = torch.zeros(64, dtype=torch.long)
    assert measure.peak_bytes(lambda: torch.zeros(1000)) == 4000
    assert measure.peak_bytes(lambda: [torch.zeros(1000).sum() for _ in range(5)]) < 2 * 4000
    peak = measure.peak_bytes(lambda: torch.autograd.grad(F.cross_entropy(scores, labels), scores))
    assert 2 * scores.nbytes <= peak <= 4 * scores.nbytes  # log-probabilities, and the gradients on the way back


def test_pivot_allocates_at_most_twice_what_cross_entropy_does():
    table = measure.measure_memory(replace(TINY, sizes=(1000,), batch=256)).set_index("algorithm")
    assert table.loc["pivot", "ratio"] <= 2
    assert table.loc["divide_and_conquer", "ratio"] > table.loc["pivot", "ratio"]


def test_an_exponent_is_that_of_the_time_of_a_sample():
    times = pd.DataFrame({"algorithm": "a", "n": [100, 1000, 10_000], "batch": [8, 8, 4], "seconds": [9, 8.0, 400.0]})
    fit = measure.fit_exponents(times, "n").iloc[0]
    assert fit["exponent"] == pytest.approx(2.0)  # a hundred times for ten times the classes; n = 100 does not count
    assert (fit["smallest"], fit["largest"], fit["points"]) == (1000, 10_000, 2)
    with pytest.raises(ValueError, match="variable='tau'"):
        measure.fit_exponents(times, "tau")


@pytest.mark.parametrize(
    ("section", "algorithms"),
    [
        ("measure_forward", {"cross_entropy", "summation", "divide_and_conquer", "pivot"}),
        ("measure_backward", {"cross_entropy", "divide_and_conquer_autograd", "divide_and_conquer", "pivot"}),
        ("measure_loss", {"cross_entropy", "divide_and_conquer", "pivot"}),
        ("measure_k_sweep", {"cross_entropy", "pivot"}),
        ("measure_cases", {"cross_entropy", "pivot"}),
    ],
)
def test_a_timed_section_has_a_row_for_each_algorithm_beside_cross_entropy(section, algorithms):
    table = getattr(measure, section)(TINY)
    assert set(table["algorithm"]) == algorithms
    assert (table["seconds"] > 0).all()
    assert (table[table["algorithm"] == "cross_entropy"]["ratio"] == 1).all()


def test_errors_stand_beside_the_times():
    table = measure.measure_loss(TINY).set_index("algorithm")
    assert 0 < table.loc["pivot", "gradient_error"] < FLOAT32_GRADIENT
    assert pd.isna(table.loc["cross_entropy", "gradient_error"])


def test_a_training_step_is_timed_with_both_losses():
    table = measure_training_step(TINY)
    assert table["loss"].tolist() == ["cross_entropy", "smooth"]
    assert table["extra"].iloc[0] == 0


def test_peers_that_are_absent_or_fail_are_named_with_the_reason(monkeypatch):
    installed = contenders.importlib.util.find_spec
    monkeypatch.setattr(
        contenders.importlib.util, "find_spec", lambda name: None if name == "pytopk" else installed(name)
    )
    found, missing = measure.find_peers()
    assert missing["pytopk"] == "pytopk is not installed: pip install 'smooth-topk[peers]'"
    assert not any(name.startswith("pytopk") for name in found)


def test_without_a_compiler_pivot_is_not_compiled(monkeypatch):
    monkeypatch.setattr(contenders.shutil, "which", lambda name: None)
    found, missing = measure.find_contenders()
    assert "pivot_compiled" not in found
    assert "C++ compiler" in missing["pivot_compiled"]


def test_triton_kernels_are_left_out_on_a_cpu():
    assert "--device cuda" in measure.find_contenders("cpu")[1]["fused_triton"]


def test_the_exact_module_agrees_with_the_tests_own_reference():
    scores, labels = errors.grid_scores(3, 12)
    scores = 10 * scores
    losses, gradients = exact.exact_loss(scores, labels, k=3, tau=0.01)
    for row, label, loss, gradient in zip(scores.tolist(), labels.tolist(), losses, gradients, strict=True):
        assert float(loss) == pytest.approx(float(reference_loss(row, label, 3, 0.01)), rel=1e-15)
        truth = [float(value) for value in reference_gradient(row, label, 3, 0.01)]
        assert gradient.tolist() == pytest.approx(truth, rel=1e-14, abs=LEFT_OF_FIFTY_DIGITS)


def test_stability_tells_overflow_from_error():
    generator = torch.Generator().manual_seed(0)
    scores, labels = 10 * torch.randn(3, 30, generator=generator), torch.tensor([0, 1, 2])
    table = measure.measure_stability(scores, labels, taus=(1.0, 0.01)).set_index(["algorithm", "dtype", "tau"])
    assert not table.loc[("summation", "float32", 0.01), "stable"]
    assert table.loc[("divide_and_conquer", "float32", 0.01), "stable"]
    pivot = table.loc["pivot"]
    assert pivot["stable"].all()
    assert pivot.loc["float32", "error"].max() < FLOAT32_LOSS
    assert pivot.loc["float64", "gradient_error"].max() < FLOAT64_GRADIENT


def test_the_grid_of_errors_holds_pivot_to_its_promise_and_finds_the_worst_cell():
    grid = measure.accuracy_grid(taus=(1.0, 1e-4), scales=(1.0, 100.0), sizes=((1, 2), (5, 6), (3, 40)))
    assert set(grid["algorithm"]) >= {"pivot", "summation", "divide_and_conquer"}
    worst = measure.worst_errors(grid, by=("algorithm", "dtype")).set_index(["algorithm", "dtype"])
    assert worst.loc[("pivot", "float32"), "loss_error"] < FLOAT32_LOSS
    assert worst.loc[("pivot", "float32"), "gradient_error"] < FLOAT32_GRADIENT
    assert worst.loc[("pivot", "float64"), "loss_error"] < FLOAT64_LOSS
    assert worst.loc[("pivot", "float64"), "gradient_error"] < FLOAT64_GRADIENT
    assert worst.loc[("summation", "float32"), "loss_error"] == float("inf")
    assert "tau 0.0001" in worst.loc[("summation", "float32"), "loss_error_at"]


def test_the_grid_holds_ties_equal_scores_and_a_deleted_class():
    scores, labels = errors.grid_scores(3, 40)
    assert len(scores[1].unique()) == 3
    assert len(scores[2].unique()) == 1
    assert scores[3].isneginf().sum() == 1
    assert smooth_topk_loss(scores, labels, k=3).isfinite()


def test_ways_of_averaging_ten_crops_are_compared_on_the_same_images():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 8
    scores = torch.randn(40, 10, 8, generator=generator)
    scores += 2 * F.one_hot(labels, 8)[:, None]
    table = ten_crops.compare_ten_crops(scores, labels).set_index(["method", "metric"])
    one, baseline = table.loc[("one crop", "top1")], table.loc[(ten_crops.BASELINE, "top1")]
    assert one["accuracy"] < baseline["accuracy"]
    assert one["difference"] == pytest.approx(one["accuracy"] - baseline["accuracy"])
    assert one["low"] < one["accuracy"] < one["high"]
    assert baseline[["difference", "difference_low", "difference_high"]].tolist() == [0, 0, 0]


def test_one_crop_is_the_central_one_and_marginals_of_one_class_are_the_softmax():
    scores = torch.randn(3, 10, 6, generator=torch.Generator().manual_seed(0))
    answers = ten_crops.crop_answers(scores, k=1)
    assert torch.equal(answers["one crop"], scores[:, 4].double())
    torch.testing.assert_close(answers["ten crops, top-1 marginals averaged"], answers[ten_crops.BASELINE])


def test_the_tables_of_costs_show_ratios_and_say_what_was_not_run():
    times = pd.DataFrame(
        [
            ("cross_entropy", 100, 1.0, 1.0, float("nan")),
            ("pivot", 100, 12.0, 12.0, 3e-8),
            ("pivot", 1000, 0.0025, 2.5, 5e-8),
        ],
        columns=["algorithm", "n", "seconds", "ratio", "gradient_error"],
    ).assign(threads=2, tau=1.0)
    table = tables.cost_table(times)
    assert table.loc[(2, "1", "pivot")].tolist() == ["12,000 (12x)", "2.50 (2.5x)", "5e-08"]
    assert table.loc[(2, "1", "cross-entropy"), "n = 1,000"] == "not run"
    batches = tables.cost_table(times.assign(batch=[256, 256, 32]))
    assert batches.columns.tolist()[:2] == ["n = 100, batch 256", "n = 1,000, batch 32"]


def test_a_table_of_costs_without_rows_says_not_recorded():
    assert tables.cost_table(pd.DataFrame()).index.tolist() == ["not recorded"]


def test_the_figure_of_costs_draws_the_time_of_one_sample():
    times = pd.DataFrame({"algorithm": "pivot", "n": [10, 100], "batch": [4, 2], "seconds": [4.0, 8.0], "k": [1, 2]})
    left, _ = figures.speed_figure(times)
    assert left.lines[0].get_ydata().tolist() == [1, 4]
    plt.close("all")

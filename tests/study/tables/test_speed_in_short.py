"""What README and chapter 7 say about time and memory is what the recorded benchmark says."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from smooth_topk.study.measure import find_contenders, peak_bytes
from smooth_topk.study.measure.speed import both_call
from smooth_topk.study.tables.speed_in_short import ratio_table, speed_in_short

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "book" / "results"


def recorded(section):
    return pd.read_csv(RESULTS / f"speed_{section}.csv")


def test_a_benchmark_that_was_not_run_is_said_to_be_missing(tmp_path):
    assert speed_in_short(tmp_path) == "not recorded\n"


def test_the_table_takes_all_threads_and_the_temperature_one():
    fixed = {"batch": 256, "n": 1000, "k": 5}
    rows = [
        {"algorithm": "pivot", **fixed, "tau": 1.0, "threads": 1, "ratio": 7.0},
        {"algorithm": "pivot", **fixed, "tau": 1.0, "threads": 2, "ratio": 15.85},
        {"algorithm": "pivot", **fixed, "tau": 0.1, "threads": 2, "ratio": 9.0},
        {"algorithm": "fused_numba", **fixed, "k": 50, "tau": 1.0, "threads": 2, "ratio": 0.654},
    ]
    table = ratio_table(pd.DataFrame(rows))
    assert table["k"].tolist() == ["5", "50"]
    assert table["plain torch"].tolist() == ["16", "not run"]
    assert table.iloc[1, 2] == "0.65"
    assert set(table["batch × n"]) == {"256 × 1,000"}


def test_chapter_7_speaks_of_memory_as_it_was_measured():
    """Less than cross-entropy with 1,000 classes, about half with more, and a third with the fused kernels."""
    ratios = recorded("memory").set_index(["algorithm", "n"])["ratio"]
    assert ratios["pivot", 1000] == pytest.approx(0.7, abs=0.05)
    assert max(ratios["pivot", 10_000], ratios["pivot", 100_000]) < 0.55
    assert all(ratios["fused_numba", n] == pytest.approx(1 / 3, abs=0.02) for n in (1000, 10_000, 100_000))


def test_the_memory_of_a_call_is_still_what_was_recorded():
    ratios = recorded("memory").set_index(["algorithm", "n"])["ratio"]
    scores, labels = torch.randn(256, 1000, requires_grad=True), torch.randint(1000, (256,))
    peaks = {}
    for name in ("cross_entropy", "pivot", "fused_numba"):
        loss = find_contenders()[0][name]
        peaks[name] = peak_bytes(both_call(loss, scores, labels, 5, 1.0))
    for name in ("pivot", "fused_numba"):
        assert peaks[name] / peaks["cross_entropy"] == pytest.approx(ratios[name, 1000], rel=0.1)


def test_chapter_7_speaks_of_time_as_it_was_measured():
    loss = recorded("loss")
    loss = loss[(loss["threads"] == loss["threads"].max()) & (loss["tau"] == 1)].set_index(["algorithm", "n"])["ratio"]
    assert loss["divide_and_conquer"].min() > 50
    assert loss["fused_numba", 100] > 1.5
    assert max(loss["fused_numba", 10_000], loss["fused_numba", 100_000]) < 1


def test_chapter_7_compares_the_backward_passes_as_they_were_measured():
    """The custom pass is nearly twice as fast up to 1,000 classes, and not faster from 10,000 on."""
    seconds = recorded("backward").set_index(["algorithm", "n"])["seconds"]
    faster = seconds["divide_and_conquer_autograd"] / seconds["divide_and_conquer"]
    assert faster[[100, 1000]].between(1.4, 2.5).all()
    assert faster[[10_000, 100_000]].max() < 1.1

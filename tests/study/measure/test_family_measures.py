"""The curves of the family and what its losses cost: slopes that are known, all losses, ratios to cross-entropy."""

from dataclasses import replace

import pytest
import torch

from smooth_topk.study.book.benchmark import QUICK
from smooth_topk.study.experiments.further_runs import FAMILY_LOSSES
from smooth_topk.study.losses import FAMILY
from smooth_topk.study.measure import family_curves
from smooth_topk.study.measure.family_cost import measure_family

OTHERS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -2.0])


def test_the_pull_is_minus_the_slope_of_the_curve():
    table = family_curves.family_curve_table(OTHERS, k=3, points=2401)
    assert set(table["loss"]) == set(FAMILY) - {"switched_topk", "logit_adjusted"}
    assert set(table["kth"]) == {0.5}
    for name, curve in table.groupby("loss"):
        slope = curve["value"].diff().iloc[1:].to_numpy() / curve["true_score"].diff().iloc[1:].to_numpy()
        pull = curve["pull"].rolling(2).mean().iloc[1:].to_numpy()
        # A draw of the noised loss adds a kink of 1 / 200, and the threshold has one per draw.
        tolerance = 0.02 if name == "noised_topk" else 1e-3
        wrong = (abs(slope + pull) > tolerance).sum()
        assert wrong <= 6, name  # only where a kink lies between two points


def test_known_slopes_of_hinges_far_below_the_kth_score():
    table = family_curves.family_curve_table(OTHERS, k=2)
    first = table.groupby("loss")["pull"].first()
    assert first["hard"] == pytest.approx(1 / 2)
    assert first["topk_hinge_alpha"] == pytest.approx(1.0)
    assert first["cross_entropy"] > 0.99
    assert (table.groupby("loss")["pull"].last() < 0.05).all()


def test_a_loss_without_its_package_is_left_out(monkeypatch):
    monkeypatch.setattr(family_curves.importlib.util, "find_spec", lambda package: None)
    table = family_curves.family_curve_table(OTHERS, k=2, points=5)
    assert set(FAMILY) - set(table["loss"]) == {"switched_topk", "logit_adjusted", "difftopk"}


def test_every_loss_of_the_comparison_is_timed_and_weighed_against_cross_entropy():
    threads = torch.get_num_threads()
    table = measure_family(replace(QUICK, rounds=1, sample_seconds=1e-4, budget=0.0)).set_index("loss")
    torch.set_num_threads(threads)
    assert table.index.tolist() == [name for name in FAMILY_LOSSES if name != "top-5 transition"]
    assert table.loc["cross-entropy", ["ratio", "memory_ratio"]].tolist() == [1.0, 1.0]
    assert (table["seconds"] > 0).all()
    assert (table["peak_bytes"] >= 128 * 100 * 4).all()  # the gradient of the scores at least
    assert table.loc["balanced noised top-5", "memory_ratio"] > 4  # it holds five draws of noise per score

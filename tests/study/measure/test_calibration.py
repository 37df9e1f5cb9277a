"""Calibration: the minimiser finds minima, the theory's closed forms hold, and the verdicts are those of the theory."""

import pandas as pd
import pytest
import torch

from smooth_topk import smooth_topk_loss, topk_probabilities
from smooth_topk.study.losses import FAMILY, noised_topk_loss
from smooth_topk.study.measure import calibration
from smooth_topk.study.measure.calibration import Case, Distribution, cases, distributions, measure_case
from smooth_topk.study.measure.calibration_theory import (
    KNOWN,
    hard_is_right,
    hard_minimum,
    largest_convex_margin,
    optimal_marginals,
    smooth_minimum,
    tying_noise,
)
from smooth_topk.study.measure.expected_loss import expected_loss, noised_order_statistic
from smooth_topk.study.measure.minimise import minimise

SMOOTH_PRECISION = 1e-9  # of an expected loss at a smooth minimum; the table keeps ten digits
KINK_PRECISION = 1e-7  # where BFGS stops at a kink
MAJORITY = Distribution("majority", (0.1, 0.62, 0.2, 0.08))
SPREAD = Distribution("spread", (0.21, 0.34, 0.26, 0.19))


def as_tensor(item):
    return torch.tensor(item.probabilities, dtype=torch.float64)


def test_bfgs_finds_the_minimum_of_an_ill_conditioned_valley_from_many_starts():
    def rosenbrock(x, which):
        return (1 - x[:, 0]) ** 2 + 100 * (x[:, 1] - x[:, 0] ** 2) ** 2

    starts = 2 * torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = minimise(rosenbrock, starts)
    assert torch.allclose(found.points, torch.ones_like(starts), atol=1e-8)
    assert found.gradient_norms.max() < 1e-6


def test_bfgs_finds_the_minimum_at_a_kink():
    weights = torch.tensor([1.0, 3.0, 10.0], dtype=torch.float64)
    starts = torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = minimise(lambda x, which: (weights * (x - 2).abs()).sum(1), starts)
    assert found.values.max() < KINK_PRECISION


def test_a_problem_has_the_same_answer_alone_and_in_a_batch():
    goals = torch.randn(5, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def bowl(numbers):
        return lambda x, which: (x - goals[numbers[which]]).pow(2).sum(1).add(1).log()

    together = minimise(bowl(torch.arange(5)), torch.zeros(5, 2, dtype=torch.float64))
    for number in range(5):
        alone = minimise(bowl(torch.tensor([number])), torch.zeros(1, 2, dtype=torch.float64))
        assert torch.allclose(alone.points[0], together.points[number], atol=1e-9)
    assert torch.allclose(together.points, goals, atol=1e-8)


def test_the_expected_loss_is_the_weighted_sum_over_labels():
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).repeat(3, 1)
    found = expected_loss("topk_entropy", {"k": 2})(scores, weights)
    for row in range(3):
        losses = [FAMILY["topk_entropy"].bound(k=2)(scores[row : row + 1], torch.tensor([y])).item() for y in range(4)]
        assert found[row].item() == pytest.approx((torch.tensor(losses) * weights[row]).sum().item(), abs=1e-6)


def test_the_expected_order_statistic_is_the_mean_of_many_draws_and_its_limit_is_the_sorted_score():
    scores = torch.tensor([[1.0, 0.2, -0.5, 2.0]], dtype=torch.float64)
    noise = torch.randn(1, 4, 200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for rank in (1, 2, 4):
        sampled = (scores[:, :, None] + 0.8 * noise).sort(1, descending=True).values[:, rank - 1].mean()
        assert noised_order_statistic(scores, rank, 0.8).item() == pytest.approx(sampled.item(), abs=1e-2)
        exact = scores.sort(descending=True).values[0, rank - 1].item()
        assert noised_order_statistic(scores, rank, 0.02).item() == pytest.approx(exact, abs=1e-9)
    far = noised_order_statistic(torch.tensor([[1e4, -1e4, 0.0]], dtype=torch.float64), 2, 0.1)
    assert far.item() == pytest.approx(0, abs=1e-9)  # however far apart: no quadrature over the whole range
    three = noised_order_statistic(torch.zeros(1, 3, dtype=torch.float64), 1, 1.0).item()
    assert three == pytest.approx(1.5 / torch.pi**0.5, abs=1e-12)  # the largest of three normal numbers


def test_from_some_noise_on_k_plus_one_classes_that_tie_pay_nothing():
    for k, weights in ((1, [0.9, 0.1]), (3, [0.4, 0.3, 0.2, 0.1])):
        tie, p = torch.zeros(1, k + 1, dtype=torch.float64), torch.tensor([weights], dtype=torch.float64)
        below, above = (
            expected_loss("noised_topk", {"k": k, "epsilon": share * tying_noise(k)})(tie, p).item()
            for share in (0.99, 1.01)
        )
        assert below == pytest.approx(0.01, abs=1e-9)
        assert above == 0


def test_the_expected_noised_loss_is_the_limit_of_many_draws():
    scores = torch.tensor([[0.3, 0.2, -0.5, 1.0]], dtype=torch.float64)
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    noise = torch.randn(1, 4, 200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sampled = sum(
        weights[0, y] * noised_topk_loss(scores, torch.tensor([y]), k=2, epsilon=0.5, noise=noise) for y in range(4)
    )
    exact = expected_loss("noised_topk", {"k": 2, "epsilon": 0.5})(scores, weights)
    assert exact.item() == pytest.approx(sampled.item(), abs=1e-2)


@pytest.mark.parametrize("margin", [0.0, 0.5, 2.0])
def test_the_smooth_loss_depends_on_the_top_k_marginal_alone(margin):
    """L = τ log(1 + exp(α/τ) (1 - π) / π), the formula that the proof of calibration rests on."""
    scores = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tau, k = 0.7, 2
    marginals = topk_probabilities(scores, k, tau=tau)
    for label in range(5):
        expected = tau * torch.log1p(
            torch.exp(torch.tensor(margin / tau)) * (1 - marginals[:, label]) / marginals[:, label]
        )
        labels = torch.full((6,), label)
        found = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, reduction="none")
        assert torch.allclose(found, expected, atol=1e-7)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_optimal_marginals_sum_to_k_and_saturate_in_order(k):
    p = torch.tensor([0.05, 0.6, 0.25, 0.1], dtype=torch.float64)
    marginals = optimal_marginals(p, k)
    assert marginals.sum().item() == pytest.approx(k, abs=1e-12)
    assert (marginals <= 1).all()
    free = marginals < 1
    assert torch.allclose(marginals[free] / p[free], (marginals[free] / p[free])[:1].expand(int(free.sum())))
    assert marginals[1] == marginals.max()


def test_the_phi_of_the_proof_is_convex_up_to_the_margin_tau_log_2_and_no_further():
    tau = 0.5
    pi = torch.linspace(0.01, 0.999, 500, dtype=torch.float64)
    for margin, convex in ((largest_convex_margin(tau), True), (1.2 * largest_convex_margin(tau), False)):
        phi = torch.log1p(torch.exp(torch.tensor(margin / tau)) * (1 - pi) / pi)
        assert bool((phi[2:] - 2 * phi[1:-1] + phi[:-2] >= -1e-12).all()) == convex


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("tau", [0.01, 1.0])
def test_the_measured_minimum_of_the_smooth_loss_without_margin_is_that_of_the_theory(tau, k):
    for row in measure_case(Case("smooth", {"k": k, "tau": tau, "margin": 0.0}, k), [MAJORITY, SPREAD]):
        p = torch.tensor([float(value) for value in row["probabilities"].split()], dtype=torch.float64)
        assert float(row["expected_loss"]) == pytest.approx(smooth_minimum(p, k, tau), rel=1e-5)
        assert row["verdict"] == "right"
        assert row["starts_right"] == row["starts"]  # convex in the marginals: every start finds it


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_measured_minimum_and_verdict_of_the_hard_loss_are_those_of_the_theory(k):
    items = [MAJORITY, SPREAD]
    for item, row in zip(items, measure_case(Case("hard", {"k": k, "margin": 1.0}, k), items), strict=True):
        p = as_tensor(item)
        assert float(row["expected_loss"]) == pytest.approx(hard_minimum(p, k, 1.0), abs=KINK_PRECISION)
        assert row["verdict"] == ("right" if hard_is_right(p, k) else "tie")


@pytest.mark.parametrize(
    ("loss", "parameters"),
    [
        ("cross_entropy", {}),
        ("label_smoothing", {"label_smoothing": 0.1}),
        ("topk_entropy", {"k": 2}),
        ("truncated_topk_entropy", {"k": 2}),
        ("smooth", {"k": 2, "tau": 0.1, "margin": 1.0}),
        ("noised_topk", {"k": 2, "epsilon": 0.0}),
    ],
)
def test_losses_known_to_be_calibrated_are_right_where_hinges_are_not(loss, parameters):
    (row,) = measure_case(Case(loss, parameters, 2), [SPREAD])
    assert row["verdict"] == "right"
    assert row["found_topk"] == row["best_topk"] == "1 2"
    assert float(row["tie_costs"]) > 0


@pytest.mark.parametrize("loss", ["hard", "topk_hinge_alpha", "topk_hinge_beta"])
def test_hinges_without_a_margin_are_content_with_equal_scores(loss):
    (row,) = measure_case(Case(loss, {"k": 2, "margin": 0.0}, 2), [MAJORITY])
    assert row["verdict"] == "tie"
    assert float(row["expected_loss"]) == pytest.approx(0, abs=KINK_PRECISION)


def test_cross_entropy_finds_the_probabilities_themselves():
    (row,) = measure_case(Case("cross_entropy", {}, 2), [SPREAD])
    p = as_tensor(SPREAD)
    assert float(row["expected_loss"]) == pytest.approx(torch.special.entr(p).sum().item(), abs=SMOOTH_PRECISION)
    ordered = p.log().sort(descending=True).values
    assert float(row["separation"]) == pytest.approx((ordered[1] - ordered[2]).item(), abs=1e-5)


def test_a_wide_margin_has_wrong_local_minima_and_the_best_one_is_right():
    (row,) = measure_case(Case("smooth", {"k": 2, "tau": 0.03, "margin": 1.0}, 2), [SPREAD])
    assert row["verdict"] == "right"
    assert row["starts_right"] < row["starts"]


def test_the_distributions_are_the_same_every_time_and_have_one_best_answer():
    items = distributions()
    assert items == distributions()
    assert len({item.name for item in items}) == len(items) == 24
    for item in items:
        ordered = as_tensor(item).sort(descending=True).values
        assert ordered.sum().item() == pytest.approx(1, abs=1e-12)
        assert (ordered[:-1] - ordered[1:]).min() > 1e-3


def test_every_loss_of_the_family_but_the_switched_one_is_measured_and_has_its_literature():
    measured = {case.loss for case in cases()}
    assert measured == set(FAMILY) - {"switched_topk", "logit_adjusted"} == set(KNOWN)
    assert {known.answer for known in KNOWN.values()} == {"yes", "no", "open"}


def test_what_is_recorded_is_not_measured_again(tmp_path, monkeypatch):
    todo, items = [Case("cross_entropy", {}, 2)], [MAJORITY, SPREAD]
    first = calibration.measure_calibration(todo, items[:1], tmp_path)
    assert first["distribution"].tolist() == ["majority"]
    calls = []
    real = measure_case
    monkeypatch.setattr(calibration, "measure_case", lambda *a, **o: calls.append(a) or real(*a, **o))
    both = calibration.measure_calibration(todo, items, tmp_path)
    assert [[item.name for item in call[1]] for call in calls] == [["spread"]]
    assert both["distribution"].tolist() == ["majority", "spread"]
    assert {"verdict", "machine", "commit", "date", "seed"} <= set(both.columns)
    pd.testing.assert_frame_equal(calibration.read_calibration(tmp_path), both)


def test_the_command_records_one_loss(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(calibration, "cases", lambda: [Case("cross_entropy", {}, 1), Case("topk_entropy", {"k": 2}, 2)])
    monkeypatch.setattr(calibration, "distributions", lambda: [SPREAD])
    assert calibration.main(["--output", str(tmp_path), "--loss", "topk_entropy"]) == 0
    assert calibration.read_calibration(tmp_path)["loss"].tolist() == ["topk_entropy"]
    assert "topk_entropy" in capsys.readouterr().out

"""The linear top-k SVM of Proposition 8: its solutions are global, and certified."""

import pytest
import torch

from smooth_topk.study.measure import linear_svm

INPUTS = torch.tensor([[1.0, 0.5], [-0.75, 1.0], [0.25, 0.75], [0.5, -1.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 1])
CERTAIN = 1e-10  # the ascent ends at a gap of 1e-13


def solve(regularization, margin):
    return linear_svm.solve(INPUTS, LABELS, classes=3, regularization=regularization, margin=margin)


def value(weights, regularization, margin):
    return linear_svm.objective(weights, INPUTS, LABELS, regularization=regularization, margin=margin)


def test_the_objective_is_that_of_eq_6():
    scores = torch.tensor([[3.0, 1.0, 2.0]], dtype=torch.float64)
    weights = scores.clone()
    loss = linear_svm.objective(
        weights, torch.ones(1, 1, dtype=torch.float64), torch.tensor([1]), regularization=0.5, margin=0.25
    )
    assert loss == pytest.approx(0.25 * 14 + 0.25 + 2.0 - 1.0)  # the second largest other score is 2


@pytest.mark.parametrize(("regularization", "margin"), [(0.2, 2.0), (0.05, 0.5), (1.0, 4.0)])
def test_no_other_point_is_below_the_solution(regularization, margin):
    solution = solve(regularization, margin)
    assert abs(solution.gap) < CERTAIN
    generator = torch.Generator().manual_seed(0)
    for scale in (1e-3, 1e-1, 1.0, 10.0):
        for _ in range(50):
            noise = scale * torch.randn(solution.weights.shape, generator=generator, dtype=torch.float64)
            assert value(solution.weights + noise, regularization, margin) > solution.objective - CERTAIN


def test_without_a_margin_the_solution_is_zero():
    assert solve(0.3, 0.0).weights.abs().max() == 0


def test_a_problem_without_a_dual_or_with_too_many_guesses_is_refused():
    with pytest.raises(ValueError, match=r"regularization=0\.0"):
        solve(0.0, 1.0)
    with pytest.raises(ValueError, match="too many guesses"):
        linear_svm.solve(torch.eye(30), torch.arange(30) % 3, classes=3, regularization=1.0, margin=1.0)

"""The numbers of tau_explorer.js, computed by Chromium, beside those of the package in float64."""

import itertools

import pytest
import torch

from smooth_topk import hard_topk_loss, smooth_topk_loss, topk_probabilities
from smooth_topk.study.chapters.tau_explorer import JAVASCRIPT

# Both sides work in float64; scores of 10 divided by tau = 1e-4 are 1e5, whose last digit is worth 1e-11.
TOLERANCE = 1e-9

SCORES = {
    "spread": [3.2, 6.1, -1.4, 4.5, 0.6, 2.4, 5.0, -2.6, 1.5, -0.5],
    "tied at the k-th place": [4.0, 2.0, 2.0, 2.0, 2.0, 1.0, -3.0],
    "all tied": [0.7] * 6,
    "nearly tied": [1.0, 1.0 + 1e-6, 1.0 - 1e-6, 0.0, 2.0],
    "far apart": [-10.0, 10.0, -9.5, 9.5, 0.0],
    "three classes": [0.3, -0.2, 0.1],
}
TAUS = [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0]
EVALUATE = """
async ([source, cases]) => {
  const explorer = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
  return cases.map(({scores, label, k, tau, margin}) => ({
    smooth: [explorer.smoothTopKLoss(scores, label, {k, tau, margin})],
    gradient: explorer.smoothTopKGradient(scores, label, {k, tau, margin}),
    hard: [explorer.hardTopKLoss(scores, label, {k, margin})],
    cross: [explorer.crossEntropy(scores, label)],
    crossGradient: explorer.crossEntropyGradient(scores, label),
    stepped: explorer.descend("smooth", scores, label, {k, tau, margin}, {rate: 0.5, steps: 3}).at(-1),
    probabilities: explorer.topKProbabilities(scores, {k, tau}),
    nonZero: [explorer.countNonZeroInFloat32(explorer.smoothTopKGradient(scores, label, {k, tau, margin}))],
  }));
}
"""


def grid() -> list[dict]:
    return [
        {"scores": scores, "label": label, "k": k, "tau": tau, "margin": margin}
        for scores in SCORES.values()
        for k in range(1, len(scores))
        for label, tau, margin in itertools.product({0, len(scores) - 1}, TAUS, [0.0, 1.0])
    ]


def package_values(scores: list[float], label: int, k: int, tau: float, margin: float) -> dict[str, torch.Tensor]:
    row = torch.tensor([scores], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([label])
    smooth = smooth_topk_loss(row, labels, k=k, tau=tau, margin=margin)
    (gradient,) = torch.autograd.grad(smooth, row)
    cross = torch.nn.functional.cross_entropy(row, labels)
    (cross_gradient,) = torch.autograd.grad(cross, row)
    stepped = row
    for _ in range(3):
        (slope,) = torch.autograd.grad(smooth_topk_loss(stepped, labels, k=k, tau=tau, margin=margin), stepped)
        stepped = (stepped - 0.5 * slope).detach().requires_grad_()
    return {
        "smooth": smooth.detach()[None],
        "gradient": gradient[0],
        "hard": hard_topk_loss(row, labels, k=k, margin=margin).detach()[None],
        "cross": cross.detach()[None],
        "crossGradient": cross_gradient[0],
        "stepped": stepped.detach()[0],
        "probabilities": topk_probabilities(row, k, tau=tau).detach()[0],
    }


@pytest.fixture(scope="module")
def browser_values(chromium) -> list[dict]:
    page = chromium.new_page()
    values = page.evaluate(EVALUATE, [JAVASCRIPT, grid()])
    page.close()
    return values


@pytest.mark.slow
def test_the_explorer_computes_what_the_package_computes(browser_values):
    for case, values in zip(grid(), browser_values, strict=True):
        for quantity, expected in package_values(**case).items():
            found = torch.tensor(values[quantity], dtype=torch.float64)
            difference = ((found - expected).abs() / expected.abs().clamp(min=1)).max().item()
            assert difference <= TOLERANCE, (quantity, case)


def test_the_gradient_of_the_explorer_sums_to_zero_and_its_probabilities_to_k(browser_values):
    for case, values in zip(grid(), browser_values, strict=True):
        assert sum(values["gradient"]) == pytest.approx(0, abs=TOLERANCE)
        assert sum(values["probabilities"]) == pytest.approx(case["k"], abs=TOLERANCE)


def test_the_share_of_non_zero_derivatives_falls_to_two_of_ten_as_tau_falls(browser_values):
    def count(tau: float) -> int:
        case = {"scores": SCORES["spread"], "label": 9, "k": 5, "tau": tau, "margin": 1.0}
        return browser_values[grid().index(case)]["nonZero"][0]

    assert count(1.0) == 10
    assert count(1e-4) == 2

"""Each loss of the family against its definition: slow references, special cases, and the packages that have it."""

import contextlib
import math
from itertools import combinations

import pytest
import torch
from torch.nn import functional as F

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study.losses import (
    aldr_kl_loss,
    cross_entropy,
    difftopk_loss,
    generalised_cross_entropy,
    lapsum_topk_loss,
    logit_adjusted_cross_entropy,
    noised_topk_loss,
    soft_topk_mean,
    switched_topk_loss,
    topk_entropy,
    topk_hinge_alpha,
    topk_hinge_beta,
    truncated_topk_entropy,
)
from smooth_topk.study.losses.lapsum import soft_topk

FLOAT64 = 1e-12
FLOAT32 = 1e-6


def draw(rows=40, classes=6, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return scores, torch.randint(classes, (rows,), generator=generator)


def violations(scores, label, margin):
    """α + s_j - s_y of the other classes, largest first."""
    return sorted((margin + s - scores[label] for j, s in enumerate(scores) if j != label), reverse=True)


def test_label_smoothing_is_cross_entropy_with_the_mixture():
    scores, labels = draw()
    target = 0.9 * F.one_hot(labels, 6).double() + 0.1 / 6
    expected = -(target * scores.log_softmax(1)).sum(1)
    assert torch.allclose(cross_entropy(scores, labels, label_smoothing=0.1, reduction="none"), expected, atol=FLOAT64)


def test_generalised_cross_entropy_goes_from_cross_entropy_to_the_absolute_error():
    scores, labels = draw()
    probability = scores.softmax(1).gather(1, labels[:, None]).squeeze(1)
    for q in (0.3, 0.7, 1.0):
        expected = (1 - probability**q) / q
        found = generalised_cross_entropy(scores, labels, q=q, reduction="none")
        assert torch.allclose(found, expected, atol=FLOAT64)
    small = generalised_cross_entropy(scores, labels, q=1e-9, reduction="none")
    assert torch.allclose(small, F.cross_entropy(scores, labels, reduction="none"), atol=1e-7)
    absolute = (F.one_hot(labels, 6) - scores.softmax(1)).abs().sum(1) / 2
    assert torch.allclose(generalised_cross_entropy(scores, labels, q=1.0, reduction="none"), absolute, atol=FLOAT64)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_the_hinges_alpha_and_beta_are_the_sums_they_claim_to_be(k, margin):
    scores, labels = draw()
    alpha = topk_hinge_alpha(scores, labels, k=k, margin=margin, reduction="none").tolist()
    beta = topk_hinge_beta(scores, labels, k=k, margin=margin, reduction="none").tolist()
    for row, label in enumerate(labels.tolist()):
        largest = violations(scores[row].tolist(), label, margin)[:k]
        assert alpha[row] == pytest.approx(max(0, sum(largest) / k), abs=FLOAT64)
        assert beta[row] == pytest.approx(sum(max(0, v) for v in largest) / k, abs=FLOAT64)
        assert alpha[row] <= beta[row] + FLOAT64


def test_with_k_1_alpha_beta_and_the_hard_loss_are_the_multiclass_hinge():
    scores, labels = draw()
    crammer_singer = torch.relu(
        1 + scores.scatter(1, labels[:, None], -torch.inf).amax(1) - scores.gather(1, labels[:, None])[:, 0]
    )
    for loss in (topk_hinge_alpha, topk_hinge_beta, hard_topk_loss):
        assert torch.allclose(loss(scores, labels, k=1, reduction="none"), crammer_singer, atol=FLOAT64)


def test_with_k_1_the_softmax_losses_are_cross_entropy():
    scores, labels = draw()
    expected = F.cross_entropy(scores, labels, reduction="none")
    for loss in (topk_entropy, truncated_topk_entropy):
        assert torch.allclose(loss(scores, labels, k=1, reduction="none"), expected, atol=FLOAT64)
    assert torch.allclose(difftopk_loss(scores, labels, k=1, reduction="none"), expected, atol=1e-3)


def entropy_objective(x, a):
    """<a, x> - <x, log x> - (1 - <1, x>) log(1 - <1, x>): what top-k entropy maximises."""
    total = x.sum(-1)
    return (a * x).sum(-1) + torch.special.entr(x).sum(-1) + torch.special.entr(1 - total)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_top_k_entropy_is_the_maximum_over_the_top_k_simplex(k):
    """No feasible point is better than the loss, and the gradient of the loss is a feasible point that attains it."""
    scores, labels = draw(rows=30, classes=6, scale=3.0)
    leaf = scores.clone().requires_grad_()
    losses = topk_entropy(leaf, labels, k=k, reduction="none")
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    others = torch.tensor([[j for j in range(6) if j != label] for label in labels.tolist()])
    x = gradient.gather(1, others)  # the derivative by the other scores is the maximiser
    a = scores.gather(1, others) - scores.gather(1, labels[:, None])
    total = x.sum(1, keepdim=True)
    assert (x >= 0).all()
    assert (x <= total / k + FLOAT64).all()
    assert (total <= 1).all()
    assert torch.allclose(entropy_objective(x, a), losses.detach(), atol=1e-10)

    generator = torch.Generator().manual_seed(1)
    corners = torch.tensor([[1 / k if j in chosen else 0.0 for j in range(5)] for chosen in combinations(range(5), k)])
    for _ in range(300):  # mixtures of the corners of the capped simplex, times a total, are all feasible points
        mixture = torch.rand(len(corners), generator=generator).pow(4).double()
        feasible = torch.rand(1, generator=generator).double() * (mixture / mixture.sum()) @ corners.double()
        assert (entropy_objective(feasible, a) <= losses.detach() + FLOAT64).all()


def test_top_k_entropy_is_cross_entropy_where_no_class_reaches_its_bound():
    scores, labels = draw(scale=0.05)
    expected = F.cross_entropy(scores, labels, reduction="none")
    assert torch.allclose(topk_entropy(scores, labels, k=2, reduction="none"), expected, atol=FLOAT64)
    scores, labels = draw(scale=3.0)
    assert (
        topk_entropy(scores, labels, k=2, reduction="none") < F.cross_entropy(scores, labels, reduction="none")
    ).any()


def test_the_soft_top_k_mean_tends_to_the_mean_of_the_k_largest_scores():
    scores, _ = draw()
    for scale, tolerance in ((1e2, 2e-2), (1e5, 2e-5)):
        mean = scores.topk(3).values.mean(1)
        assert torch.allclose(soft_topk_mean(scale * scores, 3) / scale, mean, atol=tolerance)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_truncated_top_k_entropy_sums_the_smallest_other_scores(k):
    scores, labels = draw()
    losses = truncated_topk_entropy(scores, labels, k=k, reduction="none").tolist()
    for row, label in enumerate(labels.tolist()):
        kept = violations(scores[row].tolist(), label, 0.0)[k - 1 :]
        assert len(kept) == 6 - k
        assert losses[row] == pytest.approx(math.log(1 + sum(math.exp(v) for v in kept)), abs=1e-10)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_soft_top_k_of_lapsum_sums_to_k_and_tends_to_the_hard_one(k, scale):
    scores, _ = draw()
    p = soft_topk(scores, k, scale)
    assert torch.allclose(p.sum(1), torch.full((len(p),), float(k), dtype=torch.float64), atol=1e-10)
    assert ((p >= 0) & (p <= 1)).all()
    assert (p.gather(1, scores.argsort(1)).diff(dim=1) >= 0).all()
    if scale == 1e-3:
        hard = torch.zeros_like(p).scatter(1, scores.topk(k).indices, 1.0)
        assert (p - hard).abs().max() < 0.5


def test_lapsum_is_cross_entropy_of_the_mixture():
    scores, labels = draw()
    top1, topk = (x.gather(1, labels[:, None])[:, 0] for x in (scores.softmax(1), soft_topk(scores, 2, 0.7)))
    for share in (0.0, 0.3, 1.0):
        expected = -torch.log(share * top1 + (1 - share) * topk)
        found = lapsum_topk_loss(scores, labels, k=2, scale=0.7, top1_share=share, reduction="none")
        assert torch.allclose(found, expected, atol=1e-10)


def test_aldr_kl_is_the_maximum_over_the_temperature_and_cross_entropy_where_that_is_fixed():
    scores, labels = draw()
    a = 2 * math.log(6)
    differences = scores - scores.gather(1, labels[:, None])
    for_each = [
        t * (torch.logsumexp(differences / t, 1) - math.log(6)) - a / 2 * (t - 1) ** 2
        for t in torch.linspace(0.01, 2, 2_000, dtype=torch.float64)
    ]
    losses = aldr_kl_loss(scores, labels, reduction="none")
    assert torch.allclose(losses, torch.stack(for_each).amax(0), atol=1e-5)
    stiff = aldr_kl_loss(scores, labels, adaptivity=1e9, reduction="none")
    assert torch.allclose(stiff, F.cross_entropy(scores, labels, reduction="none") - math.log(6), atol=1e-6)


def test_the_minimiser_of_logit_adjusted_cross_entropy_ranks_as_balanced_data_would():
    """A tail class with the larger density of the features must come first, though it is rarer among the samples."""
    counts, density = torch.tensor([80, 20]), torch.tensor([0.3, 0.6], dtype=torch.float64)
    posterior = counts * density / (counts * density).sum()
    scores = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([scores], line_search_fn="strong_wolfe", max_iter=100)

    def expected():
        optimiser.zero_grad()
        of_classes = [logit_adjusted_cross_entropy(scores, torch.tensor([y]), counts=counts) for y in range(2)]
        loss = (torch.stack(of_classes) * posterior).sum()
        loss.backward()
        return loss

    optimiser.step(expected)
    assert posterior[0] > posterior[1]
    assert torch.allclose(scores.detach().softmax(1)[0], density / density.sum(), atol=1e-4)


@pytest.mark.parametrize(("classes", "k"), [(10, 3), (8, 5), (40, 5), (40, 20)])
def test_difftopk_is_what_its_package_computes(classes, k):
    with contextlib.redirect_stdout(None):
        from difftopk import TopKCrossEntropyLoss
    scores, labels = draw(rows=12, classes=classes)
    scores = scores.float()
    entering = max(16, 1 << k.bit_length())
    size = min(classes, entering)
    method = "bitonic__non_sparse" if size & (size - 1) == 0 else "odd_even"
    theirs = TopKCrossEntropyLoss(
        method,
        2.0,
        [0.5] + [0.0] * (k - 2) + [0.5],
        classes,
        m=entering if classes > entering else None,
        distribution="cauchy",
    )
    assert difftopk_loss(scores, labels, k=k).item() == pytest.approx(theirs(scores, labels).item(), abs=1e-5)


def test_balanced_noised_top_k_is_what_its_package_computes():
    from pytopk import BalNoisedTopK

    scores, labels = draw(rows=12, classes=7)
    scores = scores.float()
    torch.manual_seed(3)
    theirs = BalNoisedTopK(k=3, epsilon=0.7)(scores, labels)
    torch.manual_seed(3)
    assert noised_topk_loss(scores, labels, k=3, epsilon=0.7).item() == pytest.approx(theirs.item(), abs=FLOAT32)


def test_without_noise_it_is_the_calibrated_hinge_whose_threshold_counts_the_label():
    scores, labels = draw()
    threshold = scores.sort(1, descending=True).values[:, 2]
    expected = torch.relu(1 + threshold - scores.gather(1, labels[:, None]).squeeze(1))
    assert torch.allclose(noised_topk_loss(scores, labels, k=2, epsilon=0.0, reduction="none"), expected, atol=FLOAT64)


def test_noise_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"noise must have shape .*\(3, 4\), got \(3, 5, 2\)"):
        noised_topk_loss(torch.zeros(3, 4), torch.tensor([0, 1, 2]), k=2, noise=torch.zeros(3, 5, 2))


def test_the_switch_gives_the_hard_loss_exactly_where_the_gap_is_wide():
    tau, k = 0.1, 2
    gap = k * tau * math.log(1000)
    scores = torch.tensor([[4.0, 3.0, 3.0 - gap - 1e-6, -2.0], [4.0, 3.0, 3.0 - gap + 1e-6, -2.0]], dtype=torch.float64)
    labels = torch.tensor([1, 1])
    found = switched_topk_loss(scores, labels, k=k, tau=tau, reduction="none")
    hard = hard_topk_loss(scores, labels, k=k, reduction="none")
    smooth = smooth_topk_loss(scores, labels, k=k, tau=tau, reduction="none")
    assert found[0] == hard[0]
    assert found[1] == smooth[1]
    assert smooth[0] > hard[0]


def test_the_switch_matters_at_small_tau_and_not_at_large():
    scores, labels = draw(rows=200)
    for tau, switched in ((1e-3, True), (100.0, False)):
        ours = smooth_topk_loss(scores, labels, k=2, tau=tau, reduction="none")
        theirs = switched_topk_loss(scores, labels, k=2, tau=tau, reduction="none")
        assert (not torch.equal(ours, theirs)) == switched

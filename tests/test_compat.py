"""The classes of the authors' package: their definitions in float64, their checkpoints, and the two differences."""

import copy
from itertools import combinations
from math import log

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot, softplus

from smooth_topk.compat import MaxTop1SVM, MaxTopkSVM, SmoothTop1SVM, SmoothTopkSVM

ROUNDING = 1e-12
SCORES = 4 * torch.randn(12, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 7


def margins(scores, labels, alpha):
    return scores + alpha * (1 - one_hot(labels, scores.shape[1]))


def smooth_top1(scores, labels, alpha, tau):
    """τ log Σ_j exp((α 1(j ≠ y) + s_j - s_y) / τ)"""
    ahead = margins(scores, labels, alpha) - scores.gather(1, labels[:, None])
    return tau * (ahead / tau).logsumexp(1)


def smooth_topk(scores, labels, alpha, tau, k):
    """Eq. (9), subset by subset."""
    subsets = torch.tensor(list(combinations(range(scores.shape[1]), k)))
    sums = scores[:, subsets].sum(2) / k  # (N, subsets)
    right = (subsets == labels[:, None, None]).any(2)
    everything = torch.where(right, sums, sums + alpha)
    return tau * ((everything / tau).logsumexp(1) - torch.where(right, sums / tau, -torch.inf).logsumexp(1))


def hard_top1(scores, labels, alpha):
    """max_j (s_j + α 1(j ≠ y)) - s_y"""
    return margins(scores, labels, alpha).amax(1) - scores.gather(1, labels[:, None])[:, 0]


def hard_topk(scores, labels, alpha, k):
    """Mean of the k largest of the others, raised by α, minus the mean of y and the k - 1 largest of the others."""
    others = scores.masked_fill(one_hot(labels, scores.shape[1]).bool(), -torch.inf)
    best = others.topk(k).values
    true_score = scores.gather(1, labels[:, None])[:, 0]
    return ((best + alpha).mean(1) - (best[:, :-1].sum(1) + true_score) / k).clamp(min=0)


@pytest.mark.parametrize("alpha", [None, 0.0, 0.5, 2])
@pytest.mark.parametrize("tau", [1.0, 0.1, 5.0])
def test_the_losses_are_the_authors_definitions(alpha, tau):
    margin = 1.0 if alpha is None else alpha
    for loss, truth in [
        (MaxTop1SVM(7, alpha), hard_top1(SCORES, LABELS, margin)),
        (MaxTopkSVM(7, alpha, 3), hard_topk(SCORES, LABELS, margin, 3)),
        (SmoothTop1SVM(7, alpha, tau), smooth_top1(SCORES, LABELS, margin, tau)),
        (SmoothTopkSVM(7, alpha, tau, 3), smooth_topk(SCORES, LABELS, margin, tau, 3)),
        (SmoothTopkSVM(n_classes=7, tau=tau, k=1, alpha=alpha), smooth_top1(SCORES, LABELS, margin, tau)),
    ]:
        torch.testing.assert_close(loss(SCORES, LABELS), truth.mean(), rtol=ROUNDING, atol=ROUNDING)


def test_the_defaults_are_the_authors_and_the_temperature_may_change():
    loss = SmoothTopkSVM(100)
    assert (loss.alpha, loss.tau, loss.k, MaxTopkSVM(100).k, SmoothTop1SVM(2).k, MaxTop1SVM(2).k) == (1, 1, 5, 5, 1, 1)
    loss = SmoothTop1SVM(7)
    loss.tau = 0.1
    torch.testing.assert_close(loss(SCORES, LABELS), smooth_top1(SCORES, LABELS, 1.0, 0.1).mean())


@pytest.mark.parametrize("classes", [2, 5])
def test_with_one_answer_it_is_cross_entropy_of_scores_with_the_margin_taken_from_the_label(classes):
    scores, labels = SCORES[:, :classes], LABELS % classes
    ours = SmoothTop1SVM(classes)(scores, labels)
    torch.testing.assert_close(ours, cross_entropy(scores - one_hot(labels, classes), labels))
    if classes == 2:
        lead = scores.gather(1, labels[:, None]) - scores.gather(1, 1 - labels[:, None])
        torch.testing.assert_close(ours, softplus(1 - lead).mean())


def test_the_numbers_of_the_page_coming_from_topk():
    lead = torch.linspace(-10, 10, 20001, dtype=torch.float64, requires_grad=True)
    scores = torch.stack([torch.zeros_like(lead), lead], 1)
    positive, negative = (smooth_top1(scores, torch.full((len(lead),), y), 1.0, 1.0) for y in (1, 0))
    risk = 0.9 * positive + 0.1 * negative
    assert lead[risk.argmin()].item() == pytest.approx(3.1, abs=0.005)
    (slope,) = torch.autograd.grad(positive.sum(), lead)
    assert slope[10_000].item() == pytest.approx(-0.73, abs=0.005)
    for classes, below in [(1000, 1.31), (2, 0.003)]:
        at_the_switch = torch.zeros(1, classes, dtype=torch.float64)
        at_the_switch[0, 0] = log(1000)
        assert SmoothTop1SVM(classes)(at_the_switch, torch.tensor([0])).item() == pytest.approx(below, abs=0.005)
        assert MaxTop1SVM(classes)(at_the_switch, torch.tensor([0])).item() == 0


def test_the_loss_does_not_switch_and_its_gradient_stays_where_scores_are_far_apart():
    scores = torch.tensor([[30.0, 0.0]], requires_grad=True)
    loss = SmoothTop1SVM(2)(scores, torch.tensor([0]))
    loss.backward()
    assert loss.item() == pytest.approx(softplus(torch.tensor(-29.0).double()).item(), rel=1e-6)
    assert scores.grad[0, 1] > 0


def clam(loss):
    model = nn.Module()
    model.instance_loss_fn, model.classifier = loss, nn.Linear(3, 2)
    return model


class TheirLoss(nn.Module):
    """What a checkpoint of the authors' class holds: one buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("labels", torch.arange(2))


@pytest.mark.parametrize("loss", [SmoothTop1SVM(2), SmoothTopkSVM(2, k=1), MaxTop1SVM(2), MaxTopkSVM(2, k=1)])
@pytest.mark.parametrize("saved", [clam(TheirLoss()), clam(nn.Identity())])
def test_checkpoints_with_and_without_the_authors_buffer_load(loss, saved):
    model = copy.deepcopy(clam(loss)).cpu().double().float()
    model.load_state_dict(saved.state_dict(), strict=True)
    assert torch.equal(model.classifier.weight, saved.classifier.weight)
    assert list(model.instance_loss_fn.state_dict()) == []
    with pytest.raises(RuntimeError, match="unknown"):
        model.load_state_dict(saved.state_dict() | {"instance_loss_fn.unknown": torch.zeros(1)})


def test_scores_of_another_number_of_classes_are_refused():
    with pytest.raises(ValueError, match=r"\(12, 7\)"):
        SmoothTop1SVM(2)(SCORES, LABELS)

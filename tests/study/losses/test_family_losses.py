"""What every loss of the family must have: a true gradient, a reduction, half precision, full sentences of refusal."""

import re
from pathlib import Path

import pytest
import torch

from smooth_topk import hard_topk_loss, topk_error
from smooth_topk.study.losses import FAMILY

ROOT = Path(__file__).resolve().parents[3]
FLOAT64 = 1e-12
FLOAT32 = 2e-5  # a few roundings of float32, and of the 1e-7 that difftopk adds inside its logarithm
BFLOAT16 = 0.05  # scores themselves are rounded to 8 bits
EQUIVARIANT = [name for name in FAMILY if name != "difftopk"]  # a sorting network compares neighbours first
COUNTS = 2 ** torch.arange(10)
NOISE_DRAWS = 8  # a power of two: the package averages one-hot vectors in float32


def settings(name, k):
    chosen = {"k": k} if "k" in FAMILY[name].hyper_parameters else {}
    return chosen | ({"tau": 0.4} if "tau" in FAMILY[name].hyper_parameters else {})


def loss_function(name, k=2, rows=0, classes=0, permutation=None):
    """A loss with its hyper-parameters; the noised one gets the same noise at every call."""
    bound = FAMILY[name].bound(**settings(name, k))
    if FAMILY[name].needs_counts:
        counts = COUNTS if permutation is None else COUNTS[:classes][permutation]
        return lambda scores, labels, **options: bound(scores, labels, counts=counts[: scores.shape[1]], **options)
    if name != "noised_topk":
        return bound
    noise = torch.randn(rows, classes, NOISE_DRAWS, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    noise = noise if permutation is None else noise[:, permutation]
    return lambda scores, labels, **options: bound(scores, labels, noise=noise[: len(labels)], **options)


def random_scores(rows=6, classes=7, seed=0, scale=2.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return scores.to(dtype), torch.randint(classes, (rows,), generator=generator)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("name", FAMILY)
def test_the_gradient_is_that_of_finite_differences_in_float64(name, k):
    """Random scores are no kinks, and finite differences of 1e-6 do not reach one."""
    scores, labels = random_scores(seed=k)
    loss = loss_function(name, k, *scores.shape)
    assert torch.autograd.gradcheck(lambda s: loss(s, labels, reduction="none"), scores.requires_grad_())


@pytest.mark.parametrize("name", FAMILY)
def test_a_batch_is_the_loop_over_its_rows_in_value_and_gradient(name):
    scores, labels = random_scores(rows=5)
    loss = loss_function(name, 2, *scores.shape)
    together = scores.clone().requires_grad_()
    losses = loss(together, labels, reduction="none")
    losses.sum().backward()
    for row in range(len(labels)):
        alone = scores[row : row + 1].clone().requires_grad_()
        if name == "noised_topk":
            generator = torch.Generator().manual_seed(5)
            noise = torch.randn(*scores.shape, NOISE_DRAWS, generator=generator, dtype=torch.float64)
            of_row = FAMILY[name].bound(k=2)(alone, labels[row : row + 1], noise=noise[row : row + 1])
        else:
            of_row = loss(alone, labels[row : row + 1])
        of_row.backward()
        assert of_row.item() == pytest.approx(losses[row].item(), abs=FLOAT64)
        assert torch.allclose(alone.grad[0], together.grad[row], atol=FLOAT64, rtol=0)


@pytest.mark.parametrize("name", FAMILY)
def test_the_reductions_are_the_sum_and_the_mean_of_the_losses(name):
    scores, labels = random_scores()
    loss = loss_function(name, 2, *scores.shape)
    losses = loss(scores, labels, reduction="none")
    assert losses.shape == labels.shape
    assert loss(scores, labels, reduction="sum").item() == pytest.approx(losses.sum().item(), rel=FLOAT64)
    assert loss(scores, labels).item() == pytest.approx(losses.mean().item(), rel=FLOAT64)


@pytest.mark.parametrize("name", FAMILY)
def test_a_constant_added_to_all_scores_of_a_row_changes_nothing(name):
    scores, labels = random_scores()
    loss = loss_function(name, 3, *scores.shape)
    shifted = scores + torch.linspace(-30, 30, len(scores), dtype=torch.float64)[:, None]
    kept = loss(scores, labels, reduction="none")
    assert torch.allclose(loss(shifted, labels, reduction="none"), kept, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", EQUIVARIANT)
def test_the_order_of_the_classes_does_not_matter(name):
    scores, labels = random_scores()
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(3))
    kept = loss_function(name, 3, *scores.shape)(scores, labels, reduction="none")
    permuted = loss_function(name, 3, *scores.shape, permutation=order)
    assert torch.allclose(permuted(scores[:, order], order.argsort()[labels], reduction="none"), kept, atol=FLOAT64)


def test_the_sorting_network_of_difftopk_does_depend_on_the_order_of_the_classes():
    """A fact to know before comparing it: the same scores in another order have other probabilities of a top-k rank."""
    loss = FAMILY["difftopk"].bound(k=2)
    scores, labels = random_scores()
    order = torch.arange(scores.shape[1]).flip(0)
    kept, flipped = loss(scores, labels, reduction="none"), loss(scores[:, order], order[labels], reduction="none")
    assert (kept - flipped).abs().max() > 1e-3


@pytest.mark.parametrize("name", [name for name in FAMILY if name != "label_smoothing"])
def test_a_larger_true_score_never_costs_more(name):
    """The derivative by the true score is at most zero. Label smoothing alone may want it smaller."""
    scores, labels = random_scores(rows=64, classes=6, seed=4)
    loss = loss_function(name, 2, *scores.shape)
    scores.requires_grad_()
    loss(scores, labels, reduction="sum").backward()
    assert (scores.grad.gather(1, labels[:, None]) <= FLOAT64).all()


@pytest.mark.parametrize("name", [name for name, loss in FAMILY.items() if loss.convex])
def test_losses_said_to_be_convex_lie_below_their_chords(name):
    left, labels = random_scores(rows=400, classes=6, seed=1, scale=4.0)
    right, _ = random_scores(rows=400, classes=6, seed=2, scale=4.0)
    loss = loss_function(name, 3, *left.shape)
    for share in (0.25, 0.5, 0.75):
        between = loss(share * left + (1 - share) * right, labels, reduction="none")
        chord = share * loss(left, labels, reduction="none") + (1 - share) * loss(right, labels, reduction="none")
        assert (between <= chord + FLOAT64).all()


@pytest.mark.parametrize(
    "name", [n for n, loss in FAMILY.items() if not loss.convex and n not in ("difftopk", "switched_topk")]
)
def test_losses_said_not_to_be_convex_rise_above_a_chord(name):
    left, labels = random_scores(rows=4000, classes=5, seed=1, scale=4.0)
    right, _ = random_scores(rows=4000, classes=5, seed=2, scale=4.0)
    loss = loss_function(name, 3, *left.shape)
    chord = (loss(left, labels, reduction="none") + loss(right, labels, reduction="none")) / 2
    assert (loss((left + right) / 2, labels, reduction="none") > chord + 1e-3).any()


@pytest.mark.parametrize("name", FAMILY)
def test_half_precision_is_computed_in_float32(name):
    scores, labels = random_scores(dtype=torch.bfloat16)
    loss = loss_function(name, 2, *scores.shape)
    wide, half = loss(scores.double(), labels), loss(scores, labels)
    assert half.item() == pytest.approx(wide.item(), rel=BFLOAT16)
    assert torch.isfinite(half)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", FAMILY)
def test_float32_agrees_with_float64_and_nothing_is_infinite_for_scores_of_any_scale(name, scale):
    scores, labels = random_scores(rows=16, classes=9, scale=scale, dtype=torch.float32)
    loss = loss_function(name, 3, *scores.shape)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaf = scores.to(dtype, copy=True).requires_grad_()
        losses = loss(leaf, labels, reduction="none")
        losses.sum().backward()
        assert torch.isfinite(losses).all()
        assert torch.isfinite(leaf.grad).all()
        results.append(losses.detach().double())
    size = 1 + results[1].abs()
    assert ((results[0] - results[1]).abs() / size).max() < (FLOAT32 if name != "difftopk" else 2e-2)


@pytest.mark.parametrize("name", ["hard", "topk_hinge_alpha", "topk_hinge_beta", "smooth", "switched_topk"])
def test_a_loss_below_its_bound_means_a_correct_prediction(name):
    """An error of the top-k prediction costs at least the margin, up to τ log k for the smooth losses."""
    scores, labels = random_scores(rows=500, classes=6, seed=9)
    losses = loss_function(name, 2)(scores, labels, reduction="none")
    allowance = 0.4 * torch.log(torch.tensor(2.0)).item() if "tau" in FAMILY[name].hyper_parameters else 0.0
    wrong = torch.tensor([topk_error(s, y, k=2).item() for s, y in zip(scores, labels, strict=True)]) > 0
    assert wrong.any()
    assert (losses[wrong] >= 1.0 - allowance - FLOAT64).all()


@pytest.mark.parametrize("name", FAMILY)
def test_wrong_tensors_are_refused_in_a_sentence_with_the_value_received(name):
    loss = loss_function(name, 2, 3, 4)
    scores, labels = torch.zeros(3, 4), torch.tensor([0, 1, 2])
    for arguments, words in (
        ((scores.long(), labels), "int64"),
        ((scores, labels.float()), "float32"),
        ((scores, labels[:2]), "(2,)"),
        ((scores, torch.tensor([0, 1, 9])), "9"),
        ((scores, torch.tensor([0, 1, -1])), "-1"),
    ):
        with pytest.raises((TypeError, ValueError, IndexError), match=rf"^(scores|labels) must .*{re.escape(words)}"):
            loss(*arguments)
    with pytest.raises(ValueError, match=r"^reduction must be one of .*'average'"):
        loss(scores, labels, reduction="average")


@pytest.mark.parametrize("name", [n for n, loss in FAMILY.items() if "k" in loss.hyper_parameters])
def test_a_k_that_leaves_no_class_out_is_refused(name):
    scores, labels = torch.zeros(3, 4), torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match="k must be between 1 and the number of classes minus one, got k=4 for 4"):
        FAMILY[name].bound(k=4)(scores, labels)
    with pytest.raises(TypeError, match=r"k must be an integer, got 2\.0"):
        FAMILY[name].bound(k=2.0)(scores, labels)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("label_smoothing", {"label_smoothing": 1.5}),
        ("generalised_cross_entropy", {"q": 0.0}),
        ("generalised_cross_entropy", {"q": 1.5}),
        ("topk_hinge_alpha", {"margin": -1.0}),
        ("topk_hinge_beta", {"margin": float("nan")}),
        ("difftopk", {"inverse_temperature": 0.0}),
        ("difftopk", {"top1_share": -0.1}),
        ("noised_topk", {"epsilon": -1.0}),
        ("lapsum", {"scale": 0.0}),
        ("lapsum", {"top1_share": 1.5}),
        ("aldr_kl", {"temperature": 0.0}),
        ("aldr_kl", {"adaptivity": 1.0}),
        ("switched_topk", {"threshold": 1.0}),
        ("switched_topk", {"tau": 0.0}),
    ],
)
def test_hyper_parameters_out_of_range_are_refused_by_name(name, wrong):
    chosen = settings(name, 2) | wrong
    with pytest.raises(ValueError, match=rf"^{next(iter(wrong))} must be"):
        FAMILY[name].bound(**chosen)(torch.zeros(3, 4), torch.tensor([0, 1, 2]))


def test_an_unknown_hyper_parameter_is_refused_with_those_that_exist():
    with pytest.raises(ValueError, match="top-k entropy has the hyper-parameters k, got tau"):
        FAMILY["topk_entropy"].bound(tau=1.0)


def test_every_loss_of_the_registry_has_a_description_and_a_known_reference():
    known = (ROOT / "book" / "references.bib").read_text()
    for name, loss in FAMILY.items():
        assert f"{{{loss.reference}," in known, name
        assert loss.description.endswith("."), name
        assert loss.checked_against, name
    assert FAMILY["hard"].function is hard_topk_loss

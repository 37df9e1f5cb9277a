"""Top-k error against eq. (5), and the marginals of appendix C against their definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import brute_force_marginals, reference_marginals

from smooth_topk import smooth_topk_loss, topk_accuracy, topk_error, topk_probabilities

FLOAT32_MARGINALS = 1e-5  # what the package promises
FLOAT64_ROUNDING = 1e-11


def random_scores(*shape, scale=3.0, seed=0, dtype=torch.float64):
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).to(dtype)


@given(st.lists(st.integers(-2, 2), min_size=2, max_size=7), st.data())
def test_the_error_is_the_indicator_of_equation_5_with_ties(values, data):
    scores = torch.tensor(values, dtype=torch.float32)
    label, k = data.draw(st.integers(0, len(values) - 1)), data.draw(st.integers(1, len(values)))
    indicator = sorted(values, reverse=True)[k - 1] > values[label]
    assert topk_error(scores, torch.tensor(label), k).item() == indicator
    assert topk_accuracy(scores, torch.tensor(label), k).item() == 1 - indicator


def missed(scores, labels, k):
    return (scores.topk(k).indices != labels[..., None]).all(-1).double()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.uint16, torch.uint32, torch.uint64])
def test_the_error_of_a_batch_is_the_share_of_its_samples(dtype):
    scores, labels = random_scores(200, 30), torch.randint(30, (200,), generator=torch.Generator().manual_seed(1))
    expected = missed(scores, labels, 5).mean().item()
    assert topk_error(scores, labels.to(dtype)).item() == pytest.approx(expected)
    assert topk_accuracy(scores, labels.to(dtype)).item() == pytest.approx(1 - expected)


def test_pixels_count_as_samples_and_ignored_ones_do_not():
    scores, labels = random_scores(3, 9, 4, 5), torch.randint(9, (3, 4, 5), generator=torch.Generator().manual_seed(1))
    wrong = missed(scores.movedim(1, -1), labels, 2)
    assert topk_error(scores, labels, 2).item() == pytest.approx(wrong.mean().item())
    some = labels.clone()
    some[:, 1] = -100
    assert topk_error(scores, some, 2).item() == pytest.approx(wrong[:, [0, 2, 3]].mean().item())
    seven = topk_error(scores, labels, 2, ignore_index=7).item()
    assert seven == pytest.approx(wrong[labels != 7].mean().item())
    assert topk_error(scores, torch.full_like(labels, -100)).isnan()


def test_the_macro_average_is_the_mean_over_the_classes_that_occur():
    scores, labels = random_scores(60, 6), torch.tensor([0] * 40 + [1] * 15 + [2] * 4 + [-100])
    wrong = missed(scores, labels, 2)
    expected = sum(wrong[labels == label].mean().item() for label in range(3)) / 3
    assert topk_error(scores, labels, 2, average="macro").item() == pytest.approx(expected)
    assert topk_accuracy(scores, labels, 2, average="macro").item() == pytest.approx(1 - expected)


def test_a_label_with_a_nan_score_is_an_error():
    scores = torch.tensor([1.0, torch.nan, 0.0])
    assert [topk_error(scores, torch.tensor(y), k=k).item() for y, k in [(1, 2), (0, 1), (0, 2)]] == [1, 1, 0]


def test_the_error_of_k_equal_to_the_number_of_classes_is_zero():
    assert topk_error(random_scores(9, 4), torch.zeros(9, dtype=torch.long), k=4) == 0


@settings(max_examples=40)
@given(st.lists(st.floats(-8, 8), min_size=1, max_size=8), st.data())
def test_the_probabilities_equal_the_enumeration_of_all_subsets(values, data):
    k = data.draw(st.integers(1, len(values)))
    truth = torch.tensor([float(p) for p in brute_force_marginals(values, k)], dtype=torch.float64)
    ours = topk_probabilities(torch.tensor(values, dtype=torch.float64), k, tau=1 / k)
    assert (ours - truth).abs().max() < FLOAT64_ROUNDING


@pytest.mark.parametrize("scale", [1e-2, 1.0, 100.0])
@pytest.mark.parametrize(("k", "n"), [(1, 1000), (5, 6), (5, 1000), (20, 22), (50, 100)])
def test_the_probabilities_are_accurate_in_float32(k, n, scale):
    x = random_scores(1, n, scale=scale, dtype=torch.float32)
    truth = torch.tensor([float(p) for p in reference_marginals(x[0], k)], dtype=torch.float64)
    ours = topk_probabilities(x, k, tau=1 / k)[0].double()
    assert (ours - truth).abs().max() < FLOAT32_MARGINALS
    assert ours.sum().item() == pytest.approx(k, rel=FLOAT32_MARGINALS)


def test_one_of_one_is_the_softmax_and_of_all_classes_each_is_certain():
    scores = random_scores(4, 7)
    torch.testing.assert_close(topk_probabilities(scores, 1), scores.softmax(1))
    torch.testing.assert_close(topk_probabilities(scores, 7), torch.ones_like(scores))


@pytest.mark.parametrize("tau", [1.0, 0.1])
def test_the_temperature_is_the_one_of_the_loss(tau):
    scores, k, label = random_scores(1, 8), 3, torch.tensor([2])
    ours = topk_probabilities(scores, k) if tau == 1 else topk_probabilities(scores, k, tau=tau)
    loss = smooth_topk_loss(scores, label, k=k, tau=tau, margin=0.0)  # its share of sets without a margin
    assert ours[0, 2].item() == pytest.approx((-loss / tau).exp().item())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("k", [1, 3])
def test_a_row_with_nan_or_infinity_is_nan_as_in_softmax(bad, k):
    scores = random_scores(2, 6)
    scores[0, 4] = bad
    probabilities = topk_probabilities(scores, k)
    assert probabilities[0].isnan().all()
    torch.testing.assert_close(probabilities[1:], topk_probabilities(scores[1:], k))


def test_a_low_temperature_gives_the_indicator_of_the_top_k():
    scores = random_scores(3, 8)
    indicator = torch.zeros_like(scores).scatter(1, scores.topk(3).indices, 1.0)
    torch.testing.assert_close(topk_probabilities(scores, 3, tau=1e-5), indicator)


def test_crops_are_averaged_after_the_probabilities_and_normalized_ones_sum_to_one():
    scores = random_scores(4, 10, 6)
    averaged = topk_probabilities(scores, 3, crops=1)
    assert averaged.shape == (4, 6)
    torch.testing.assert_close(averaged, torch.stack([topk_probabilities(s, 3) for s in scores.unbind(1)]).mean(0))
    torch.testing.assert_close(topk_probabilities(scores, 3, crops=-2), averaged)
    torch.testing.assert_close(topk_probabilities(scores.movedim(1, 0), 3, crops=-3), averaged)
    torch.testing.assert_close(topk_probabilities(scores, 3, crops=1, normalize=True), averaged / 3)


def test_a_class_of_minus_infinity_has_no_chance_and_does_not_change_the_others():
    scores = random_scores(2, 5)
    padded = torch.cat([scores, torch.full((2, 1), -torch.inf, dtype=torch.float64)], 1)
    probabilities = topk_probabilities(padded, 3)
    assert (probabilities[:, 5] == 0).all()
    torch.testing.assert_close(probabilities[:, :5], topk_probabilities(scores, 3))


def test_no_subset_means_no_probability():
    scores = torch.tensor([[0.0, -torch.inf, -torch.inf]])
    assert topk_probabilities(scores, 2).tolist() == [[0.0, 0.0, 0.0]]


def test_the_probabilities_are_differentiable_twice():
    scores = random_scores(2, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: topk_probabilities(s, 2), scores)
    assert torch.autograd.gradgradcheck(lambda s: topk_probabilities(s, 2), scores)


def test_half_precision_comes_back_in_its_dtype():
    scores = random_scores(2, 5, dtype=torch.bfloat16)
    half = topk_probabilities(scores, 2)
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, topk_probabilities(scores.float(), 2).bfloat16())


SCORES, LABELS = torch.zeros(2, 3), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: topk_error(SCORES, LABELS, k=4), ValueError, "k=4"),
        (lambda: topk_error(SCORES, LABELS, k=0), ValueError, "k=0"),
        (lambda: topk_error(SCORES, LABELS, k=1.5), TypeError, "1.5"),
        (lambda: topk_error(SCORES, LABELS[:1], k=1), ValueError, r"\(1,\)"),
        (lambda: topk_error(torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), k=1), ValueError, r"\(2, 3\)"),
        (lambda: topk_error(SCORES, torch.tensor([0, 3]), k=1), IndexError, "label 3"),
        (lambda: topk_error(SCORES, torch.tensor([4, -1]), k=1), IndexError, "label 4"),
        (lambda: topk_error(SCORES, torch.tensor([0, -1]), k=1), IndexError, "label -1"),
        (lambda: topk_error(SCORES, torch.tensor([0, -100]), k=1, ignore_index=-1), IndexError, "label -100"),
        (lambda: topk_error(SCORES, torch.tensor([0, 3]).to(torch.uint64), k=1), IndexError, "label 3"),
        (lambda: topk_error(SCORES, LABELS, k=1, average="weighted"), ValueError, "'weighted'"),
        (lambda: topk_error(SCORES, LABELS, k=1, ignore_index=0.5), TypeError, "0.5"),
        (lambda: topk_error(SCORES, LABELS.float(), k=1), TypeError, "float32"),
        (lambda: topk_error(SCORES, LABELS.to("meta"), k=1), RuntimeError, "meta"),
        (lambda: topk_error(SCORES.long(), LABELS, k=1), TypeError, "int64"),
        (lambda: topk_probabilities(SCORES, 4), ValueError, "k=4"),
        (lambda: topk_probabilities(SCORES, 2, tau=0.0), ValueError, "0.0"),
        (lambda: topk_probabilities(SCORES, 2, tau=float("nan")), ValueError, "nan"),
        (lambda: topk_probabilities(SCORES, 2, crops=2), ValueError, "crops=2"),
        (lambda: topk_probabilities(SCORES, 2, crops=-1), ValueError, "crops=-1"),
        (lambda: topk_probabilities(SCORES, 2, crops=0.5), TypeError, "0.5"),
        (lambda: topk_probabilities(SCORES[None], 2, crops=2), ValueError, "crops=2"),
        (lambda: topk_probabilities(torch.tensor(1.0), 1), ValueError, "scalar"),
    ],
)
def test_bad_input_is_refused_with_its_value(call, error, value):
    with pytest.raises(error, match=value):
        call()


def test_the_usual_prediction_has_five_classes():
    scores = torch.arange(8.0)[None]
    errors = [topk_error(scores, torch.tensor([label])).item() for label in (3, 2)]
    assert errors == [0.0, 1.0]  # the fifth and the sixth largest
    assert [topk_accuracy(scores, torch.tensor([label])).item() for label in (3, 2)] == [1.0, 0.0]
    assert topk_probabilities(scores).sum() == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("scores", "tau"),
    [([1e8, 1e8 + 8, 1e8 - 8, 1e8 + 16], 3.0), ([10.0, 10.0003, 9.9998, 10.0001, 10.0002], 1e-4)],
)
def test_a_temperature_does_not_take_digits_from_scores_far_from_zero(scores, tau):
    scores = torch.tensor(scores)  # in float32 many of their digits are spent on what they have in common
    x = ((scores.double() - scores[0].double()) / (2 * tau)).tolist()
    expected = [float(value) for value in reference_marginals(x, 2)]
    assert topk_probabilities(scores, 2, tau=tau).tolist() == pytest.approx(expected, rel=FLOAT32_MARGINALS)


def test_the_smallest_temperature_leaves_the_k_largest():
    assert topk_probabilities(torch.tensor([1.0, 3.0, -2.0, 2.0]), 2, tau=1e-40).tolist() == [0.0, 1.0, 0.0, 1.0]

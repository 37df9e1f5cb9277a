"""One test for each proposition, lemma and observation of the paper, and for each erratum in book/errata.md."""

import re
from fractions import Fraction
from itertools import combinations, permutations, product
from math import comb, factorial, log, prod
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mpmath import exp, mpf
from mpmath import log as log_of
from reference import (
    brute_force_hard_loss,
    brute_force_loss,
    brute_force_marginals,
    reference_hard_loss,
    reference_loss,
)

from smooth_topk import (
    hard_topk_loss,
    log_symmetric_polynomials,
    smooth_topk_loss,
    topk_error,
    topk_probabilities,
)
from smooth_topk.polynomials import divide_and_conquer
from smooth_topk.study.records.paper import paper_table

ROUNDING = 1e-12  # float64, a few thousand operations
EXACT = mpf(10) ** -45  # the reference carries 60 digits

# Scores on a grid, so that ties are common.
score_rows = st.lists(st.integers(-12, 12).map(lambda i: i / 4), min_size=2, max_size=7)
taus = st.sampled_from([10.0, 1.0, 0.1, 1e-3])


def draw_label_and_k(data, scores):
    return data.draw(st.integers(0, len(scores) - 1)), data.draw(st.integers(1, len(scores) - 1))


def losses(scores, label, k, tau, margin=1.0):
    """The package's smooth and hard loss of one row, in float64."""
    row, label = torch.tensor(scores, dtype=torch.float64), torch.tensor(label)
    smooth = smooth_topk_loss(row, label, k=k, tau=tau, margin=margin)
    return smooth.item(), hard_topk_loss(row, label, k=k, margin=margin).item()


def sigma(e, j):
    """sigma_j by its definition, in the exact arithmetic of its elements."""
    return sum((prod(subset) for subset in combinations(e, j)), start=Fraction(0)) if j else Fraction(1)


# --- Appendix A: the losses ---


@given(score_rows, st.data())
def test_proposition_1_the_hard_loss_is_a_difference_of_two_maxima(scores, data):
    label, k = draw_label_and_k(data, scores)
    definition = brute_force_hard_loss(scores, label, k)
    assert abs(reference_hard_loss(scores, label, k) - definition) < EXACT
    assert abs(losses(scores, label, k, 1.0)[1] - definition) < ROUNDING


@settings(max_examples=50)
@given(score_rows, taus, st.data())
def test_equation_10_rewrites_the_smooth_loss_in_symmetric_polynomials(scores, tau, data):
    label, k = draw_label_and_k(data, scores)
    definition = brute_force_loss(scores, label, k, tau)
    assert abs(reference_loss(scores, label, k, tau) - definition) < EXACT
    assert abs(losses(scores, label, k, tau)[0] - definition) < ROUNDING * max(1, definition)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=9), st.sampled_from([1.0, 0.1, 1e-3, 1e-6]))
def test_lemma_1_the_scaled_log_sum_exp_tends_to_the_maximum(values, tau):
    e = torch.tensor(values, dtype=torch.float64)
    gap = tau * divide_and_conquer.log_sum_exp(e / tau) - e.max()
    assert -ROUNDING <= gap <= tau * log(len(values)) + ROUNDING


@given(score_rows, st.sampled_from([1.0, 1e-2, 1e-4, 1e-8]), st.data())
def test_proposition_2_the_smooth_loss_tends_to_the_hard_loss_even_where_scores_tie(scores, tau, data):
    """Each of the two sums of eq. (9) has at most C(n, k) terms, so |L - l| <= τ log C(n, k), ties or not."""
    label, k = draw_label_and_k(data, scores)
    smooth, hard = losses(scores, label, k, tau)
    assert abs(smooth - hard) <= tau * log(comb(len(scores), k)) + ROUNDING


@given(score_rows, taus, st.data())
def test_proposition_3_the_smooth_loss_bounds_the_hard_loss_for_k_equal_to_one(scores, tau, data):
    label = data.draw(st.integers(0, len(scores) - 1))
    smooth, hard = losses(scores, label, 1, tau)
    assert smooth >= hard - ROUNDING


@pytest.mark.parametrize("tau", [10.0, 1.0, 0.1])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_proposition_3_fails_for_every_larger_k_by_the_example_of_its_proof(k, tau):
    x = 30 * tau  # far enough in the limit x -> infinity of the proof
    scores = [0.0] + [k * (x - 1)] * k + [-torch.inf] * 3  # 1 + (beta - alpha)/k = x
    smooth, hard = losses(scores, 0, k, tau)
    assert hard == pytest.approx(x, rel=ROUNDING)
    assert smooth == pytest.approx(x - tau * log(k), rel=1e-9)  # what is left of the limit is e^-30
    assert smooth < hard


def test_lemma_2_bounds_a_binomial_coefficient_by_the_next_one():
    for q in range(1, 60):
        for p in range(q):
            assert comb(q, p) <= q * comb(q, p + 1)
    assert comb(7, 6) == 7 * comb(7, 7)  # the bound is attained


misclassified = st.lists(st.integers(0, 9), min_size=2, max_size=8).flatmap(
    lambda row: st.tuples(st.just(sorted(row, reverse=True)), st.integers(1, len(row) - 1))
)


@given(misclassified, st.data())
def test_lemma_3_the_subsets_without_a_misclassified_label_weigh_at_least_a_kth_of_those_with_it(case, data):
    e, k = case  # descending: the first k are a prediction P_k, and any later element is a misclassified label
    label = data.draw(st.integers(k, len(e) - 1))
    others = e[:label] + e[label + 1 :]
    assert e[label] * sigma(others, k - 1) <= k * sigma(others, k)


@given(misclassified)
def test_lemma_3_by_giving_each_set_of_k_minus_1_classes_a_class_of_the_head_that_it_misses(case):
    """The proof of chapter 6: each image weighs e_[k] times its set at least, and has k preimages at most."""
    e, k = case  # descending: the first k are the head, and e[k - 1] is the pivot
    preimages = {}
    for members in combinations(range(len(e)), k - 1):
        missing = min(set(range(k)) - set(members))
        image = tuple(sorted((*members, missing)))
        assert prod(e[i] for i in image) >= e[k - 1] * prod(e[i] for i in members)
        preimages.setdefault(image, []).append(members)
    assert all(len(image) == k for image in preimages)
    assert max(len(found) for found in preimages.values()) <= k
    assert e[k - 1] * sigma(e, k - 1) <= k * sigma(e, k)


@given(misclassified)
def test_the_other_side_of_lemma_3_bounds_the_correction_from_above(case):
    """Chapter 6: a k-set without its smallest member, which weighs e_[k] at most; n - k sets become the same one."""
    e, k = case
    assert sigma(e, k) <= (len(e) + 1 - k) * e[k - 1] * sigma(e, k - 1)  # e are the n - 1 other classes


@given(score_rows, st.sampled_from([2.0, 0.5, 0.1, 1e-3]), st.data())
def test_proposition_4_the_smooth_loss_bounds_the_prediction_loss_up_to_a_factor(scores, tau, data):
    label, k = draw_label_and_k(data, scores)
    error = topk_error(torch.tensor(scores), torch.tensor(label), k).item()
    smooth, _ = losses(scores, label, k, tau)
    assert smooth >= (1 - tau * log(k)) * error - ROUNDING
    assert smooth >= 0


@given(score_rows, st.data())
def test_section_3_cross_entropy_is_the_case_k_1_tau_1_and_no_margin(scores, data):
    label = data.draw(st.integers(0, len(scores) - 1))
    entropy = torch.nn.functional.cross_entropy(torch.tensor(scores, dtype=torch.float64), torch.tensor(label))
    assert losses(scores, label, 1, 1.0, margin=0.0)[0] == pytest.approx(entropy.item(), abs=ROUNDING)


# --- Appendix B: the algorithms ---


def products_formed(monkeypatch, run):
    """How many products of two coefficients the divide-and-conquer tree adds up while `run` is executed."""
    counts = []
    original = divide_and_conquer.log_sum_exp
    monkeypatch.setattr(divide_and_conquer, "log_sum_exp", lambda terms: (counts.append(terms), original(terms))[1])
    run()
    return counts


@pytest.mark.parametrize(("degree", "truncation"), [(1, 5), (4, 5), (5, 5), (5, 2), (3, 10)])
def test_lemma_4_a_truncated_product_costs_the_product_of_the_truncated_degrees(monkeypatch, degree, truncation):
    a = torch.zeros(1, 1, degree + 1)
    (terms,) = products_formed(monkeypatch, lambda: divide_and_conquer.log_multiply(a, a, truncation))
    assert terms.isfinite().sum() <= (min(truncation, degree) + 1) ** 2


@pytest.mark.parametrize("k", [1, 2, 5, 16, 50])
@pytest.mark.parametrize("n", [64, 100, 1000, 4096])
def test_proposition_5_algorithm_1_takes_a_multiple_of_kn_operations(monkeypatch, k, n):
    terms = products_formed(monkeypatch, lambda: divide_and_conquer.log_sigma(torch.zeros(1, n), k))
    assert n - 1 <= sum(t.numel() for t in terms) <= 8 * k * n  # one constant for every k and n
    assert len(terms) == (n - 1).bit_length()  # levels of the recursion: log2 n


def recursion_in_float32(e):
    """δ_1..δ_3 of the first element by Algorithm 2 in linear space and single precision."""
    e = torch.tensor(e, dtype=torch.float32)
    sigmas = [1.0, e.sum(), (e.sum() ** 2 - (e**2).sum()) / 2]
    delta = [torch.tensor(1.0)]
    for j in (2, 3):
        delta.append(sigmas[j - 1] - e[0] * delta[-1])
    return [d.item() for d in delta]


def relative_error_of_the_recursion(e):
    return abs(recursion_in_float32(e)[2] / float(sigma([Fraction(v) for v in e[1:]], 2)) - 1)


def test_observation_1_the_recursion_is_unstable_for_an_element_far_above_the_others():
    others = [1.25, 0.75, 0.5, 1.5]
    assert relative_error_of_the_recursion([1.0, *others]) < 1e-6
    assert relative_error_of_the_recursion([1e5, *others]) > 1  # not one digit is right
    # What matters is the ratio to the others; being large on its own, as the observation also asks, does not.
    assert relative_error_of_the_recursion([v * 2.0**-20 for v in [1e5, *others]]) > 1
    assert relative_error_of_the_recursion([v * 2.0**20 for v in [1.0, *others]]) < 1e-6


fractions = st.lists(st.integers(1, 30).map(lambda i: Fraction(i, 7)), min_size=2, max_size=7)


def approximation(e, i, k, order, exponent_of):
    return sum((-1) ** j * sigma(e, k + j) / e[i] ** exponent_of(j) for j in range(order + 1))


@given(fractions, st.data())
def test_proposition_6_the_error_of_the_series_is_one_term_exactly(e, data):
    i, k = data.draw(st.integers(0, len(e) - 1)), data.draw(st.integers(1, len(e)))
    order = data.draw(st.integers(0, len(e) - k))
    without = e[:i] + e[i + 1 :]
    error = abs(sigma(without, k - 1) - approximation(e, i, k, order, lambda j: j + 1))
    assert error == sigma(without, k + order) / e[i] ** (order + 1)


integers = st.lists(st.integers(1, 30), min_size=2, max_size=7)


@given(integers, st.data())
def test_newtons_inequality_makes_every_derivative_off_the_label_positive(e, data):
    """Chapter 6: the derivative by class i has the sign of T_{k-1}² - T_{k-2} T_k, with T_j = sigma_j without i.

    A product with the classes C twice and 2r others once occurs C(2r, r) times in the square and C(2r, r - 1) times in
    the other product. The difference is the Catalan number C(2r, r) / (r + 1).
    """
    k, n = data.draw(st.integers(1, len(e))), len(e)
    without = e[1:]
    T = {j: sigma(without, j) if j >= 0 else 0 for j in (k - 2, k - 1, k)}
    catalan = 0
    for r in range(k):
        for twice in combinations(range(n - 1), k - 1 - r):
            rest = [value for place, value in enumerate(without) if place not in twice]
            catalan += comb(2 * r, r) // (r + 1) * prod(without[place] for place in twice) ** 2 * sigma(rest, 2 * r)
    assert T[k - 1] ** 2 - T[k - 2] * T[k] == catalan > 0
    assert k * T[k - 2] * T[k] <= (k - 1) * T[k - 1] ** 2  # so the subtraction loses a factor k at most
    lower, upper = sigma(e, k - 1), sigma(e, k)
    derivative = Fraction(e[0] * T[k - 1], upper) - Fraction(e[0] * T[k - 2], lower)
    assert derivative == Fraction(e[0] * catalan, upper * lower)


# --- Appendix C: the marginals ---


@given(score_rows, st.data())
def test_proposition_7_the_marginals_are_derivatives_of_log_sigma_k(scores, data):
    k = data.draw(st.integers(1, len(scores)))
    x = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(log_symmetric_polynomials(x, k)[k], x)
    definition = torch.tensor([float(p) for p in brute_force_marginals(scores, k)], dtype=torch.float64)
    assert (slope - definition).abs().max() < ROUNDING
    assert (topk_probabilities(x, k, tau=1 / k) - definition).abs().max() < ROUNDING


# --- Appendix D: the margin ---

INPUTS = torch.tensor([[1.0, 0.5], [-0.75, 1.0], [0.25, 0.75]], dtype=torch.float64)
TARGETS = torch.tensor([0, 1, 2])
K, CLASSES = 2, 3


def svm_objective(w, regularization, margin):
    """(P_{lambda, alpha}) of appendix D.2, with the loss of eq. (6): that of eq. (8) for k times the scores."""
    return regularization / 2 * w.pow(2).sum() + hard_topk_loss(K * (INPUTS @ w), TARGETS, k=K, margin=margin)


def svm_solution(regularization, margin):
    """The global minimiser (d, n) of the top-2 SVM with 3 classes.

    The second largest of two other scores is the smaller one. For a fixed guess which class that is for each sample,
    the problem is convex, and its dual is a quadratic function of one number per sample in the box [0, 1/N]. All
    guesses and all sets of active bounds are tried.
    """
    best = None
    for guess in product(*[[c for c in range(CLASSES) if c != y] for y in TARGETS.tolist()]):
        one_hot = torch.eye(CLASSES, dtype=torch.float64)
        features = INPUTS[:, :, None] * (one_hot[TARGETS] - one_hot[list(guess)])[:, None, :]  # (N, d, n)
        flat = features.flatten(1)
        for bounds in product([0.0, 1.0 / len(TARGETS), None], repeat=len(TARGETS)):
            w = _dual_point(flat, bounds, regularization, margin).reshape(2, CLASSES)
            value = svm_objective(w, regularization, margin)
            if best is None or value < best[0]:
                best = (value, w)
    return best[1]


def _dual_point(flat, bounds, regularization, margin):
    """w = Σ beta_i feature_i / lambda with the given betas fixed and the free ones on their margin."""
    free = [i for i, bound in enumerate(bounds) if bound is None]
    beta = torch.tensor([bound or 0.0 for bound in bounds], dtype=torch.float64)
    if free:
        gram = flat @ flat.T / regularization
        beta[free] = torch.linalg.lstsq(gram[free][:, free], margin - gram[free] @ beta, driver="gelsd").solution
    return beta @ flat / regularization


@pytest.mark.parametrize(("regularization", "margin"), [(0.2, 2.0), (0.05, 0.5), (1.0, 4.0)])
def test_proposition_8_margin_and_regularization_are_interchangeable(regularization, margin):
    w = svm_solution(regularization, margin)
    assert w.abs().max() > 1e-3  # a trivial solution would prove nothing
    generator = torch.Generator().manual_seed(0)
    for scale in (1e-4, 1e-2, 1.0):  # w is a minimum, and the only one nearby
        for _ in range(50):
            other = w + scale * torch.randn(w.shape, generator=generator, dtype=torch.float64)
            assert svm_objective(other, regularization, margin) > svm_objective(w, regularization, margin)
    torch.testing.assert_close(svm_solution(margin * regularization, 1.0), w / margin)
    torch.testing.assert_close(svm_solution(1.0, margin * regularization), w * regularization)


# --- The errata of book/errata.md ---


@given(fractions, st.data())
def test_erratum_1_the_printed_series_misses_a_factor_of_e_i(e, data):
    i, k = data.draw(st.integers(0, len(e) - 1)), data.draw(st.integers(1, len(e)))
    assume(e[i] != 1)
    derivative = sigma(e[:i] + e[i + 1 :], k - 1)
    complete = len(e) - k  # no term is left out, and the error of Proposition 6 is zero
    assert approximation(e, i, k, complete, lambda j: j + 1) == derivative
    assert approximation(e, i, k, complete, lambda j: j) == e[i] * derivative != derivative


def test_erratum_2_the_subsets_with_the_label_are_counted_by_n_minus_1():
    for n in range(2, 9):
        for k in range(1, n):
            with_label = [subset for subset in combinations(range(n), k) if 0 in subset]
            assert len(with_label) == comb(n - 1, k - 1)
    assert comb(999, 4) != comb(1000, 4)


def test_erratum_3_the_marginals_sum_to_k_and_the_printed_index_is_not_a_marginal():
    x, k = [0.5, 2.0, -1.0, 1.0], 2
    marginals = brute_force_marginals(x, k)
    assert abs(sum(marginals) - k) < EXACT
    printed = [brute_force_marginals(x, i)[i - 1] for i in range(1, 5)]  # d log sigma_i / ds_i for the label i
    ratios = [p / m for p, m in zip(printed, marginals, strict=True)]
    assert max(ratios) > 2 * min(ratios)  # not proportional either


def multiply(a, b):
    return [sum(a[i] * b[c - i] for i in range(len(a)) if 0 <= c - i < len(b)) for c in range(len(a) + len(b) - 1)]


def divide_and_conquer_in_fractions(leaves, next_count, padding=None):
    """Algorithm 1 on exact polynomials, with the printed or the corrected update of the number of polynomials."""
    polynomials, count = list(leaves), len(leaves)
    while count > 1:
        if count % 2 and padding is not None:
            polynomials.append(padding)
        count = next_count(count)
        polynomials = [multiply(polynomials[2 * i], polynomials[2 * i + 1]) for i in range(count)]
    return polynomials[0] if polynomials else []


@given(fractions)
def test_erratum_4_algorithm_1_halves_rounding_up_and_pads_odd_counts(e):
    expanded = divide_and_conquer_in_fractions([[1, v] for v in e], lambda p: -(-p // 2), padding=[1])
    truth = [sigma(e, j) for j in range(len(e) + 1)]
    assert expanded[: len(e) + 1] == truth
    printed = divide_and_conquer_in_fractions([[1, v] for v in e], lambda p: (p - 1) // 2)
    assert printed != truth  # factors are dropped on the way; for two elements nothing is left


@given(fractions)
def test_erratum_4_algorithm_2_starts_at_two(e):
    delta = {1: [Fraction(1)] * len(e)}  # nothing is defined for the index 0 that a start at j = 1 would read
    for j in range(2, len(e) + 1):
        delta[j] = [sigma(e, j - 1) - e_i * before for e_i, before in zip(e, delta[j - 1], strict=True)]
    for j, row in delta.items():
        assert row == [sigma(e[:i] + e[i + 1 :], j - 1) for i in range(len(e))]


@given(fractions, st.data())
def test_erratum_4_the_inner_loop_of_algorithm_3_runs_over_j(e, data):
    n, k = len(e), data.draw(st.integers(1, len(e)))
    table = {(0, i): Fraction(1) for i in range(n + 1)} | {
        (j, i): Fraction(0) for j in range(1, k + 1) for i in range(j)
    }
    table[1, 1] = e[0]
    for i in range(2, n + 1):
        for j in range(max(1, i + k - n), min(i, k) + 1):
            table[j, i] = table[j, i - 1] + e[i - 1] * table[j - 1, i - 1]
    assert table[k, n] == sigma(e, k)


@given(fractions)
def test_erratum_5_the_inverted_polynomial_is_the_direct_one(e):
    inverted = divide_and_conquer_in_fractions([[1 / v, 1] for v in e], lambda p: -(-p // 2), padding=[1])
    direct = divide_and_conquer_in_fractions([[1, v] for v in e], lambda p: -(-p // 2), padding=[1])
    assert [prod(e) * coefficient for coefficient in inverted] == direct


def test_erratum_6_without_margin_or_regularization_the_problems_are_not_equivalent():
    """One sample, two classes: an affine map cannot send one solution onto many, nor 0 to a positive margin."""
    sample, label = torch.ones(1, 1, dtype=torch.float64), torch.tensor([0])

    def objective(w, regularization, margin):
        w = torch.tensor([w], dtype=torch.float64)
        loss = hard_topk_loss(sample @ w, label, k=1, margin=margin)
        return (regularization / 2 * w.pow(2).sum() + loss).item()

    many = [(0.0, 0.0), (1.0, 0.0), (3.0, -1.0)]
    assert [objective(w, 0.0, 0.0) for w in many] == [0, 0, 0]  # all solve (P_{0,0})
    assert [objective(w, 1.0, 0.0) == 0 for w in many] == [True, False, False]  # only zero solves (P_{1,0})
    assert objective((2.0, 2.0), 0.0, 0.0) == 0  # equal scores solve (P_{0,0}) ...
    assert objective((2.0, 2.0), 0.0, 1.0) > objective((1.0, 0.0), 0.0, 1.0) == 0  # ... and never (P_{0,1})


def test_erratum_7_the_proof_of_proposition_1_ranks_the_other_scores():
    scores, label, k = [3.0, 2.0, 1.0], 0, 2
    largest_with_label = max(sum(subset) for subset in combinations(scores, k) if scores[label] in subset)
    others = sorted(scores[:label] + scores[label + 1 :], reverse=True)
    everything = sorted(scores, reverse=True)
    assert sum(others[: k - 1]) + scores[label] == largest_with_label
    assert sum(everything[: k - 1]) + scores[label] != largest_with_label  # as printed, s_y is counted twice


def test_erratum_8_the_sets_of_the_proof_of_lemma_3_are_no_partition():
    """The V_j hold 1 to k classes of the prediction. A set without any of them, and without the label, is in none."""
    n, k, label = 7, 2, 6
    prediction = {0, 1}
    without_label = [set(chosen) for chosen in combinations(range(n), k) if label not in chosen]
    in_some_v = [chosen for chosen in without_label if len(chosen & prediction) in range(1, k + 1)]
    left_out = [chosen for chosen in without_label if chosen not in in_some_v]
    assert left_out == [set(chosen) for chosen in combinations((2, 3, 4, 5), k)] != []
    # A class of the whole prediction, as printed, may be in the set already: then no k classes are left.
    assert any(len((chosen - {label}) | {0}) < k for chosen in map(set, combinations(range(n), k)) if label in chosen)


def largest_sets(scores, label, k, margin=1.0):
    """How many sets attain each of the two maxima of Proposition 1."""
    value = {c: sum(scores[i] for i in c) / k for c in combinations(range(len(scores)), k)}
    every = [v + margin * (label not in c) for c, v in value.items()]
    with_label = [v for c, v in value.items() if label in c]
    return every.count(max(every)), with_label.count(max(with_label))


def hypotheses_of_proposition_2(scores, label, k):
    s = [float("inf"), *sorted(scores, reverse=True)]
    return s[k - 1] > s[k] and (s[k] > s[k + 1] or scores[label] / k > 1 + s[k] / k)


def test_erratum_9_the_hypotheses_of_proposition_2_do_not_give_strict_maxima():
    tie_at_the_margin = [3.0, 5.0, 1.0, 0.0]  # all scores differ, and the label is ahead by exactly k times the margin
    tie_behind_the_label = [10.0, 1.0, 1.0, 0.0]  # the second alternative of the hypothesis
    assert hypotheses_of_proposition_2(tie_at_the_margin, 0, 2)
    assert hypotheses_of_proposition_2(tie_behind_the_label, 0, 2)
    assert largest_sets(tie_at_the_margin, 0, 2) == (2, 1)
    assert largest_sets(tie_behind_the_label, 0, 2) == (2, 2)
    for scores in (tie_at_the_margin, tie_behind_the_label):  # the limit holds all the same
        smooth, hard = losses(scores, 0, 2, 1e-9)
        assert smooth == pytest.approx(hard, abs=1e-8)


@pytest.mark.parametrize(("levels", "k"), [(4, 1), (8, 3), (10, 5), (12, 100)])
def test_erratum_10_the_second_sum_of_proposition_5_is_twice_the_printed_one(levels, k):
    n = 2**levels
    n_0 = max(j for j in range(levels) if k <= n / 2**j)
    first = sum(Fraction(2**j * k**2) for j in range(n_0 + 1))
    second = sum(2**j * Fraction(n, 2**j) ** 2 for j in range(n_0 + 1, levels))
    printed = n**2 * (Fraction(1, 2 ** (n_0 + 1)) - Fraction(1, 2**levels))
    assert first == (2 ** (n_0 + 1) - 1) * k**2
    assert second == 2 * printed
    assert first + second < 4 * k * n  # the order of the proposition stands


@given(fractions, st.integers(1, 9).map(lambda i: Fraction(i, 1000)))
def test_erratum_11_the_errors_of_observation_1_end_with_the_power_k_minus_2(e, epsilon):
    wrong = sigma(e, 1) - e[0] + epsilon  # delta_2, with the error epsilon of the sketch
    for k in range(3, len(e) + 1):
        wrong = sigma(e, k - 1) - e[0] * wrong
        assert abs(wrong - sigma(e[1:], k - 1)) == e[0] ** (k - 2) * epsilon


@given(fractions, st.data())
def test_erratum_12_the_first_polynomial_of_section_4_2_needs_its_leading_coefficients_only(e, data):
    """Coefficients of degree n - k to n of Π (X + e_i) are sigma_k..sigma_0; products from the top need no others."""
    k = data.draw(st.integers(1, len(e)))
    leading, counted = [Fraction(1)], 0  # of the highest degree first
    for value in e:
        bracket = [Fraction(1), value]  # X + e_i
        counted += len(leading) + min(len(leading), k)
        leading = multiply(leading, bracket)[: k + 1]
    assert leading == [sigma(e, j) for j in range(min(k, len(e)) + 1)]
    assert counted <= 2 * (k + 1) * len(e)  # as short as for Q, and no division


def test_erratum_13_equations_2_4_and_5_hold_without_ties_only():
    scores, label, k = [2.0, 1.0, 1.0], 1, 2
    predictions = [c for c in combinations(range(3), k) if all(scores[i] >= sorted(scores)[-k] for i in c)]
    assert predictions == [(0, 1), (0, 2), (1, 2)]  # what eq. (4) allows; the last leaves the largest score out
    assert {label not in prediction for prediction in predictions} == {False, True}  # the left side of eq. (5)
    assert topk_error(torch.tensor(scores), torch.tensor(label), k) == 0  # the right side, which the package takes


def test_erratum_14_what_the_text_says_about_tables_1_3_and_4():
    times = {n: table.set_index("algorithm")["seconds"] for n, table in paper_table(4).groupby("n")}
    faster = {n: row["DC (AD)"] / row["DC (CB)"] for n, row in times.items()}
    assert {n: round(ratio, 1) for n, ratio in faster.items()} == {100: 13.3, 1000: 23.2, 10_000: 9.7, 100_000: 1.7}
    forward = paper_table(3).set_index(["algorithm", "n"])["seconds"]
    shares = {n: row["DC (CB)"] / forward["DC", n] for n, row in times.items()}
    assert min(shares.values()) > 0.3  # not negligible against the forward pass ...
    assert shares[100_000] > 1  # ... and longer with 100,000 classes

    accuracy = paper_table(1).set_index(["metric", "loss", "noise_level"])["mean"].sort_index()
    gains = {m: (accuracy[m, "L_{5,1}"] - accuracy[m, "CE"]).round(2) for m in ("top1", "top5")}
    assert gains["top1"].tolist() == [-7.35, 3.10, 8.84, 15.47, 20.32, 1.22]
    assert gains["top5"].tolist() == [-0.05, 2.70, 4.35, 4.27, 4.52, 5.23]
    assert not any(gain.is_monotonic_increasing for gain in gains.values())


@given(score_rows, st.data(), taus)
def test_erratum_15_tuples_multiply_both_sums_by_k_factorial(scores, data, tau):
    label, k = draw_label_and_k(data, scores[:5])
    n = len(scores[:5])
    tuples = list(permutations(range(n), k))
    assert len(tuples) == factorial(k) * comb(n, k)
    assert sum(label in members for members in tuples) == factorial(k) * comb(n - 1, k - 1)
    value = {members: sum(mpf(scores[j]) for j in members) / k for members in tuples}
    every = sum(exp((value[members] + (label not in members)) / tau) for members in tuples)
    with_label = sum(exp(value[members] / tau) for members in tuples if label in members)
    assert abs(tau * (log_of(every) - log_of(with_label)) - brute_force_loss(scores[:5], label, k, tau)) < EXACT * 1e6


def test_erratum_16_the_first_k_coefficients_do_not_determine_sigma_k():
    first, second = [Fraction(1), Fraction(4)], [Fraction(2), Fraction(3)]
    assert [sigma(first, j) for j in range(2)] == [sigma(second, j) for j in range(2)]
    assert (sigma(first, 2), sigma(second, 2)) == (4, 6)


def test_every_test_that_the_errata_name_exists():
    errata = Path(__file__).parents[2] / "book" / "errata.md"
    named = set(re.findall(r"`(test_\w+)`", errata.read_text(encoding="utf-8")))
    assert len(named) >= 22
    assert named <= set(globals())

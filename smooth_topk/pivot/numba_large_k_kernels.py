"""The loss for large k as machine code for a CPU: the formulas of torch_large_k.py, one row after the other.

A row takes k multiplications and additions per class forward (power sums), and k backward (Horner's rule), in blocks
that stay in the innermost cache. All arithmetic is in float64. A thread keeps a few rows of numbers, whatever n and k
are. The Python side is numba_large_k.py.

What underflows is negligible: it is below 1e-300, or dropped below 1e-30 (`next_powers`), next to polynomials whose
wanted coefficients are more than 1 / (6n) of their sum.
"""

import ctypes
import math

import numpy as np
from numba import carray, from_dtype, types
from numba.extending import overload

from .numba_kernels import address, exact, exp2_of_product, one_pass, taken, vectorised

BLOCK = 1024  # classes whose odds and powers stay in the innermost cache
GROUP = 8  # powers, or coefficients, in one pass over a block
NEGLIGIBLE = 1e-30
LARGEST_EXPONENT = 1000.0  # odds beyond 2^1000 are a certainty; times 2k they are still finite
NEWTON_STEPS = 8  # after which the search for the balance only halves its interval
STEPS = 64  # twice as many as halving needs for a million classes
RESCALED = 2.0**400  # a polynomial beyond it is divided by it, because only ratios of its coefficients count
JUST_ABOVE_ONE = 1.00001  # raised to the power k, still about one


class Task(ctypes.Structure):
    """Arguments of one pass: addresses of contiguous arrays, sizes and settings."""

    _fields_ = (
        ("next_row", ctypes.c_int64),  # the first row that no thread has taken; at offset zero
        ("wrong_row", ctypes.c_int64),  # a row whose label is not a class, or -1
        ("rows", ctypes.c_int64),
        ("classes", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("scores", ctypes.c_int64),  # (N, C)
        ("labels", ctypes.c_int64),  # (N,), int64
        ("losses", ctypes.c_int64),  # (N,)
        ("balance", ctypes.c_int64),  # (N, 4): s_[k], the factor of the odds, sigmoid(z)/k, and h
        ("tail", ctypes.c_int64),  # (N, k)
        ("head", ctypes.c_int64),  # (N, 2k - 1), or (N, C - 1)
        ("grad_loss", ctypes.c_int64),  # (N,), float64
        ("gradient", ctypes.c_int64),  # (N, C)
        ("scale", ctypes.c_double),  # log2(e) / (kτ)
        ("tau", ctypes.c_double),
        ("margin", ctypes.c_double),
    )


TASK_POINTER = types.CPointer(from_dtype(np.dtype(Task)))


def compiled(score_dtype: type, cache_name: str | None):
    """The two passes for scores of this dtype, as (forward, backward); this is where the time to compile goes."""

    @one_pass(TASK_POINTER, cache_name)
    def forward(pointer):
        task = carray(pointer, 1)[0]
        rows, classes, k = task.rows, task.classes, task.k
        widest = min(classes - 1, 2 * k - 1)
        scores = carray(address(task.scores), (rows, classes), score_dtype)
        labels = carray(address(task.labels), rows, np.int64)
        losses = carray(address(task.losses), rows, score_dtype)
        balance = carray(address(task.balance), (rows, 4), np.float64)
        tail = carray(address(task.tail), (rows, k), np.float64)
        head = carray(address(task.head), (rows, widest), np.float64)

        others = np.empty(classes, score_dtype)
        odds = np.empty(classes)
        inverse_odds = np.empty(widest)
        places = np.empty(widest, np.int64)
        power = np.empty(BLOCK)
        sums = np.empty(widest + GROUP)
        tail_sigmas = np.empty(k + 1)
        sigmas_of_head = np.empty(widest + 1)
        sigmas = np.empty(k + widest + 1)
        while True:
            row = taken(pointer, 0, 1)
            if row >= rows:
                return
            label = labels[row]
            if label < 0 or label >= classes:
                task.wrong_row = row
                continue
            kth_score = np.float64(kth_largest(scores[row], label, k, others))
            if not -np.inf < kth_score < np.inf:  # with fewer than k other classes, the label is in the top k
                losses[row] = 0.0 if kth_score == -np.inf else np.nan
                balance[row] = losses[row]
                continue

            weigh(others, kth_score, task.scale, odds)
            factor = balancing_factor(odds, k)
            count = split(odds, factor, 1.0, inverse_odds, places)
            power_sums(odds, k, power, sums)
            newton(sums, tail_sigmas)
            power_sums(inverse_odds[:count], count, power, sums)
            head_sigmas = sigmas_of_head[: count + 1]
            newton(sums, head_sigmas)
            multiply(tail_sigmas, head_sigmas, sigmas)

            hard_margin = task.margin + (kth_score - np.float64(scores[row, label])) / k
            loss, share = loss_and_share(hard_margin, sigmas[k], sigmas[k - 1], factor, task.tau)
            losses[row] = loss
            balance[row, 0] = kth_score
            balance[row, 1] = factor
            balance[row, 2] = share / k
            balance[row, 3] = count
            tail_coefficients(sigmas, tail[row])
            head_coefficients(sigmas, tail_sigmas, head_sigmas, head[row])

    @one_pass(TASK_POINTER, cache_name)
    def backward(pointer):
        task = carray(pointer, 1)[0]
        rows, classes, k = task.rows, task.classes, task.k
        widest = min(classes - 1, 2 * k - 1)
        scores = carray(address(task.scores), (rows, classes), score_dtype)
        labels = carray(address(task.labels), rows, np.int64)
        balance = carray(address(task.balance), (rows, 4), np.float64)
        tail = carray(address(task.tail), (rows, k), np.float64)
        head = carray(address(task.head), (rows, widest), np.float64)
        grad_loss = carray(address(task.grad_loss), rows, np.float64)
        gradient = carray(address(task.gradient), (rows, classes), score_dtype)

        odds = np.empty(classes)
        inverse_odds = np.empty(widest)
        places = np.empty(widest, np.int64)
        padded = np.empty(widest + GROUP)
        polynomial = np.empty(BLOCK)
        while True:
            row = taken(pointer, 0, 1)
            if row >= rows:
                return
            label, share, derivatives = labels[row], grad_loss[row] * balance[row, 2], gradient[row]
            if label < 0 or label >= classes:
                task.wrong_row = row
                continue
            if share == 0.0 or share != share:
                derivatives[:] = share
                continue
            weigh(scores[row], balance[row, 0], task.scale, odds)
            odds[label] = 0.0
            # Odds of one may round differently this time. The head's polynomial is right for classes of the head alone,
            # the tail's for all classes.
            count = split(odds, balance[row, 1], JUST_ABOVE_ONE, inverse_odds, places)
            evaluate(odds, tail[row], share, padded, polynomial)
            evaluate(inverse_odds[:count], head[row, : np.int64(balance[row, 3])], share, padded, polynomial)
            for i in range(len(derivatives)):
                derivatives[i] = odds[i]
            for place in range(count):
                derivatives[places[place]] = inverse_odds[place]
            derivatives[label] = -share

    return forward, backward


@vectorised
def kth_largest(scores, label, k, others):
    """s_[k], the k-th largest score beside the label's: -inf where there are fewer, NaN where a score is NaN or +inf.

    `others` gets the scores, with -inf for the label. The search halves the range of all floating-point numbers, which
    takes 32 or 64 steps whatever the scores are, and counts the scores above its middle.
    """
    one, zero = scores.dtype.type(1.0), scores.dtype.type(0.0)
    invalid = zero
    for i in range(len(scores)):
        others[i] = scores[i]
        invalid += zero if scores[i] < np.inf else one
    if invalid > zero:
        return scores.dtype.type(np.nan)
    others[label] = -np.inf
    low, high = scores.dtype.type(-np.inf), scores.dtype.type(np.inf)  # k scores reach low, fewer than k reach high
    while True:
        middle = halfway(low, high)
        if middle == low:
            return low
        above = 0
        for i in range(len(others)):
            above += 1 if others[i] >= middle else 0
        if above >= k:
            low = middle
        else:
            high = middle


def halfway(low, high):
    """The middle of all floating-point numbers from `low` to `high`; `low` where they are neighbours."""


@overload(halfway)
def _halfway(low, high):
    """Read as integers, positive numbers are in their order, and the magnitudes of negative numbers too."""
    floating, integer = (np.float32, np.int32) if low == types.float32 else (np.float64, np.int64)

    def middle(low, high):
        first, last = np.int64(floating(abs(low)).view(integer)), np.int64(floating(abs(high)).view(integer))
        first, last = -first if low < 0 else first, -last if high < 0 else last
        place = (first >> 1) + (last >> 1) + (first & last & 1)
        number = integer(abs(place)).view(floating)
        return -number if place < 0 else number

    return middle


@vectorised
def weigh(scores, kth_score, scale, odds):
    """exp((s - s_[k]) / (kτ)); the difference comes first, because s / (kτ) alone has lost its small digits."""
    largest = LARGEST_EXPONENT / scale
    for i in range(len(scores)):
        odds[i] = exp2_of_product(min(scores[i] - kth_score, largest), scale)


@exact
def balancing_factor(odds, k):
    """The factor that makes k - 1/2 classes expected, Σ v / (1 + v) of the odds v times the factor, within a quarter.

    The search starts at the pivot, where scores far apart are balanced. A step of Newton's method equates the log-odds
    of the means, which is exact for equal scores.
    """
    others, target = len(odds) - 1.0, k - 0.5
    low, high, factor = 0.5 / others, 2.0 * k, 1.0  # torch_large_k.balancing_shift tells why the answer lies between
    for step in range(STEPS):
        mean, variance = mean_and_variance(odds, factor)
        if abs(mean - target) <= 0.25:
            break
        if mean > target:
            high = factor
        else:
            low = factor
        log_odds = math.log(target / (others - target) * ((others - mean) / mean))
        guess = factor * math.exp(log_odds * mean * (1.0 - mean / others) / variance)
        factor = guess if step < NEWTON_STEPS and low < guess < high else math.sqrt(low * high)
    return factor


@vectorised
def mean_and_variance(odds, factor):
    """Σ p and Σ p (1 - p) for the odds p / (1 - p) times the factor."""
    mean = variance = 0.0
    for i in range(len(odds)):
        v = factor * odds[i]
        left_out = 1.0 / (1.0 + v)
        mean += v * left_out
        variance += v * left_out * left_out
    return mean, variance


@vectorised
def split(odds, factor, bound, inverse_odds, places):
    """Multiplies the odds by the factor; the head's become zero, and their inverses and places go to two lists.

    Returns the number of classes in the head. Each adds more than 1/2 to a sum of at most k - 1/4, so there are at most
    2k - 1 of them, and the lists are long enough.
    """
    above = 0.0
    for i in range(len(odds)):
        odds[i] *= factor
        above += 1.0 if odds[i] > bound else 0.0
    if above == 0.0:
        return 0
    count = 0
    for i in range(len(odds)):
        if odds[i] > bound and count < len(places):
            inverse_odds[count] = 1.0 / odds[i]
            places[count] = i
            count += 1
            odds[i] = 0.0
    return count


@exact
def power_sums(odds, degree, power, sums):
    """Sums of v, -v², v³, ... in reverse: sums[GROUP:] ends with the first of them, and holds `degree`."""
    for m in range(degree + GROUP):
        sums[m] = 0.0
    for start in range(0, len(odds), BLOCK):
        block = odds[start : start + BLOCK]
        for i in range(len(block)):
            power[i] = 1.0 if block[i] > NEGLIGIBLE else 0.0
        for m in range(degree, 0, -GROUP):
            next_powers(block, power, sums[m : m + GROUP])


@vectorised
def next_powers(odds, power, sums):
    """Adds the next eight power sums, the last first; `power` holds the power before them, and gets their last.

    Powers below 1e-30 are dropped before they reach the numbers that processors are slow with.
    """
    s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = 0.0
    for i in range(len(odds)):
        v = odds[i]
        p1 = power[i] * v
        p2 = p1 * v
        p3 = p2 * v
        p4 = p3 * v
        p5 = p4 * v
        p6 = p5 * v
        p7 = p6 * v
        p8 = p7 * v
        s1 += p1
        s2 += p2
        s3 += p3
        s4 += p4
        s5 += p5
        s6 += p6
        s7 += p7
        s8 += p8
        power[i] = p8 if p8 > NEGLIGIBLE else 0.0
    sums[7] += s1
    sums[6] -= s2
    sums[5] += s3
    sums[4] -= s4
    sums[3] += s5
    sums[2] -= s6
    sums[1] += s7
    sums[0] -= s8


@exact
def newton(sums, sigmas):
    """σ_0, σ_1, ... by m σ_m = Σ_r (-1)^(r-1) p_r σ_{m-r}, but for one factor: stable, see torch_large_k.newton."""
    end = len(sigmas) - 1 + GROUP
    sigmas[0] = 1.0
    for m in range(1, len(sigmas)):
        sigmas[m] = dot(sigmas[:m], sums[end - m : end]) / m
        if sigmas[m] > RESCALED:
            for j in range(m + 1):
                sigmas[j] /= RESCALED


@vectorised
def dot(a, b):
    """Σ a b."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@vectorised
def multiply(tail, head, sigmas):
    """Z = ε H: the product of the tail's polynomial with the head's in reverse."""
    count = len(head) - 1
    for j in range(len(tail) + count):
        sigmas[j] = 0.0
    for left_out in range(count + 1):
        part = sigmas[count - left_out : count - left_out + len(tail)]
        for j in range(len(part)):
            part[j] += head[left_out] * tail[j]


@exact
def loss_and_share(hard_margin, with_k, with_fewer, factor, tau):
    """τ softplus(z) and sigmoid(z); the hard margin divided by τ would lose what is left where its terms cancel."""
    smooth_margin = hard_margin + tau * math.log(with_k / with_fewer / factor)
    small = math.exp(-abs(smooth_margin) / tau)
    share = (1.0 if smooth_margin > 0.0 else small) / (1.0 + small)
    return max(smooth_margin, 0.0) + tau * math.log1p(small), share


@exact
def tail_coefficients(sigmas, coefficients):
    """(-1)^m (Z_{k-1-m} / Z_k - Z_{k-2-m} / Z_{k-1}) for m = 0..k-1."""
    k = len(coefficients)
    for m in range(k):
        with_k, with_fewer = sigmas[k - 1 - m], sigmas[k - 2 - m] if m < k - 1 else 0.0
        difference = with_k / sigmas[k] - with_fewer / sigmas[k - 1]
        coefficients[m] = -difference if m % 2 else difference


@exact
def head_coefficients(sigmas, tail_sigmas, head_sigmas, coefficients):
    """(-1)^m (Z_{k+m} / Z_k - (Z_{k-1+m} - ε_k H_{m-1}) / Z_{k-1}) for m = 1..h."""
    k, count = len(tail_sigmas) - 1, len(head_sigmas) - 1
    for m in range(1, count + 1):
        with_k, with_fewer = sigmas[k + m], sigmas[k - 1 + m] - tail_sigmas[k] * head_sigmas[count + 1 - m]
        difference = with_k / sigmas[k] - with_fewer / sigmas[k - 1]
        coefficients[m - 1] = -difference if m % 2 else difference


@exact
def evaluate(odds, coefficients, share, padded, polynomial):
    """Odds v become share (c_0 v + c_1 v² + ...), by Horner's rule, eight coefficients in one pass over a block."""
    degree = len(coefficients)
    for m in range(degree):
        padded[m] = share * coefficients[m]
    for m in range(degree, degree + GROUP):
        padded[m] = 0.0
    last = (degree - 1) // GROUP * GROUP
    for start in range(0, len(odds), BLOCK):
        block = odds[start : start + BLOCK]
        for i in range(len(block)):
            polynomial[i] = 0.0
        for m in range(last, -GROUP, -GROUP):
            next_horner(block, padded[m : m + GROUP], polynomial)
        for i in range(len(block)):
            block[i] = polynomial[i]


@vectorised
def next_horner(odds, c, polynomial):
    """c_0 v + ... + c_7 v^8 + v^8 times the polynomial so far."""
    c0, c1, c2, c3, c4, c5, c6, c7 = c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]
    for i in range(len(odds)):
        v = odds[i]
        upper = (((polynomial[i] + c7) * v + c6) * v + c5) * v + c4
        polynomial[i] = ((((upper * v + c3) * v + c2) * v + c1) * v + c0) * v

"""The pivot algorithm as machine code for a CPU: loss and gradient of a row while it is in cache.

All kernels are in this one file, because Numba recognises stale machine code by the file of the function it was asked
for. The functions take NumPy arrays, which carry shapes and dtypes. A loop over classes is written so that the compiler
makes vector instructions of it: no calls, no branches. What has k numbers per row is float64.

`pivot_rows` serves small k, with several rows side by side in the arithmetic on k numbers. `balanced_rows` serves any
k, one row after the other. Formulas are those of torch_backend.py and torch_large_k.py; the Python side is
numba_backend.py. Derived in notebooks/06_pivot.
"""

import math
from functools import partial

import numpy as np
from numba import njit, prange, types
from numba.extending import overload

BLOCK = 1024  # classes whose powers stay in the innermost cache
GROUP = 5  # powers, or coefficients, in one pass over a block: a usual k takes one pass
CACHED = 1 << 14  # scores worked on together, which stay in the second cache
LARGEST_BATCH = 128  # rows whose k numbers are worked on together
STATE = 1 << 12  # k (k + 1) numbers per row of a batch stay in cache
LANES = 3.0  # times √n: in so many lanes the search for the head is fastest
HALVINGS = 6  # of the range of the maxima; more would not pay
FIRST = np.uint64(0)
LARGEST_EXPONENT = 1000.0  # odds beyond 2^1000 are a certainty; times 2k they are still finite
NEWTON_STEPS = 8  # after which the search for the balance only halves its interval
STEPS = 64  # twice as many as halving needs for a million classes
RESCALED = 2.0**400  # a polynomial beyond it is divided by it, because only ratios of its coefficients count

SINGLE_ROUNDER = np.float32(1.5 * 2**23)  # adding it leaves an integer in the lowest bits
DOUBLE_ROUNDER = 1.5 * 2**52
# 2^r for |r| <= 1/2, coefficients of r^6..r^0 and r^11..r^0: smallest largest relative error, 2e-9 and 3e-18.
SINGLE_EXP2 = tuple(
    np.float32(c)
    for c in (
        0.0001534581216131163, 0.0013399931177239738, 0.0096184889563311816, 0.055503287771053248,
        0.24022646890645521, 0.69314720573719575, 1.0,
    )
)  # fmt: skip
DOUBLE_EXP2 = (
    4.4352827069572772e-10, 7.0741056135081428e-9, 1.0178198021671931e-7, 1.3215433089676399e-6,
    1.5252733489988526e-5, 0.00015403530462514432, 0.0013333558146789922, 0.0096181291075883352,
    0.055504108664819922, 0.24022650695910156, 0.69314718055994533, 1.0,
)  # fmt: skip

# A function that stays a function is compiled twice, alone and in its caller, and may round differently: inline them.
# Sums may be split over the lanes of a vector; nothing assumes that there are no infinities or NaNs.
inlined = {"error_model": "numpy", "nogil": True, "forceinline": True}
vectorised = njit(fastmath={"reassoc", "contract", "nsz"}, **inlined)
exact = njit(**inlined)


def entry(function=None, **options):
    """Compiles a function that Python calls; its machine code is kept where Numba finds a folder for it."""
    if function is None:
        return partial(entry, **options)
    options |= {"error_model": "numpy", "nogil": True}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # there is no such folder
        return njit(**options)(function)


@entry
def weigh_rows(labels, classes, weight, ignore_index, row_weights):
    """The weight of each row, zero for an ignored label; returns their sum and the first wrong row, or -1."""
    total, wrong = 0.0, -1
    for row in range(len(labels)):
        label = labels[row]
        row_weights[row] = 0.0
        if label == ignore_index:
            continue
        if label < 0 or label >= classes:
            return total, row
        row_weights[row] = weight[label] if len(weight) else 1.0
        total += row_weights[row]
    return total, wrong


@entry
def reduce_rows(losses, row_weights, divisor):
    """Σ w l / divisor, summed in the order of the rows, whatever threads computed them; `losses` become w l."""
    total = 0.0
    for row in range(len(losses)):
        losses[row] = losses[row] * row_weights[row] if row_weights[row] != 0.0 else 0.0
        total += losses[row]
    return total / divisor


@entry
def pivot_rows(scores, labels, row_weights, losses, gradient, working, k, tau, margin, scale, divisor, start, stop):
    """Losses of the rows from `start` to `stop`, and their gradients times weight / divisor where `gradient` has rows.

    Head: the k largest scores besides the label's, with w = exp((s_[k] - s) / (kτ)). Tail: all others, with
    u = exp((s - s_[k]) / (kτ)). Neither exceeds one. Powers of u are
    summed in the dtype of `working`, an empty array.
    """
    classes = scores.shape[1]
    batch = max(1, min(LARGEST_BATCH, CACHED // classes, STATE // (k * (k + 1)), stop - start))
    lanes = number_of_lanes(classes, k)
    largest = np.empty(k, scores.dtype)
    maxima = np.empty(classes, scores.dtype)
    hot = np.empty(classes + 1, np.int64)
    columns = np.empty(classes + 1, np.int64)
    scratch = np.empty(0 if len(gradient) else classes, scores.dtype)
    power = np.empty(BLOCK, working.dtype)
    coefficients = np.zeros(k + GROUP, working.dtype)
    index = np.empty((batch, k + 1), np.int64)
    kth_score = np.empty(batch)
    shares = np.empty(batch)
    sums = np.zeros((k + GROUP, batch))
    w = np.empty((k, batch))
    tail = np.empty((k + 1, batch))
    prefixes = np.empty((k + 1, k + 1, batch))
    sigmas = np.empty((k + 1, batch))
    adjoint = np.empty((k + 2, batch))
    head = np.empty((k, batch))
    by_tail = np.empty((k, batch))
    for first in range(start, stop, batch):
        count = min(batch, stop - first)
        for r in range(count):
            row = first + r
            label = labels[row] if row_weights[row] != 0.0 else 0
            kth_score[r] = select(scores[row], label, lanes, largest, index[r], maxima, hot, columns)
            for i in range(k):
                step = kth_score[r] - np.float64(largest[i])
                w[i, r] = 0.0 if kth_score[r] == -np.inf else step
            u = gradient[row] if len(gradient) else scratch
            weigh(scores[row], kth_score[r], scale, u)
            for place in range(k + 1):
                u[index[r, place]] = 0.0
            power_sums(u, k, power, sums[:, r])
        exponentials(w, scale, count)
        newton_columns(sums, tail, count)
        merge_columns(w, tail, prefixes, sigmas, count)
        for r in range(count):
            row = first + r
            true_score = np.float64(scores[row, index[r, k]])
            kth = np.inf if sigmas[k, r] != sigmas[k, r] else kth_score[r]
            losses[row], shares[r] = loss_and_share(
                margin, kth, true_score, math.log(sigmas[k, r] / sigmas[k - 1, r]), k, tau
            )
            shares[r] *= row_weights[row] / divisor / k
        if len(gradient) == 0:
            continue
        head_derivatives(w, tail, prefixes, sigmas, shares, adjoint, head, count)
        tail_coefficients(sigmas, shares, by_tail, count)
        for r in range(count):
            row = first + r
            if row_weights[row] == 0.0:  # whatever the row holds: zero times NaN would be NaN
                gradient[row, :] = 0.0
                continue
            for m in range(k):
                coefficients[m] = by_tail[m, r]
            horner(gradient[row], coefficients, k, power)
            for place in range(k):
                gradient[row, index[r, place]] = head[place, r]
            gradient[row, index[r, k]] = -shares[r]


@entry(parallel=True)
def pivot_rows_in_parallel(
    scores, labels, row_weights, losses, gradient, working, k, tau, margin, scale, divisor, threads
):
    """`pivot_rows` on several threads, each with as many rows."""
    count = len(scores)
    for part in prange(threads):
        start, stop = part * count // threads, (part + 1) * count // threads
        pivot_rows(scores, labels, row_weights, losses, gradient, working, k, tau, margin, scale, divisor, start, stop)


@exact
def number_of_lanes(classes, k):
    """In how many lanes the head is searched: a power of two, where there are as many classes, fills whole vectors."""
    return min(classes, 1 << math.ceil(math.log2(max(4 * (k + 1), LANES * math.sqrt(classes)))))


@exact
def select(scores, label, lanes, largest, index, maxima, hot, columns):
    """The k largest scores besides the label's, descending, and their classes with the label last; returns s_[k].

    Where a class is missing, its score is -inf and its place is the label's. Returns NaN where a score is +inf; a NaN
    is left to the sums over the tail.

    A branch on every score that enters the head would be mispredicted k log(n/k) times per row. Instead, the largest of
    every `lanes`-th score give a bound that a few more than k scores reach. Only lanes that reach it are searched, and
    what is found there is sorted.
    """
    k = len(largest)
    for place in range(k):
        largest[place] = -np.inf
        index[place] = label
    index[k] = label
    lane_maxima(scores, lanes, maxima)
    bound = lower_bound(maxima[:lanes], k + 1)
    for place in range(gather(scores, lanes, maxima, bound, hot, columns)):
        column = columns[place]
        score = largest.dtype.type(-np.inf) if column == label else scores[column]
        for slot in range(k):  # in every slot the larger one stays; without branches
            other, other_column = largest[slot], index[slot]
            larger = score > other
            largest[slot] = score if larger else other
            index[slot] = column if larger else other_column
            score = other if larger else score
            column = other_column if larger else column
    return np.nan if largest[0] == np.inf else np.float64(largest[k - 1])


@vectorised
def lane_maxima(scores, lanes, maxima):
    """maxima[i] becomes the largest of scores[i], scores[i + lanes], ..., but for NaNs."""
    first = scores[:lanes]
    for lane in range(len(first)):
        maxima[lane] = first[lane] if first[lane] > -np.inf else -np.inf
    for start in range(lanes, len(scores), lanes):
        block = scores[start : start + lanes]
        for lane in range(len(block)):  # not range(lanes): the compiler vectorises what is as long as its array
            maxima[lane] = block[lane] if block[lane] > maxima[lane] else maxima[lane]


@exact
def lower_bound(maxima, wanted):
    """A number that at least `wanted` of the maxima reach, and hopefully few more, by halving their range."""
    low, high = extremes(maxima)
    if len(maxima) < wanted or not (low > -np.inf and high < np.inf):
        return maxima.dtype.type(-np.inf)
    for _ in range(HALVINGS):
        middle = low / 2 + high / 2
        count = number_reaching(maxima, middle)
        if count < wanted:
            high = middle
            continue
        low = middle
        if 2 * count <= 3 * wanted:
            break
    return low


@exact
def extremes(values):
    """The smallest and the largest of the values, none of which is NaN."""
    low = high = in_order(values[0])
    for i in range(len(values)):
        key = in_order(values[i])
        low, high = min(low, key), max(high, key)
    return from_order(low), from_order(high)


@vectorised
def number_reaching(values, bound):
    """How many of the values are at least the bound."""
    one, zero = values.dtype.type(1.0), values.dtype.type(0.0)
    count = zero  # in the scores' own dtype, as wide as what is compared
    for i in range(len(values)):
        count += one if values[i] >= bound else zero
    return count


@exact
def gather(scores, lanes, maxima, bound, hot, columns):
    """Columns of the scores that reach the bound; returns how many. `hot` gets the lanes that have one.

    Without branches: what does not count is overwritten by the next. The counters have no sign, because a place that
    might be negative would be checked first.
    """
    count = lanes_found = FIRST
    for lane in range(lanes):
        hot[lanes_found] = lane
        lanes_found += np.uint64(maxima[lane] >= bound)
    for place in range(np.int64(lanes_found)):
        column = hot[place]
        while column < len(scores):
            columns[count] = column
            count += np.uint64(scores[column] >= bound)
            column += lanes
    return np.int64(count)


@vectorised
def weigh(scores, kth_score, scale, u):
    """u = exp((s - s_[k]) / (kτ)); the difference comes first, because s / (kτ) alone has lost its small digits.

    In the scores' dtype also where powers of u are in float64: an error of u alone is one of the scores, and no power
    of it enlarges that.
    """
    pivot, scale = scores.dtype.type(0.0 if kth_score == -np.inf else kth_score), scores.dtype.type(scale)
    for i in range(len(scores)):
        u[i] = exp2_of_product(scores[i] - pivot, scale)


@exact
def power_sums(u, degree, power, sums):
    """Σ u, Σ u², ... up to the degree, and what is left of the last group of powers."""
    for m in range(degree):
        sums[m] = 0.0
    for start in range(0, len(u), BLOCK):
        block = u[start : start + BLOCK]
        if degree <= GROUP:
            first_powers(block, power, sums, degree)
            continue
        for i in range(len(block)):
            power[i] = 1.0
        for m in range(0, degree, GROUP):
            next_powers(block, power, sums[m : m + GROUP])


@vectorised
def first_powers(u, power, sums, degree):
    """Adds Σ u, ..., Σ u^5."""
    s1 = s2 = s3 = s4 = s5 = power.dtype.type(0.0)
    for i in range(len(u)):
        v = power.dtype.type(u[i])
        square = v * v
        s1 += v
        s2 += square
        s3 += square * v
        s4 += square * square
        s5 += square * square * v
    sums[0] += s1
    sums[1] += s2
    sums[2] += s3
    sums[3] += s4
    sums[4] += s5


@vectorised
def next_powers(u, power, sums):
    """Adds the next five power sums; `power` holds the power before them, and gets their last."""
    s1 = s2 = s3 = s4 = s5 = power.dtype.type(0.0)
    for i in range(len(u)):
        v = power.dtype.type(u[i])
        p = power[i]
        square = v * v
        p1 = p * v
        p2 = p * square
        s1 += p1
        s2 += p2
        s3 += p1 * square
        s4 += p2 * square
        power[i] = p1 * square * square
        s5 += power[i]
    sums[0] += s1
    sums[1] += s2
    sums[2] += s3
    sums[3] += s4
    sums[4] += s5


@vectorised
def exponentials(w, scale, count):
    """Differences of scores, at most zero, become their exponentials."""
    for i in range(len(w)):
        for r in range(count):
            w[i, r] = exp2_of_product(w[i, r], scale)


@vectorised
def newton_columns(sums, tail, count):
    """σ_0..σ_k of the tail, ε, from its power sums: m ε_m = Σ_q (-1)^(q-1) ε_{m-q} p_q."""
    for r in range(count):
        tail[0, r] = 1.0
    for m in range(1, len(tail)):
        for r in range(count):
            tail[m, r] = 0.0
        for q in range(1, m + 1):
            sign = 1.0 / m if q % 2 else -1.0 / m
            for r in range(count):
                tail[m, r] += sign * tail[m - q, r] * sums[q - 1, r]
        for r in range(count):
            tail[m, r] = 0.0 if tail[m, r] < 0.0 else tail[m, r]


@vectorised
def merge_columns(w, tail, prefixes, sigmas, count):
    """S_j = Σ_i η_{k-j+i} ε_i, where η are the polynomials of w: η_c leaves c classes of the head out.

    Row i of `prefixes` has the polynomial of the first i classes of the head.
    """
    k = len(w)
    for r in range(count):
        prefixes[0, 0, r] = 1.0
    for i in range(k):
        for r in range(count):
            prefixes[i + 1, 0, r] = 1.0
            prefixes[i + 1, i + 1, r] = w[i, r] * prefixes[i, i, r]
        for c in range(1, i + 1):
            for r in range(count):
                prefixes[i + 1, c, r] = prefixes[i, c, r] + w[i, r] * prefixes[i, c - 1, r]
    for j in range(k + 1):
        for r in range(count):
            sigmas[j, r] = 0.0
        for i in range(j + 1):
            for r in range(count):
                sigmas[j, r] += prefixes[k, k - j + i, r] * tail[i, r]


@exact
def loss_and_share(margin, reference, true_score, log_ratio, k, tau):
    """τ softplus(z) and sigmoid(z) for z = (margin + (b - s_y)/k)/τ + log ratio, measured from the reference b.

    A reference of -inf means that fewer than k other classes exist: the label is always in the top k.
    """
    if not (true_score < np.inf and reference < np.inf):  # +inf or NaN, of the label or of another class
        return np.nan, np.nan
    if reference == -np.inf:
        return 0.0, 0.0
    smooth_margin = margin + (reference - true_score) / k + tau * log_ratio  # divided by tau, terms would not cancel
    small = math.exp(-abs(smooth_margin) / tau)
    positive = smooth_margin > 0.0
    loss = (smooth_margin if positive else 0.0) + tau * math.log1p(small)
    return loss, (1.0 if positive else small) / (1.0 + small)


@vectorised
def head_derivatives(w, tail, prefixes, sigmas, shares, adjoint, head, count):
    """w_i ∂(log S_{k-1} - log S_k)/∂w_i times the share: the products of `merge_columns` run backwards."""
    k = len(w)
    for r in range(count):
        adjoint[0, r] = -shares[r] / sigmas[k, r]
    for c in range(1, k + 1):
        for r in range(count):
            adjoint[c, r] = shares[r] * (tail[c - 1, r] / sigmas[k - 1, r] - tail[c, r] / sigmas[k, r])
    for i in range(k - 1, -1, -1):
        for r in range(count):
            head[i, r] = 0.0
        for c in range(i + 1):
            for r in range(count):
                head[i, r] += prefixes[i, c, r] * adjoint[c + 1, r]
                adjoint[c, r] += w[i, r] * adjoint[c + 1, r]
        for r in range(count):
            head[i, r] *= w[i, r]


@vectorised
def tail_coefficients(sigmas, shares, by_tail, count):
    """The derivative of a tail class is Σ_m c_m u^(m+1), c_m = (-1)^m (S_{k-1-m}/S_k - S_{k-2-m}/S_{k-1}) share."""
    k = len(by_tail)
    for m in range(k):
        sign = -1.0 if m % 2 else 1.0
        for r in range(count):
            by_tail[m, r] = sign * shares[r] * sigmas[k - 1 - m, r] / sigmas[k, r]
        if m < k - 1:
            for r in range(count):
                by_tail[m, r] -= sign * shares[r] * sigmas[k - 2 - m, r] / sigmas[k - 1, r]


@exact
def horner(u, c, degree, polynomial):
    """u becomes c_0 u + ... + c_{k-1} u^k, five coefficients in one pass over a block."""
    last = (degree - 1) // GROUP * GROUP
    for start in range(0, len(u), BLOCK):
        block = u[start : start + BLOCK]
        if degree <= GROUP:
            only_horner(block, c)
            continue
        for i in range(len(block)):
            polynomial[i] = 0.0
        for m in range(last, 0, -GROUP):
            next_horner(block, c[m : m + GROUP], polynomial)
        last_horner(block, c, polynomial)


@vectorised
def only_horner(u, c):
    """u becomes c_0 u + ... + c_4 u^5."""
    c0, c1, c2, c3, c4 = c[0], c[1], c[2], c[3], c[4]
    for i in range(len(u)):
        v = c.dtype.type(u[i])
        u[i] = ((((c4 * v + c3) * v + c2) * v + c1) * v + c0) * v


@vectorised
def next_horner(u, c, polynomial):
    """c_0 + ... + c_4 u^4 + u^5 times the polynomial so far."""
    c0, c1, c2, c3, c4 = c[0], c[1], c[2], c[3], c[4]
    for i in range(len(u)):
        v = c.dtype.type(u[i])
        polynomial[i] = ((((polynomial[i] * v + c4) * v + c3) * v + c2) * v + c1) * v + c0


@vectorised
def last_horner(u, c, polynomial):
    """u becomes the polynomial so far, and the last five coefficients, times u."""
    c0, c1, c2, c3, c4 = c[0], c[1], c[2], c[3], c[4]
    for i in range(len(u)):
        v = c.dtype.type(u[i])
        u[i] = (((((polynomial[i] * v + c4) * v + c3) * v + c2) * v + c1) * v + c0) * v


@entry
def balanced_rows(scores, labels, row_weights, losses, gradient, working, k, tau, margin, scale, divisor, start, stop):
    """What `pivot_rows` does, for any k: odds are measured from the balance, see torch_large_k.py; all in float64."""
    classes = scores.shape[1]
    widest = min(classes - 1, 2 * k - 1)
    keys = np.empty(classes, np.int64)
    odds = np.empty(classes)
    inverse_odds = np.empty(widest)
    places = np.empty(widest, np.int64)
    power = np.empty(BLOCK)
    sums = np.empty(widest + GROUP)
    tail = np.empty(k + 1)
    sigmas_of_head = np.empty(widest + 1)
    sigmas = np.empty(k + widest + 1)
    coefficients = np.zeros(widest + k + GROUP)
    for row in range(start, stop):
        label = labels[row] if row_weights[row] != 0.0 else 0
        kth_score = kth_largest(scores[row], label, k, keys)
        if not -np.inf < kth_score < np.inf:  # with fewer than k other classes, the label is in the top k
            losses[row] = 0.0 if kth_score == -np.inf else np.nan
            if len(gradient):
                gradient[row, :] = losses[row] if row_weights[row] != 0.0 else 0.0
            continue
        weigh_all(scores[row], kth_score, scale, odds)
        odds[label] = 0.0
        balance = balancing_factor(odds, k)
        count = split(odds, balance, inverse_odds, places)
        power_sums(odds, k, power, sums)
        newton(sums, tail)
        power_sums(inverse_odds[:count], count, power, sums)
        head = sigmas_of_head[: count + 1]
        newton(sums, head)
        multiply(tail, head, sigmas)
        log_ratio = math.log(sigmas[k] / sigmas[k - 1] / balance)
        true_score = np.float64(scores[row, label])
        losses[row], share = loss_and_share(margin, kth_score, true_score, log_ratio, k, tau)
        share *= row_weights[row] / divisor / k
        if len(gradient) == 0:
            continue
        if share == 0.0:
            gradient[row, :] = 0.0
            continue
        tail_polynomial(sigmas, share, coefficients[:k])
        coefficients[k : k + GROUP] = 0.0
        horner(odds, coefficients, k, power)
        head_polynomial(sigmas, tail, head, share, coefficients[:count])
        coefficients[count : count + GROUP] = 0.0
        horner(inverse_odds[:count], coefficients, count, power)
        for i in range(classes):
            gradient[row, i] = odds[i]
        for place in range(count):
            gradient[row, places[place]] = inverse_odds[place]
        gradient[row, label] = -share


@entry(parallel=True)
def balanced_rows_in_parallel(
    scores, labels, row_weights, losses, gradient, working, k, tau, margin, scale, divisor, threads
):
    """`balanced_rows` on several threads, each with as many rows."""
    count = len(scores)
    for part in prange(threads):
        start, stop = part * count // threads, (part + 1) * count // threads
        balanced_rows(
            scores, labels, row_weights, losses, gradient, working, k, tau, margin, scale, divisor, start, stop
        )


@vectorised
def kth_largest(scores, label, k, keys):
    """s_[k], the k-th largest score besides the label's: -inf where there are fewer, NaN where a score is NaN or +inf.

    The search halves the range of all keys, which takes 32 or 64 steps whatever the scores are, and counts the keys
    above its middle.
    """
    one, zero = scores.dtype.type(1.0), scores.dtype.type(0.0)
    invalid = zero
    for i in range(len(scores)):
        keys[i] = in_order(scores[i])
        invalid += zero if scores[i] < np.inf else one
    if invalid > zero:
        return np.nan
    lowest = np.int64(in_order(scores.dtype.type(-np.inf)))
    keys[label] = lowest
    low, high = lowest, np.int64(in_order(scores.dtype.type(np.inf)))  # k keys reach low, fewer than k reach high
    while True:
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        if middle == low:
            break
        above = 0
        for i in range(len(keys)):
            above += 1 if keys[i] >= middle else 0
        if above >= k:
            low = middle
        else:
            high = middle
    for i in range(len(keys)):
        if keys[i] == low and low > lowest:
            return np.float64(scores[i])
    return -np.inf


@vectorised
def weigh_all(scores, kth_score, scale, odds):
    """exp((s - s_[k]) / (kτ)) in float64, not infinite for the head."""
    largest = LARGEST_EXPONENT / scale
    for i in range(len(scores)):
        odds[i] = exp2_of_product(min(np.float64(scores[i]) - kth_score, largest), scale)


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
def split(odds, factor, inverse_odds, places):
    """Multiplies the odds by the factor; the head's become zero, and their inverses and places go to two lists.

    Returns the number of classes in the head. Each adds more than 1/2 to a sum of at most k - 1/4, so there are at most
    2k - 1 of them, and the lists are long enough.
    """
    count = 0
    for i in range(len(odds)):
        odds[i] *= factor
    for i in range(len(odds)):
        if odds[i] > 1.0 and count < len(places):
            inverse_odds[count] = 1.0 / odds[i]
            places[count] = i
            count += 1
            odds[i] = 0.0
    return count


@exact
def newton(sums, sigmas):
    """σ_0, σ_1, ... by m σ_m = Σ_r (-1)^(r-1) p_r σ_{m-r}, but for one factor: stable, see torch_large_k.newton."""
    for r in range(1, len(sigmas) - 1, 2):
        sums[r] = -sums[r]
    sigmas[0] = 1.0
    for m in range(1, len(sigmas)):
        sigmas[m] = folded(sigmas[:m], sums[:m]) / m
        if sigmas[m] > RESCALED:
            for j in range(m + 1):
                sigmas[j] /= RESCALED


@vectorised
def folded(a, b):
    """Σ_i a_i b_{m-1-i}."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[len(a) - 1 - i]
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
def tail_polynomial(sigmas, share, coefficients):
    """(-1)^m (Z_{k-1-m} / Z_k - Z_{k-2-m} / Z_{k-1}) times the share, for m = 0..k-1."""
    k = len(coefficients)
    for m in range(k):
        with_k, with_fewer = sigmas[k - 1 - m], sigmas[k - 2 - m] if m < k - 1 else 0.0
        difference = with_k / sigmas[k] - with_fewer / sigmas[k - 1]
        coefficients[m] = share * (-difference if m % 2 else difference)


@exact
def head_polynomial(sigmas, tail, head, share, coefficients):
    """(-1)^m (Z_{k+m} / Z_k - (Z_{k-1+m} - ε_k H_{m-1}) / Z_{k-1}) times the share, for m = 1..h."""
    k, count = len(tail) - 1, len(head) - 1
    for m in range(1, count + 1):
        with_k, with_fewer = sigmas[k + m], sigmas[k - 1 + m] - tail[k] * head[count + 1 - m]
        difference = with_k / sigmas[k] - with_fewer / sigmas[k - 1]
        coefficients[m - 1] = share * (-difference if m % 2 else difference)


def in_order(score):
    """An integer of the score's size that grows with the score; what is not NaN stays above the smallest integer."""


@overload(in_order, jit_options={"error_model": "numpy"})
def _in_order(score):
    """Positive numbers, read as integers, are in order; of negative ones all bits but the sign must turn."""
    if score == types.float32:
        return lambda score: flipped(np.float32(score).view(np.int32))
    return lambda score: flipped(np.float64(score).view(np.int64))


def from_order(key):
    """The score whose `in_order` is the key."""


@overload(from_order, jit_options={"error_model": "numpy"})
def _from_order(key):
    if key == types.int32:
        return lambda key: np.int32(flipped(key)).view(np.float32)
    return lambda key: np.int64(flipped(key)).view(np.float64)


def flipped(bits):
    """The integer with all bits but the sign turned, if it is negative."""


@overload(flipped, jit_options={"error_model": "numpy"})
def _flipped(bits):
    if bits == types.int32:
        return lambda bits: np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))
    return lambda bits: bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)


def exp2_of_product(x, scale):
    """2^(x scale) for x <= 0, and zero below 2^-125 (2^-1021 in float64); a NaN stays a NaN."""


@overload(exp2_of_product, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
def _exp2_of_product(x, scale):
    """Without the freedom to reorder: `x + rounder - rounder` is not `x`."""

    def single(x, scale):
        shifted = x * scale + SINGLE_ROUNDER
        whole = shifted - SINGLE_ROUNDER
        r = x * scale - whole
        a, b, c, d, e, f, g = SINGLE_EXP2
        power = np.int32((np.float32(shifted).view(np.int32) << 23) + (127 << 23)).view(np.float32)
        value = ((((((a * r + b) * r + c) * r + d) * r + e) * r + f) * r + g) * power
        return np.float32(0.0) if whole < np.float32(-125.0) else value

    def double(x, scale):
        shifted = x * scale + DOUBLE_ROUNDER
        whole = shifted - DOUBLE_ROUNDER
        r = x * scale - whole
        value = 0.0
        for coefficient in DOUBLE_EXP2:
            value = value * r + coefficient
        power = np.int64((np.float64(shifted).view(np.int64) << 52) + (1023 << 52)).view(np.float64)
        return 0.0 if whole < -1021.0 else value * power

    return single if x == types.float32 else double

"""The pivot algorithm as machine code for a CPU: a row is read twice forward, and read once and written once backward.

A row is worked on in blocks that stay in the innermost cache. Loops over classes are written so that the compiler
makes vector instructions of them: no calls, no branches. What has k numbers per row is plain float64 arithmetic, with
the merge of triton_kernels.py. Formulas are those of torch_backend.py; the Python side is numba_backend.py.

Numba compiles one function per pass and pair of dtypes (`compiled`), and keeps the machine code in its cache. Each
takes the address of a `Task`, so that any number of threads can work on one: a thread takes rows until none are left.
"""

import ctypes
import math

import numpy as np
from numba import carray, cfunc, from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

BLOCK = 1024  # classes whose weights and powers stay in the innermost cache
LANES = 3.0  # times √n: in so many lanes the search for the head is fastest
HALVINGS = 6  # of the range of the maxima; more would not pay
FIRST = np.uint64(0)
GROUP = 5  # powers computed in one pass over a block: a usual k takes one pass

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


class Task(ctypes.Structure):
    """Arguments of one pass: addresses of contiguous arrays, sizes and settings."""

    _fields_ = (
        ("next_row", ctypes.c_int64),  # the first row that no thread has taken; at offset zero
        ("done_rows", ctypes.c_int64),  # rows that are finished; right behind
        ("wrong_row", ctypes.c_int64),  # a row whose label is neither a class nor ignored, or -1
        ("batch", ctypes.c_int64),  # rows taken at a time
        ("rows", ctypes.c_int64),
        ("classes", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("ignore_index", ctypes.c_int64),
        ("reduction", ctypes.c_int64),  # NONE, MEAN or SUM
        ("scores", ctypes.c_int64),  # (N, C)
        ("labels", ctypes.c_int64),  # (N,), int64
        ("weight", ctypes.c_int64),  # (C,), or zero where all classes weigh one
        ("loss", ctypes.c_int64),  # (N,), or one number
        ("state", ctypes.c_int64),  # N (3k + 5) + 1 numbers in float64, see `views`: what the backward pass needs
        ("grad", ctypes.c_int64),  # (N,), or one number
        ("grad_stride", ctypes.c_int64),  # zero for one number
        ("gradient", ctypes.c_int64),  # (N, C)
        ("scale", ctypes.c_double),  # log2(e) / (kτ)
        ("tau", ctypes.c_double),
        ("margin", ctypes.c_double),
    )


NONE, MEAN, SUM = range(3)
TASK_POINTER = types.CPointer(from_dtype(np.dtype(Task)))
# A function that stays a function is compiled twice, alone and as part of its pass, and the two may round differently:
# the process that compiles calls the first, those that load from the cache the second. Inlined, there is one.
options = {"error_model": "numpy", "nogil": True, "forceinline": True}
# Sums may be split over the lanes of a vector. Nothing assumes that there are no infinities or NaNs.
vectorised = njit(fastmath={"reassoc", "contract", "nsz"}, **options)
exact = njit(**options)


@exact
def views(state, rows, k):
    """The parts of a state: s_[k] (N,), coefficients of the tail (k, N), derivatives of head and label (k + 1, N),
    weights of the rows (N,), losses (N,), classes of the head and the label (N, k + 1), and what the derivative by the
    reduced loss is multiplied by (1,)."""
    numbers = carray(address(state), (2 * k + 4, rows), np.float64)
    index = carray(address(state + 8 * (2 * k + 4) * rows), (rows, k + 1), np.int64)
    factor = carray(address(state + 8 * (3 * k + 5) * rows), 1, np.float64)
    head = numbers[k + 1 : 2 * k + 2]
    return numbers[0], numbers[1 : k + 1], head, numbers[2 * k + 2], numbers[2 * k + 3], index, factor


def one_pass(task_pointer, cache_name: str | None):
    """Compiles a function of a task; its machine code is cached under the name, or not at all."""

    def compile_function(function):
        function.__qualname__ = f"{function.__name__}-{cache_name}"
        return cfunc(types.void(task_pointer), nopython=True, cache=cache_name is not None)(function)

    return compile_function


def compiled(score_dtype: type, working_dtype: type, cache_name: str | None):
    """The two passes for these dtypes, as (forward, backward); this is where the time to compile goes."""

    @one_pass(TASK_POINTER, cache_name)
    def forward(pointer):
        task = carray(pointer, 1)[0]
        rows, classes, k, batch = task.rows, task.classes, task.k, task.batch
        scores = carray(address(task.scores), (rows, classes), score_dtype)
        labels = carray(address(task.labels), rows, np.int64)
        weight = carray(address(task.weight), classes, score_dtype)
        loss = carray(address(task.loss), rows if task.reduction == NONE else 1, score_dtype)
        kth_score, tail, head, row_weights, losses, index, factor = views(task.state, rows, k)

        lanes = number_of_lanes(classes, k)
        largest = np.empty(k, score_dtype)
        maxima = np.empty(classes, score_dtype)
        hot = np.empty(classes + 1, np.int64)
        columns = np.empty(classes + 1, np.int64)
        u = np.empty(BLOCK, working_dtype)
        power = np.empty(BLOCK, working_dtype)
        sums = np.empty((k + GROUP, batch))
        sigmas = np.empty((k + 1, batch))
        factors = np.empty((k, batch))
        joined = np.empty((k, k + 1, batch))
        shares = np.empty(batch)
        without = np.empty(batch)
        while True:
            start = taken(pointer, 0, batch)
            if start >= rows:
                return
            count = min(batch, rows - start)
            for r in range(count):
                row = start + r
                label = labels[row]
                ignored = label == task.ignore_index
                if ignored or label < 0 or label >= classes:  # no such label is ever an address
                    if not ignored:
                        task.wrong_row = row
                    row_weights[row] = 0.0
                    label = 0
                else:
                    row_weights[row] = weight[label] if task.weight != 0 else 1.0
                kth_score[row] = select(scores[row], label, lanes, largest, index[row], maxima, hot, columns)
                for i in range(k - 1):  # t_{i+1} - t_i before it is scaled; where a class is missing, anything finite
                    step = np.float64(largest[i + 1]) - np.float64(largest[i])
                    factors[i, r] = 0.0 if kth_score[row] == -np.inf else step
                power_sums(scores[row], kth_score[row], task.scale, index[row], u, power, sums, r)
            merge(sums, sigmas, factors, joined, without, task.scale, count)
            losses_and_shares(scores, kth_score, index, sigmas, losses, shares, task.tau, task.margin, start, count)
            head_derivatives(sigmas, factors, joined, shares, without, sums, head, start, count)
            tail_coefficients(sigmas, factors, shares, tail, start, count)
            if taken(pointer, 1, count) + count == rows:  # the thread that finishes last
                reduce(losses, row_weights, task.reduction, loss, factor)

    @one_pass(TASK_POINTER, cache_name)
    def backward(pointer):
        task = carray(pointer, 1)[0]
        rows, classes, k, batch = task.rows, task.classes, task.k, task.batch
        scores = carray(address(task.scores), (rows, classes), score_dtype)
        grad = carray(address(task.grad), rows if task.grad_stride else 1, score_dtype)
        gradient = carray(address(task.gradient), (rows, classes), score_dtype)
        kth_score, tail, head, row_weights, _, index, factor = views(task.state, rows, k)

        u = np.empty(BLOCK, working_dtype)
        polynomial = np.empty(BLOCK, working_dtype)
        coefficients = np.empty(k + GROUP, working_dtype)
        for m in range(k, k + GROUP):
            coefficients[m] = 0.0
        while True:
            start = taken(pointer, 0, batch)
            if start >= rows:
                return
            for row in range(start, min(start + batch, rows)):
                if row_weights[row] == 0.0:  # whatever the row holds: zero times NaN would be NaN
                    gradient[row, :] = 0.0
                    continue
                by_loss = grad[row * task.grad_stride] * row_weights[row] * factor[0]
                for m in range(k):
                    coefficients[m] = tail[m, row] * by_loss
                tail_derivatives(scores[row], kth_score[row], task.scale, coefficients, k, u, polynomial, gradient[row])
                for place in range(k + 1):
                    gradient[row, index[row, place]] = head[place, row] * by_loss

    return forward, backward


@exact
def number_of_lanes(classes, k):
    """In how many lanes the head is searched: a power of two, where there are as many classes, fills whole vectors."""
    return min(classes, 1 << math.ceil(math.log2(max(4 * (k + 1), LANES * math.sqrt(classes)))))


@exact
def select(scores, label, lanes, largest, index, maxima, hot, columns):
    """The k largest scores beside the label's, descending, and their classes with the label last; returns s_[k].

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


@exact
def power_sums(scores, kth_score, scale, index, u, power, sums, r):
    """Column r of `sums` gets Σ u^m over the tail for m = 1..k."""
    classes, k = len(scores), len(index) - 1
    for m in range(len(sums)):
        sums[m, r] = 0.0
    for start in range(0, classes, BLOCK):
        stop = min(start + BLOCK, classes)
        weigh(scores[start:stop], kth_score, scale, u)
        for place in range(k + 1):
            if start <= index[place] < stop:
                u[index[place] - start] = 0.0
        first_powers(u, power, sums, r, stop - start)
        for m in range(GROUP, k, GROUP):
            next_powers(u, power, sums, m, r, stop - start)


@vectorised
def weigh(scores, kth_score, scale, u):
    """u = exp((s - s_[k]) / (kτ)); the difference comes first, because s / (kτ) alone has lost its small digits.

    In the scores' dtype also where powers of u are in float64: an error of u alone is one of the scores, and no power
    of it enlarges that.
    """
    pivot, scale = scores.dtype.type(0.0 if kth_score == -np.inf else kth_score), scores.dtype.type(scale)
    for i in range(len(scores)):
        u[i] = exp2_of_product(scores[i] - pivot, scale)


@vectorised
def first_powers(u, power, sums, r, count):
    """Adds Σ u, ..., Σ u^5 to a column of sums, and leaves u^5."""
    s1 = s2 = s3 = s4 = s5 = u.dtype.type(0.0)
    for i in range(count):
        v = u[i]
        square = v * v
        s1 += v
        s2 += square
        s3 += square * v
        s4 += square * square
        power[i] = square * square * v
        s5 += power[i]
    sums[0, r] += s1
    sums[1, r] += s2
    sums[2, r] += s3
    sums[3, r] += s4
    sums[4, r] += s5


@vectorised
def next_powers(u, power, sums, m, r, count):
    """Adds Σ u^(m+1), ..., Σ u^(m+5), from u^m; leaves u^(m+5)."""
    s1 = s2 = s3 = s4 = s5 = u.dtype.type(0.0)
    for i in range(count):
        v, p = u[i], power[i]
        square = v * v
        s1 += p * v
        s2 += p * square
        s3 += p * square * v
        s4 += p * square * square
        power[i] = p * square * square * v
        s5 += power[i]
    sums[m, r] += s1
    sums[m + 1, r] += s2
    sums[m + 2, r] += s3
    sums[m + 3, r] += s4
    sums[m + 4, r] += s5


@vectorised
def merge(sums, sigmas, factors, joined, without, scale, count):
    """S_0..S_k of head and tail, for `count` rows at once: the tail's by Newton's identities, then the head joins.

    m ε_m = Σ_q (-1)^(q-1) ε_{m-q} p_q, then S_j <- exp(t_{i+j} - t_i) S_j + S_{j-1} for i = k..1, where t = 0 beyond
    k and S starts as ε. Row i of `joined` keeps S before class i. `factors` become exp(t_{i+1} - t_i).
    """
    k = len(factors)
    for r in range(count):
        sigmas[0, r] = 1.0
        factors[k - 1, r] = 1.0
    for m in range(1, k + 1):
        for r in range(count):
            sigmas[m, r] = 0.0
        for q in range(1, m + 1):
            sign = 1.0 / m if q % 2 else -1.0 / m
            for r in range(count):
                sigmas[m, r] += sign * sigmas[m - q, r] * sums[q - 1, r]
        for r in range(count):
            sigmas[m, r] = 0.0 if sigmas[m, r] < 0.0 else sigmas[m, r]
    for i in range(k - 1):
        for r in range(count):
            factors[i, r] = exp2_of_product(factors[i, r], scale)

    for i in range(k - 1, -1, -1):
        for r in range(count):
            without[r] = 1.0
            joined[i, 0, r] = 1.0
        for j in range(1, k + 1):
            step = min(i + j, k) - 1  # the last factor is one
            for r in range(count):
                without[r] *= factors[step, r]
                joined[i, j, r] = sigmas[j, r]
                sigmas[j, r] = without[r] * sigmas[j, r] + joined[i, j - 1, r]


@exact
def losses_and_shares(scores, kth_score, index, sigmas, losses, shares, tau, margin, start, count):
    """Losses, and sigmoid(z)/k, the derivative by -s_y, in `shares`."""
    k = index.shape[1] - 1
    for r in range(count):
        row = start + r
        true_score = np.float64(scores[row, index[row, k]])
        if not (true_score < np.inf and sigmas[k, r] == sigmas[k, r]):  # +inf or NaN, of the label or of another class
            smooth_margin = np.nan
        elif kth_score[row] == -np.inf:  # fewer than k other classes exist: the label is always in the top k
            smooth_margin = -np.inf
            kth_score[row] = 0.0
        else:  # the hard margin comes first: divided by tau, its terms would lose what is left when they cancel
            hard_margin = margin + (kth_score[row] - true_score) / k
            smooth_margin = hard_margin + tau * math.log(sigmas[k, r] / sigmas[k - 1, r])
        small = math.exp(-abs(smooth_margin) / tau)
        positive = not smooth_margin <= 0.0
        losses[row] = (smooth_margin if positive else 0.0) + tau * math.log1p(small)
        shares[r] = (1.0 if positive else small) / (1.0 + small) / k


@exact
def reduce(losses, row_weights, reduction, loss, factor):
    """The loss as reduction.py defines it, summed in the order of the rows, whatever threads computed them."""
    total = weights = 0.0
    for row in range(len(losses)):
        weighted = losses[row] * row_weights[row] if row_weights[row] != 0.0 else 0.0
        if reduction == NONE:
            loss[row] = weighted
        total += weighted
        weights += row_weights[row]
    factor[0] = 1.0 / weights if reduction == MEAN else 1.0
    if reduction != NONE:
        loss[0] = total * factor[0] if reduction == SUM else total / weights


@vectorised
def head_derivatives(sigmas, factors, joined, shares, without, adjoint, head, start, count):
    """Derivatives of the loss by the head and the label: the recursion of `merge` run backwards."""
    k = len(factors)
    for j in range(k - 1):
        for r in range(count):
            adjoint[j, r] = 0.0
    for r in range(count):
        adjoint[k, r] = shares[r] / sigmas[k, r]
        adjoint[k - 1, r] = -shares[r] / sigmas[k - 1, r]
        head[k, start + r] = -shares[r]
    for i in range(k):
        derivative = head[i, start : start + count]
        for r in range(count):
            without[r] = 1.0
            derivative[r] = 0.0
        for j in range(1, k + 1):
            step = min(i + j, k) - 1
            for r in range(count):
                derivative[r] += adjoint[j, r] * joined[i, j - 1, r]
                adjoint[j - 1, r] = without[r] * adjoint[j - 1, r] + adjoint[j, r]
                without[r] *= factors[step, r]
        for r in range(count):
            adjoint[k, r] *= without[r]


@vectorised
def tail_coefficients(sigmas, factors, shares, tail, start, count):
    """The derivative of a tail class is Σ_m c_m u^(m+1), c_m = (-1)^m (σ_{k-1-m}/σ_k - σ_{k-2-m}/σ_{k-1}) share."""
    k = len(factors)
    for r in range(count):
        upper, lower = shares[r] / sigmas[k, r], shares[r] / sigmas[k - 1, r]
        sigma, weight, span = sigmas[k - 1, r], 1.0, 1.0
        for m in range(k):
            following = 0.0
            if m < k - 1:
                weight *= factors[k - 2 - m, r]  # exp(-t_{k-1-m})
                span *= weight  # exp(-(t_{k-1-m} + ... + t_k))
                following = sigmas[k - 2 - m, r] * span
            coefficient = sigma * upper - following * lower
            tail[m, start + r] = -coefficient if m % 2 else coefficient
            sigma = following


@exact
def tail_derivatives(scores, kth_score, scale, c, k, u, polynomial, gradient):
    """c_0 u + ... + c_{k-1} u^k for every class, by Horner's rule, five coefficients in one pass over a block."""
    classes = len(scores)
    last = (k - 1) // GROUP * GROUP
    for start in range(0, classes, BLOCK):
        stop = min(start + BLOCK, classes)
        weigh(scores[start:stop], kth_score, scale, u)
        first_horner(u, c, last, polynomial, stop - start)
        for m in range(last - GROUP, -GROUP, -GROUP):
            next_horner(u, c, m, polynomial, stop - start)
        out = gradient[start:stop]
        for i in range(len(out)):
            out[i] = polynomial[i]


@vectorised
def first_horner(u, c, m, polynomial, count):
    """c_m u + ... + c_{m+4} u^5."""
    c0, c1, c2, c3, c4 = c[m], c[m + 1], c[m + 2], c[m + 3], c[m + 4]
    for i in range(count):
        v = u[i]
        polynomial[i] = ((((c4 * v + c3) * v + c2) * v + c1) * v + c0) * v


@vectorised
def next_horner(u, c, m, polynomial, count):
    """c_m u + ... + c_{m+4} u^5 + u^5 times the polynomial so far."""
    c0, c1, c2, c3, c4 = c[m], c[m + 1], c[m + 2], c[m + 3], c[m + 4]
    for i in range(count):
        v = u[i]
        polynomial[i] = (((((polynomial[i] + c4) * v + c3) * v + c2) * v + c1) * v + c0) * v


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


@intrinsic
def address(typing_context, number):
    """A number as a pointer."""

    def codegen(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(number), codegen


@intrinsic
def taken(typing_context, pointer, place, count):
    """Adds to a counter of the task, and returns what it was before: one indivisible step.

    What a thread wrote before is seen by every thread that gets a later number.
    """

    def codegen(context, builder, signature, arguments):
        counters = builder.bitcast(arguments[0], cgutils.intp_t.as_pointer())
        return builder.atomic_rmw("add", builder.gep(counters, [arguments[1]]), arguments[2], "acq_rel")

    return types.int64(pointer, types.int64, types.int64), codegen

"""The pivot algorithm as machine code for a CPU: a row is read twice forward, and read once and written once backward.

A row is worked on in blocks that stay in the innermost cache. Loops over classes are written so that the compiler
makes vector instructions of them: no calls, no branches. What has k numbers a row is plain float64 arithmetic, with the
merge of triton_kernels.py. Formulas are those of eager.py; the Python side is numba_backend.py.

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
LANES = 32  # scores compared with the smallest of the head at a time
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
        ("batch", ctypes.c_int64),  # rows taken at a time
        ("rows", ctypes.c_int64),
        ("classes", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("scores", ctypes.c_int64),  # (N, C)
        ("labels", ctypes.c_int64),  # (N,), int64
        ("losses", ctypes.c_int64),  # (N,)
        ("kth_score", ctypes.c_int64),  # (N, 1)
        ("tail", ctypes.c_int64),  # (k, N)
        ("index", ctypes.c_int64),  # (N, k + 1)
        ("head", ctypes.c_int64),  # (k + 1, N)
        ("grad_loss", ctypes.c_int64),  # (N,)
        ("gradient", ctypes.c_int64),  # (N, C)
        ("scale", ctypes.c_double),  # log2(e) / (kτ)
        ("tau", ctypes.c_double),
        ("margin", ctypes.c_double),
    )


TASK_POINTER = types.CPointer(from_dtype(np.dtype(Task)))
# Sums may be split over the lanes of a vector. Nothing assumes that there are no infinities or NaNs.
vectorised = njit(fastmath={"reassoc", "contract", "nsz"}, error_model="numpy", nogil=True)
exact = njit(error_model="numpy", nogil=True)


def compiled(score_dtype: type, working_dtype: type, cache: bool = True):
    """The two passes for these dtypes, as (forward, backward); this is where the time to compile goes."""

    @cfunc(types.void(TASK_POINTER), nopython=True, cache=cache)
    def forward(pointer):
        task = carray(pointer, 1)[0]
        rows, classes, k, batch = task.rows, task.classes, task.k, task.batch
        scores = carray(address(task.scores), (rows, classes), score_dtype)
        labels = carray(address(task.labels), rows, np.int64)
        losses = carray(address(task.losses), rows, score_dtype)
        kth_score = carray(address(task.kth_score), rows, score_dtype)
        tail = carray(address(task.tail), (k, rows), working_dtype)
        index = carray(address(task.index), (rows, k + 1), np.int64)
        head = carray(address(task.head), (k + 1, rows), np.float64)

        largest = np.empty(k, score_dtype)
        u = np.empty(BLOCK, working_dtype)
        power = np.empty(BLOCK, working_dtype)
        sums = np.empty((k + GROUP, batch))
        sigmas = np.empty((k + 1, batch))
        factors = np.empty((k, batch))
        joined = np.empty((k, k + 1, batch))
        shares = np.empty(batch)
        without = np.empty(batch)
        while True:
            start = taken(pointer, batch)
            if start >= rows:
                return
            count = min(batch, rows - start)
            for r in range(count):
                row = start + r
                kth_score[row] = select(scores, row, labels[row], largest, index)
                for i in range(k - 1):  # t_{i+1} - t_i before it is scaled; where a class is missing, anything finite
                    step = np.float64(largest[i + 1]) - np.float64(largest[i])
                    factors[i, r] = 0.0 if kth_score[row] == -np.inf else step
                power_sums(scores, row, kth_score[row], task.scale, index, u, power, sums, r)
            merge(sums, sigmas, factors, joined, without, task.scale, count)
            losses_and_shares(scores, kth_score, index, sigmas, losses, shares, task.tau, task.margin, start, count)
            head_derivatives(sigmas, factors, joined, shares, without, sums, head, start, count)
            tail_coefficients(sigmas, factors, shares, tail, start, count)

    @cfunc(types.void(TASK_POINTER), nopython=True, cache=cache)
    def backward(pointer):
        task = carray(pointer, 1)[0]
        rows, classes, k, batch = task.rows, task.classes, task.k, task.batch
        scores = carray(address(task.scores), (rows, classes), score_dtype)
        kth_score = carray(address(task.kth_score), rows, score_dtype)
        tail = carray(address(task.tail), (k, rows), working_dtype)
        index = carray(address(task.index), (rows, k + 1), np.int64)
        head = carray(address(task.head), (k + 1, rows), np.float64)
        grad_loss = carray(address(task.grad_loss), rows, np.float64)
        gradient = carray(address(task.gradient), (rows, classes), score_dtype)

        u = np.empty(BLOCK, working_dtype)
        polynomial = np.empty(BLOCK, working_dtype)
        coefficients = np.empty(k + GROUP, working_dtype)
        for m in range(k, k + GROUP):
            coefficients[m] = 0.0
        while True:
            start = taken(pointer, batch)
            if start >= rows:
                return
            for row in range(start, min(start + batch, rows)):
                for m in range(k):
                    coefficients[m] = tail[m, row] * grad_loss[row]
                tail_derivatives(scores, row, kth_score[row], task.scale, coefficients, k, u, polynomial, gradient)
                for place in range(k + 1):
                    gradient[row, index[row, place]] = head[place, row] * grad_loss[row]

    return forward, backward


@vectorised
def select(scores, row, label, largest, index):
    """The k largest scores beside the label's, descending, and their classes with the label last; returns s_[k].

    Where a class is missing, its score is -inf and its place is the label's. Returns NaN where the row has one.
    """
    k = len(largest)
    one, zero = scores.dtype.type(1.0), scores.dtype.type(0.0)
    for place in range(k):
        largest[place] = -np.inf
        index[row, place] = label
    index[row, k] = label
    smallest = largest[k - 1]
    for start in range(0, scores.shape[1], LANES):
        block = scores[row, start : start + LANES]
        larger = zero  # or NaN; counted in the scores' own dtype, as wide as what is compared
        for lane in range(len(block)):  # not range(LANES): loops of known length are unrolled, not vectorised
            larger += zero if block[lane] <= smallest else one
        if larger == zero:
            continue
        for lane in range(len(block)):
            score, column = block[lane], start + lane
            if score <= smallest or column == label:
                continue
            if score != score:
                return score
            place = k - 1
            while place > 0 and largest[place - 1] < score:
                largest[place] = largest[place - 1]
                index[row, place] = index[row, place - 1]
                place -= 1
            largest[place] = score
            index[row, place] = column
            smallest = largest[k - 1]
    return smallest


@exact
def power_sums(scores, row, kth_score, scale, index, u, power, sums, r):
    """Column r of `sums` gets Σ u^m over the tail for m = 1..k."""
    classes, k = scores.shape[1], index.shape[1] - 1
    for m in range(len(sums)):
        sums[m, r] = 0.0
    for start in range(0, classes, BLOCK):
        stop = min(start + BLOCK, classes)
        weigh(scores[row, start:stop], kth_score, scale, u)
        for place in range(k + 1):
            if start <= index[row, place] < stop:
                u[index[row, place] - start] = 0.0
        first_powers(u, power, sums, r, stop - start)
        for m in range(GROUP, k, GROUP):
            next_powers(u, power, sums, m, r, stop - start)


@vectorised
def weigh(scores, kth_score, scale, u):
    """u = exp((s - s_[k]) / (kτ)); the difference comes first, because s / (kτ) alone has lost its small digits."""
    pivot, scale = u.dtype.type(0.0 if kth_score == -np.inf else kth_score), u.dtype.type(scale)
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
        if kth_score[row] == -np.inf and true_score == true_score:  # fewer than k other classes: always in the top k
            smooth_margin = -np.inf
            kth_score[row] = 0.0
        else:  # the hard margin comes first: divided by tau, its terms would lose what is left when they cancel
            hard_margin = margin + (kth_score[row] - true_score) / k
            smooth_margin = hard_margin + tau * math.log(sigmas[k, r] / sigmas[k - 1, r])
        small = math.exp(-abs(smooth_margin) / tau)
        positive = not smooth_margin <= 0.0
        losses[row] = (smooth_margin if positive else 0.0) + tau * math.log1p(small)
        shares[r] = (1.0 if positive else small) / (1.0 + small) / k


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
def tail_derivatives(scores, row, kth_score, scale, c, k, u, polynomial, gradient):
    """c_0 u + ... + c_{k-1} u^k for every class, by Horner's rule, five coefficients in one pass over a block."""
    classes = scores.shape[1]
    last = (k - 1) // GROUP * GROUP
    for start in range(0, classes, BLOCK):
        stop = min(start + BLOCK, classes)
        weigh(scores[row, start:stop], kth_score, scale, u)
        first_horner(u, c, last, polynomial, stop - start)
        for m in range(last - GROUP, -GROUP, -GROUP):
            next_horner(u, c, m, polynomial, stop - start)
        out = gradient[row, start:stop]
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
def taken(typing_context, pointer, count):
    """Takes the next `count` rows of a task, and returns the first of them: one indivisible step."""

    def codegen(context, builder, signature, arguments):
        counter = builder.bitcast(arguments[0], cgutils.intp_t.as_pointer())
        return builder.atomic_rmw("add", counter, arguments[1], "monotonic")

    return types.int64(pointer, types.int64), codegen

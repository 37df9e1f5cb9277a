"""The pivot algorithm as one Triton kernel: loss and gradient of a row by one program.

A row of scores is read twice, the second time most likely from a cache, and its gradient is written once. The formulas
are those of a triangular recursion, in an order that suits a kernel:

* the k largest scores are known only at the end of the row, so the power sums of the tail are kept relative to the
  k-th largest score so far, and shrink when it grows. All factors are at most one;
* head and tail merge by one recursion that takes the head from its smallest class to its largest. With Q_j the
  σ_j of the classes taken so far over its largest term, Q_j <- exp(t_{i+j} - t_i) Q_j + Q_{j-1} for i = k..1;
* the derivatives of the head come from the same recursion run backwards.

A vector of k numbers sits in `lanes` = 2^p >= k lanes; lane a holds what the formulas number a + 1. Numbers of a row
are in float64. The Python side is triton_backend.py; the page is book/fused_kernels.md.
"""

import triton
import triton.language as tl


@triton.jit
def loss_kernel(
    scores,
    labels,
    weight,
    divisor,
    losses,
    gradient,
    classes,
    row_stride,
    class_stride,
    label_stride,
    ignore_index,
    scale: tl.float32,  # log2(e) / (kτ): powers of two are what the hardware computes
    tau: tl.float64,
    margin: tl.float64,
    k: tl.constexpr,
    lanes: tl.constexpr,  # 2^p > k: the head and the label
    block: tl.constexpr,
    working: tl.constexpr,
    weighted: tl.constexpr,
    mean: tl.constexpr,
    needs_gradient: tl.constexpr,
):
    """Weighted losses (N,) of scores (N, C), and their gradient (N, C) ÷ divisor; one program per row."""
    row = tl.program_id(0).to(tl.int64)
    row_scores = scores + row * row_stride
    label = tl.load(labels + row * label_stride)
    known = (label >= 0) & (label < classes)  # no other label is ever an address
    row_weight = tl.where(known, 1.0, float("nan"))
    if weighted:
        row_weight = tl.load(weight + label, mask=known, other=float("nan")).to(tl.float32)
    counted = (label != ignore_index) & (row_weight != 0.0)
    head, index, sums = _read_row(row_scores, class_stride, classes, label, scale, k, lanes, block, working)

    kth_score = tl.min(head, 0)
    true_score = tl.load(row_scores + label * class_stride, mask=known, other=float("nan")).to(tl.float64)
    ordered, index = _descending(head, index, k, lanes)
    lane = tl.arange(0, lanes)
    used = lane < k
    t = tl.where(used, tl.minimum((ordered - kth_score) / (k * tau), 1e300), 0.0)  # a difference of two is a number
    sigmas, added = _merge(t, _newton(sums, k, lanes), k, lanes)
    sigma_k = _pick(sigmas, k - 1, lanes)
    sigma_k_minus_1 = _pick(sigmas, k - 2, lanes) if k > 1 else tl.full([], 1.0, tl.float64)

    # The hard margin comes first: divided by tau, its terms would lose what is left when they cancel.
    smooth_margin = margin + (kth_score.to(tl.float64) - true_score) / k + tau * tl.log(sigma_k / sigma_k_minus_1)
    largest = tl.max(tl.where(used, head, float("-inf")), 0)
    smooth_margin = tl.where((largest < float("inf")) & (true_score < float("inf")), smooth_margin, float("nan"))
    small = tl.exp(-tl.abs(smooth_margin) / tau)
    log1p = tl.where(small < 1e-6, small - 0.5 * small * small, tl.log(1.0 + small))
    loss = tl.where(smooth_margin <= 0.0, 0.0, smooth_margin) + tau * log1p
    # Fewer than k other classes exist: the label is always in the top k. A NaN or +inf in the row stays a NaN.
    checksum = tl.sum(sums, 0) + true_score
    empty = (kth_score == float("-inf")) & (largest < float("inf")) & (checksum < float("inf"))
    tl.store(losses + row, tl.where(counted, tl.where(empty, 0.0, loss) * row_weight, 0.0))
    if needs_gradient:
        factor = row_weight / tl.load(divisor) if mean else row_weight
        share = factor * tl.where(smooth_margin <= 0.0, small, 1.0) / (1.0 + small) / k
        by_head = share * _head_derivatives(t, added, sigma_k, sigma_k_minus_1, k, lanes)
        by_head = tl.where(lane < k, by_head, -share)
        by_head = tl.where(counted, tl.where(empty, 0.0, by_head), 0.0).to(tl.float32)
        by_tail = share * _tail_coefficients(t, sigmas, sigma_k, sigma_k_minus_1, k, lanes)
        by_tail = tl.where(counted, tl.where(empty, 0.0, by_tail), 0.0).to(working)
        pivot = tl.where(empty, 0.0, kth_score)
        row_gradient = gradient + row * classes
        _write_tail(row_scores, row_gradient, class_stride, classes, pivot, scale, by_tail, counted, k, lanes, block)
        tl.debug_barrier()  # the next store overwrites places that other threads of this program have just written
        place = tl.where(used & (index >= 0), index, label)
        tl.store(row_gradient + place, by_head, mask=used & (place != label))  # a missing class has the label's place
        tl.store(row_gradient + label, tl.sum(tl.where(lane == k, by_head, 0.0), 0), mask=known)


@triton.jit
def _write_tail(
    row_scores,
    row_gradient,
    class_stride,
    classes,
    pivot,
    scale,
    by_tail,
    counted,
    k: tl.constexpr,
    lanes: tl.constexpr,
    block: tl.constexpr,
):
    """u times a polynomial in u for every class of a row: the scores are read again, most likely from a cache."""
    for start in range(0, classes, block):
        column = (start + tl.arange(0, block)).to(tl.int64)
        inside = column < classes
        score = tl.load(row_scores + column * class_stride, mask=inside, other=0.0).to(tl.float32)
        # Above the pivot are only the head and the label, written later: the bound keeps infinities out meanwhile.
        exponent = (score - pivot) * scale
        u = tl.exp2(tl.where(exponent > 0.0, 0.0, exponent)).to(by_tail.dtype)
        polynomial = tl.zeros([block], by_tail.dtype)
        for m in tl.static_range(k):
            polynomial = polynomial * u + _pick(by_tail, m, lanes)
        derivative = tl.where(counted, (u * polynomial).to(tl.float32), 0.0)
        tl.store(row_gradient + column, derivative, mask=inside)


@triton.jit
def _read_row(
    row_scores,
    class_stride,
    classes,
    label,
    scale,
    k: tl.constexpr,
    lanes: tl.constexpr,
    block: tl.constexpr,
    working: tl.constexpr,
):
    """The k largest scores but the label's and their classes, in any order, and Σ u^m of all others, m = 1..k.

    The next block is on its way while this one is worked on.
    """
    lane = tl.arange(0, lanes)
    head = tl.where(lane < k, float("-inf"), float("inf"))  # a lane beyond k is never the smallest
    index = tl.full([lanes], -1, tl.int64)
    sums = tl.zeros([lanes], tl.float64)
    upcoming = _load_others(row_scores, class_stride, classes, label, 0, block)
    for start in range(0, classes, block):
        current = upcoming
        upcoming = _load_others(row_scores, class_stride, classes, label, start + block, block)
        previous = tl.min(head, 0)
        head, index, current = _exchange(head, index, current, start, lanes, block)
        pivot = tl.min(head, 0)
        shift = tl.where(previous == pivot, 0.0, (previous - pivot) * scale)
        sums *= tl.exp2((lane + 1) * shift.to(tl.float64))
        u = tl.where(current == float("-inf"), 0.0, tl.exp2((current - pivot) * scale)).to(working)
        power = u
        for m in tl.static_range(k):
            sums += tl.where(lane == m, tl.sum(power, 0).to(tl.float64), 0.0)
            power *= u
    return head, index, sums


@triton.jit
def _load_others(row_scores, class_stride, classes, label, start, block: tl.constexpr):
    """A block of scores in float32; the label and what is beyond the row are -inf, as deleted classes are."""
    column = (start + tl.arange(0, block)).to(tl.int64)
    score = tl.load(row_scores + column * class_stride, mask=column < classes, other=float("-inf")).to(tl.float32)
    return tl.where(column == label, float("-inf"), score)


@triton.jit
def _exchange(head, index, current, start, lanes: tl.constexpr, block: tl.constexpr):
    """Swaps the largest of the block with the smallest of the head while it is larger: what leaves joins the tail.

    A random order of classes costs about k exchanges for the first block and k log(n / block) for all others.
    """
    lane = tl.arange(0, lanes)
    offset = tl.arange(0, block)
    smallest = tl.min(head, 0)
    largest, place = _largest(current)
    while largest > smallest:
        slot = lane == tl.argmin(head, 0)
        head = tl.where(slot, largest, head)
        index = tl.where(slot, (start + place).to(tl.int64), index)
        current = tl.where(offset == place, smallest, current)
        smallest = tl.min(head, 0)
        largest, place = _largest(current)
    return head, index, current


@triton.jit
def _largest(current):
    """The largest score and its place; a NaN stays in the tail, where it reaches the sums."""
    return tl.max(tl.where(current == current, current, float("-inf")), 0, return_indices=True)


@triton.jit
def _descending(head, index, k: tl.constexpr, lanes: tl.constexpr):
    """Head scores, in float64, and their classes in descending order, by counting what comes before each."""
    lane = tl.arange(0, lanes)
    head = tl.where(lane < k, head, float("-inf"))
    larger = head[None, :] > head[:, None]
    equal = (head[None, :] == head[:, None]) & (lane[None, :] < lane[:, None])
    rank = tl.sum((larger | equal).to(tl.int32), 1)
    moved = rank[:, None] == lane[None, :]
    head = tl.sum(tl.where(moved, head[:, None].to(tl.float64), 0.0), 0)
    return head, tl.sum(tl.where(moved, index[:, None], 0), 0)


@triton.jit
def _newton(sums, k: tl.constexpr, lanes: tl.constexpr):
    """ε_1..ε_k of the tail from its power sums: m ε_m = Σ_r (-1)^(r-1) ε_{m-r} p_r."""
    lane = tl.arange(0, lanes)
    signed = tl.where(lane % 2 == 0, sums, -sums)
    sigmas = tl.zeros([lanes], tl.float64)
    for m in range(1, k + 1):
        place = m - 2 - lane  # of ε_{m-r} for r = lane + 1; ε_0 = 1 has none
        factor = tl.gather(sigmas, tl.minimum(tl.maximum(place, 0), lanes - 1), 0)
        factor = tl.where(place == -1, 1.0, tl.where(place < -1, 0.0, factor))
        sigma = tl.sum(signed * factor, 0) / m
        sigmas = tl.where(lane == m - 1, tl.where(sigma < 0.0, 0.0, sigma), sigmas)
    return sigmas


@triton.jit
def _merge(t, sigmas, k: tl.constexpr, lanes: tl.constexpr):
    """S_1..S_k of head and tail, and what class i of the head added to each: row i of (lanes, lanes)."""
    lane = tl.arange(0, lanes)
    added = tl.zeros([lanes, lanes], tl.float64)
    for step in range(k):
        i = k - 1 - step
        with_i = _shifted_up(sigmas, 1.0, lanes)
        added = tl.where(lane[:, None] == i, with_i[None, :], added)
        sigmas = _without(t, i, k, lanes) * sigmas + with_i
    return sigmas, added


@triton.jit
def _head_derivatives(t, added, sigma_k, sigma_k_minus_1, k: tl.constexpr, lanes: tl.constexpr):
    """∂(log σ_k - log σ_{k-1})/∂x_[i] for i = 1..k: the recursion of `_merge` run backwards."""
    lane = tl.arange(0, lanes)
    adjoint = tl.where(lane == k - 1, 1.0 / sigma_k, tl.where(lane == k - 2, -1.0 / sigma_k_minus_1, 0.0))
    derivatives = tl.zeros([lanes], tl.float64)
    for i in range(k):
        with_i = tl.sum(tl.where(lane[:, None] == i, added, 0.0), 0)
        derivatives = tl.where(lane == i, tl.sum(with_i * adjoint, 0), derivatives)
        shifted_down = tl.gather(adjoint, tl.minimum(lane + 1, lanes - 1), 0)
        adjoint = _without(t, i, k, lanes) * adjoint + tl.where(lane == lanes - 1, 0.0, shifted_down)
    return derivatives


@triton.jit
def _tail_coefficients(t, sigmas, sigma_k, sigma_k_minus_1, k: tl.constexpr, lanes: tl.constexpr):
    """Coefficients of q^(k) - q^(k-1) = Σ_m (-1)^m (σ_{k-1-m}/σ_k - σ_{k-2-m}/σ_{k-1}) u^(m+1); lane k-1-m has m's."""
    lane = tl.arange(0, lanes)
    # Each span t_{j+1} + ... + t_k is summed, not subtracted from a longer one: nothing small is lost.
    relative = _shifted_up(sigmas, 1.0, lanes) * tl.exp(-tl.cumsum(t, 0, reverse=True))
    difference = relative / sigma_k - _shifted_up(relative, 0.0, lanes) / sigma_k_minus_1
    return tl.where((k - 1 - lane) % 2 == 0, difference, -difference)


@triton.jit
def _without(t, i, k: tl.constexpr, lanes: tl.constexpr):
    """exp(t_{i+j} - t_i): what is left of the largest term of degree j when class i of the head stays out."""
    later = tl.arange(0, lanes) + i + 1
    moved = tl.where(later < k, tl.gather(t, tl.minimum(later, lanes - 1), 0), 0.0)
    return tl.exp(moved - _pick(t, i, lanes))


@triton.jit
def _shifted_up(values, first, lanes: tl.constexpr):
    """`first`, then all values but the last."""
    lane = tl.arange(0, lanes)
    return tl.where(lane == 0, first, tl.gather(values, tl.maximum(lane - 1, 0), 0))


@triton.jit
def _pick(values, place, lanes: tl.constexpr):
    """values[place] as a scalar."""
    return tl.sum(tl.where(tl.arange(0, lanes) == place, values, 0.0), 0)

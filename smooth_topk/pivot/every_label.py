"""The loss of every label at once: scores (N, n) in, losses (N, n) out, for labels that are mixtures.

The loss is linear in the distribution of the labels, Σ_y q_y L(s, y), and L(s, y) needs σ_k and σ_{k-1} of the classes
without y. For k up to 8, a class is divided out of one polynomial of all classes (`divided_losses`). For larger k such
divisions would lose digits. There, with the k largest classes as the head, the next one as the pivot and x measured
from it:

* y in the tail: the head meets the tail without y. A tree of products, run up and down again, leaves out each class of
  the tail in turn and only ever adds and multiplies positive numbers;
* y in the head: the classes above y, those below y and the tail meet. Both sides of y come from one recursion each.

Every polynomial is divided by its largest term, as in polynomials/pivot.py. What has k numbers per sample is
kept in logarithms. Derived in notebooks/06_pivot.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..polynomials.divide_and_conquer import log_multiply, log_sum_exp
from ..polynomials.pivot import (
    blocks,
    fits,
    log_add_below,
    log_add_head,
    multiply,
    safe_log,
    scaled,
    smallest_finite,
)
from ..targets import WITHOUT_FLOAT64
from ..targets import wide as in_wide
from ..torch_internals import is_transformed
from .margins import exponent_scale, loss_of_margin
from .torch_backend import products

CACHED = 1 << 16  # scores worked on together
LARGEST_K = 8  # of `divided_losses`, whose alternating sums lose about 2**k


def losses_of_every_label(scores: Tensor, k: int, tau: float | Tensor, margin: float) -> Tensor:
    """L_{k,τ}(s, y) for every class y as the label, (N, n), at least float32; differentiable to any order."""
    if isinstance(tau, Tensor) or is_transformed() or torch.compiler.is_compiling():
        return _composed(scores, k, tau, margin)
    return _LossesOfEveryLabel.apply(scores, k, tau, margin)


def _composed(scores: Tensor, k: int, tau: float | Tensor, margin: float) -> Tensor:
    divided = k <= LARGEST_K and scores.device.type not in WITHOUT_FLOAT64
    return (divided_losses if divided else composed_losses_of_every_label)(scores, k, tau, margin)


def composed_losses_of_every_label(scores: Tensor, k: int, tau: float | Tensor, margin: float) -> Tensor:
    """The same as a composition of differentiable torch functions, all rows at once."""
    tau = in_wide(tau) if isinstance(tau, Tensor) else tau
    wide = in_wide(scores)
    top, index = wide.topk(k + 1)
    index = index[:, :k]  # of the head
    pivot = smallest_finite(top.detach())
    scale = exponent_scale(k, tau, torch.finfo(wide.dtype).max)
    head = scaled(top[:, :k] - pivot, scale).T  # (k, N), descending
    tail = scaled(wide.scatter(1, index, -torch.inf) - pivot, scale)  # (N, n), at most zero; -inf for the head
    log_ratio = log_ratios_without(head, tail, index, fits(scores, k))

    in_head = torch.zeros_like(scores, dtype=torch.bool).scatter(1, index, 1)
    kth_of_others = torch.where(in_head, top[:, k:], top[:, k - 1 : k]).detach()
    empty = kth_of_others == -torch.inf  # fewer than k other classes exist: the label is always in the top k
    smooth_margin = margin + (torch.where(empty, 0.0, kth_of_others) - wide) / k + tau * log_ratio
    if isinstance(tau, Tensor):  # the ratio is measured from the pivot, which is not the k-th other of a tail class
        kth = torch.where(in_head | empty, 0.0, head.detach()[k - 1, :, None])
        smooth_margin = smooth_margin + (tau - tau.detach()) * kth
    losses = torch.where(empty, 0.0, loss_of_margin(torch.where(empty, 0.0, smooth_margin), tau))
    finite = scores.detach().amax(1, keepdim=True) < torch.inf  # false for NaN
    losses = losses * torch.where(finite, 1.0, torch.nan)
    return losses.to(torch.promote_types(scores.dtype, torch.float32))


def divided_losses(scores: Tensor, k: int, tau: float | Tensor, margin: float) -> Tensor:
    """The same for small k, O(k) operations per class: its factor is divided out of one polynomial of all classes.

    A class of the tail of weight u leaves S_j as Σ_m (-u)^m S_{j-m}, measured from s_[k]. A class of the head leaves
    the product of the others, measured from s_[k+1]. Both sums are at least one.
    """
    tau = in_wide(tau) if isinstance(tau, Tensor) else tau
    wide = in_wide(scores)
    top, index = wide.topk(k + 1)
    head, places = top[:, :k], index[:, :k]
    scale = exponent_scale(k, tau, torch.finfo(wide.dtype).max)
    pivots = torch.where(top == -torch.inf, 0.0, top).detach()[:, k - 1 :]  # s_[k] and s_[k+1]
    w, tail = _around(wide, head, places, pivots[:, :1], k, scale)
    sigmas = multiply_truncated(products(w)[-1].flip(0), tail)  # S_0..S_k
    in_head = torch.zeros_like(scores, dtype=torch.bool).scatter(1, places, 1)  # not True, which a trace cannot save
    empty = torch.where(in_head, top[:, k:], top[:, k - 1 : k]) == -torch.inf  # fewer than k other classes exist
    u = scaled(wide - pivots[:, :1], scale).clamp(max=0.0).exp()
    upper, lower = (_alternating(sigmas[: degree + 1], u) for degree in (k, k - 1))
    log_ratio = torch.log(torch.where(in_head | empty, 1.0, upper) / torch.where(in_head | empty, 1.0, lower))

    w, tail = _around(wide, head, places, pivots[:, 1:], k, scale)
    others = torch.cat([torch.ones_like(w[None]), torch.zeros_like(w).expand(k - 1, *w.shape)])  # (k, k, N)
    for i, factor in enumerate(w):
        left = torch.cat([torch.zeros_like(others[:1]), others[:-1]])
        others = others + left * factor * (torch.arange(k, device=w.device) != i)[:, None]
    missing = top[:, k] == -torch.inf
    upper, lower = ((others * part[:, None]).sum(0).where(~missing, 1.0) for part in (tail[1:], tail[:-1]))
    log_ratio = log_ratio.scatter(1, places, torch.log(upper / lower).T)
    pivot = torch.where(in_head, pivots[:, 1:], pivots[:, :1])
    smooth_margin = margin + (pivot - wide) / k + tau * torch.where(empty, 0.0, log_ratio)
    losses = torch.where(empty, 0.0, loss_of_margin(torch.where(empty, 0.0, smooth_margin), tau))
    finite = scores.detach().amax(1, keepdim=True) < torch.inf  # false for NaN
    losses = losses * torch.where(finite, 1.0, torch.nan)
    return losses.to(torch.promote_types(scores.dtype, torch.float32))


def _around(
    scores: Tensor, head: Tensor, places: Tensor, pivot: Tensor, k: int, scale: float | Tensor
) -> tuple[Tensor, Tensor]:
    """w = exp(-t) of the head (k, N), and σ_0..σ_k of the tail (k + 1, N), measured from the pivot."""
    missing = head.detach() == -torch.inf
    w = scaled(torch.where(missing, 0.0, pivot - head), scale).clamp(max=0.0).exp().T
    u = scaled(scores - pivot, scale).clamp(max=0.0).exp().scatter(1, places, 0.0)
    power, sums = u, [u.sum(1)]
    for _ in range(1, k):
        power = power * u
        sums.append(power.sum(1))
    sigmas = [torch.ones_like(sums[0])]
    for m in range(1, k + 1):
        terms = [sigmas[m - r] * sums[r - 1] * (1 if r % 2 else -1) for r in range(1, m + 1)]
        sigmas.append((torch.stack(terms).sum(0) / m).clamp(min=0.0))
    return w, torch.stack(sigmas)


def multiply_truncated(a: Tensor, b: Tensor) -> Tensor:
    """The product of two polynomials with coefficients (k + 1, N), up to degree k."""
    return torch.stack([(a[: j + 1] * b[: j + 1].flip(0)).sum(0) for j in range(len(a))])


def _alternating(sigmas: Tensor, u: Tensor) -> Tensor:
    """Σ_m (-u)^m S_{j-m} (N, n), by Horner's rule from S_0..S_j (j + 1, N)."""
    total = sigmas[0, :, None].expand_as(u)
    for sigma in sigmas[1:]:
        total = sigma[:, None] - u * total
    return total


def log_ratios_without(head: Tensor, tail: Tensor, index: Tensor, linear: bool) -> Tensor:
    """log(S_k / S_{k-1}) of the classes other than y, for every y, (N, n); zero where no k other classes exist.

    Args:
        head: (k, N), the k largest x, descending, measured from the next one.
        tail: (N, n), all others, at most zero, and -inf for the classes of the head.
        index: (N, k), the classes of the head.
        linear: whether C(n, k) fits float64; otherwise the tree works with logarithms.
    """
    k = len(head)
    constant = head.detach()
    constant = constant.masked_fill(constant == -torch.inf, 0.0)
    live = head - constant  # zeros, that carry the derivatives; -inf for a class of -inf
    # Sums of t over i..k: differences of these, and not of sums from the front, keep the digits of the small ones.
    sums = torch.cat([constant.flip(0).cumsum(0).flip(0), torch.zeros_like(constant[:1])])  # (k + 1, N)
    above = torch.stack(log_add_below(constant, live))  # (k + 1, k + 1, N): entry h has the classes before h

    # A tail class: all of the head, σ_{k-m} and σ_{k-1-m}, with the tail's σ_m without the class.
    whole = above[k].flip(0)  # degrees k..0
    for_k = whole - sums.flip(0)  # the largest term of degree k has the whole head
    for_k_minus_1 = torch.cat(
        [whole[1:] - (sums[:k].flip(0) - constant[k - 1]), torch.full_like(whole[:1], -torch.inf)]
    )
    log_tail, log_ratio = _tail_without(tail, torch.stack([for_k, for_k_minus_1]), linear)

    # A class h of the head: the classes before it, those after it, and the whole tail.
    below = torch.stack(log_add_head(log_tail.T, constant, live)[-2::-1])  # (k, k + 1, N): entry h has those after h
    before = above[:k, :k] - (sums[:k] - sums[:k, None])  # degrees 0..k-1, divided by e^(t_1 + ... + t_{h-1})
    after = below.flip(1)  # degrees k..0
    upper, lower = (log_sum_exp((before + part).movedim(1, -1)) for part in (after[:, :k], after[:, 1:]))
    return log_ratio.scatter(1, index, _difference(upper, lower).T)


def _tail_without(tail: Tensor, for_tail: Tensor, linear: bool) -> tuple[Tensor, Tensor]:
    """log of the tail's σ_0..σ_k (N, k + 1), and log(S_k / S_{k-1}) without each class of the tail (N, n).

    `for_tail` (2, k + 1, N) has the logarithms of what σ_m of the tail is multiplied by in S_k and in S_{k-1}.
    """
    k = for_tail.shape[1] - 1
    product = partial(multiply if linear else log_multiply, k=k)
    one, zero = (1.0, 0.0) if linear else (0.0, -torch.inf)
    leaves = torch.stack([torch.full_like(tail, one), tail.exp() if linear else tail], 2)  # (N, n, 2): 1 + u X
    levels = product_levels(leaves, product, zero)
    whole = levels[-1][:, 0]  # n > k, so that it has all degrees
    without = without_each(levels, product)[:, : tail.shape[1]]  # (N, n, k + 1)
    if linear:
        upper, lower = safe_log(without @ for_tail.permute(2, 1, 0).exp()).unbind(2)
        return safe_log(whole), _difference(upper, lower)
    upper, lower = (log_sum_exp(without + part.T[:, None]) for part in for_tail)
    return whole, _difference(upper, lower)


def product_levels(leaves: Tensor, product: Callable[[Tensor, Tensor], Tensor], zero: float) -> list[Tensor]:
    """A tree of products of neighbours, from the leaves (N, n, 2) to the root (N, 1, d).

    A level with an odd count gains the polynomial 1; `zero` is what zero is in this arithmetic.
    """
    levels = [leaves]
    while levels[-1].shape[1] > 1:
        if levels[-1].shape[1] % 2:
            constant = levels[-1][:, :1, :1]  # of a product of polynomials 1 + u X: one
            one = torch.nn.functional.pad(constant, (0, levels[-1].shape[2] - 1), value=zero)
            levels[-1] = torch.cat([levels[-1], one], 1)
        levels.append(product(levels[-1][:, ::2], levels[-1][:, 1::2]))
    return levels


def without_each(levels: list[Tensor], product: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The product of all leaves but one, for each leaf, (N, n, d): down the tree, each node times its siblings."""
    others = levels[-1][:, :, :1]  # the root has no sibling: one
    for level in reversed(levels[:-1]):
        siblings = level.unflatten(1, (-1, 2)).flip(2).flatten(1, 2)
        others = product(siblings, others.repeat_interleave(2, 1)[:, : level.shape[1]])
    return others


def _difference(upper: Tensor, lower: Tensor) -> Tensor:
    """upper - lower, and zero, with a derivative of zero, where upper is -inf."""
    empty = upper.detach() == -torch.inf
    return torch.where(empty, 0.0, upper) - torch.where(empty, 0.0, lower)


def _blocks(k: int, scores: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Blocks of rows whose numbers stay in cache, where a factor is divided out; or that bound the product trees."""
    if k > LARGEST_K or scores.device.type != "cpu":
        return blocks(k, scores, *others)
    size = max(1, CACHED // scores.shape[1])
    return zip(*(tensor.split(size) for tensor in (scores, *others)), strict=True)


class _LossesOfEveryLabel(torch.autograd.Function):
    """In blocks of rows both ways, to bound the memory of the trees."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, *settings: Any) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.settings = settings
        return torch.cat([_composed(part, *settings) for (part,) in _blocks(settings[0], scores)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        pieces, differentiated = [], torch.is_grad_enabled()
        for part, part_grad in _blocks(ctx.settings[0], scores, grad):
            with torch.enable_grad():
                leaf = part if differentiated else part.detach().requires_grad_()
                losses = _composed(leaf, *ctx.settings)
            pieces.append(torch.autograd.grad(losses, leaf, part_grad, create_graph=differentiated)[0])
        return torch.cat(pieces), None, None, None

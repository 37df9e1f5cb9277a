"""The loss of every label at once: scores (N, n) in, losses (N, n) out, O(n k log k), for labels that are mixtures.

The loss is linear in the distribution of the labels, Σ_y q_y L(s, y), and L(s, y) needs σ_k and σ_{k-1} of the classes
without y. With the k largest classes as the head, the next one as the pivot and x measured from it:

* y in the tail: the head meets the tail without y. A tree of products, run up and down again, leaves out each class of
  the tail in turn and only ever adds and multiplies positive numbers;
* y in the head: the classes above y, those below y and the tail meet. Both sides of y come from one recursion each.

Every polynomial is divided by its largest term, as in polynomials/pivot.py. What has k numbers per sample is
kept in logarithms. Derived in notebooks/06_pivot.
"""

from collections.abc import Callable
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
from ..targets import wide as in_wide
from ..torch_internals import is_transformed
from .margins import exponent_scale, loss_of_margin


def losses_of_every_label(scores: Tensor, k: int, tau: float | Tensor, margin: float) -> Tensor:
    """L_{k,τ}(s, y) for every class y as the label, (N, n), at least float32; differentiable to any order."""
    if isinstance(tau, Tensor) or is_transformed() or torch.compiler.is_compiling():
        return composed_losses_of_every_label(scores, k, tau, margin)
    return _LossesOfEveryLabel.apply(scores, k, tau, margin)


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
    others = levels[-1][:, :, :1]  # nothing is beside the root: one
    for level in reversed(levels[:-1]):
        siblings = level.unflatten(1, (-1, 2)).flip(2).flatten(1, 2)
        others = product(siblings, others.repeat_interleave(2, 1)[:, : level.shape[1]])
    return others


def _difference(upper: Tensor, lower: Tensor) -> Tensor:
    """upper - lower, and zero, with a derivative of zero, where upper is -inf."""
    empty = upper.detach() == -torch.inf
    return torch.where(empty, 0.0, upper) - torch.where(empty, 0.0, lower)


class _LossesOfEveryLabel(torch.autograd.Function):
    """In blocks of rows both ways, to bound the memory of the trees."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, *settings: Any) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.settings = settings
        return torch.cat([composed_losses_of_every_label(part, *settings) for (part,) in blocks(settings[0], scores)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        pieces = []
        for part, part_grad in blocks(ctx.settings[0], scores, grad):
            _, pull_back = torch.func.vjp(lambda rows: composed_losses_of_every_label(rows, *ctx.settings), part)[:2]
            pieces.append(pull_back(part_grad)[0])
        return torch.cat(pieces), None, None, None

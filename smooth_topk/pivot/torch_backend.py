"""Loss and gradient in plain torch, O(kn): power sums of the tail, the head by products, one polynomial for the tail.

With b the k-th largest score besides the label's, the head are the k largest, with w = exp((b - s)/(kτ)), and the tail
are all others, with u = exp((s - b)/(kτ)). None of these exceeds one. With η = Π(1 + w X) and ε = Π(1 + u X),

    S_j = Σ_i η_{k-j+i} ε_i,   j = 0..k,   log(σ_k / σ_{k-1}) = b/(kτ) + log(S_k / S_{k-1}):

η_c leaves c classes of the head out. ε comes from power sums by Newton's identities, and the gradient of the tail is
one polynomial evaluated by Horner's rule. Both lose about 2**k in the worst case, whatever n is, hence `working_dtype`;
beyond, torch_large_k.py takes over. What has k numbers per row is in float64. Derived in notebooks/06_pivot.

A device without float64 (Apple's GPUs) takes the composition in float32, which only adds and multiplies positive
numbers: the error of the loss, and of the gradient relative to its largest entry, is at most 1e-5 for k up to 10.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..targets import WITHOUT_FLOAT64, Rows, Settings, counted_labels, reduced, row_factors, wide
from . import torch_large_k
from .composition import composed_rows
from .margins import exponent_scale, loss_of_margin, share_of_margin
from .torch_large_k import largest_others, multiply, newton, polynomial, power_sums, tail_coefficients

FLOAT32_LIMIT = 5  # beyond, an error of 4e-7 of the largest derivative was seen; 2**5 * 6e-8 = 2e-6 is a bound
FLOAT64_LIMIT = {torch.float32: 32, torch.float64: 16}  # likewise in float64, for 1e-5 and for 1e-11
BLOCK = 1 << 19  # elements worked on at a time: few calls, and two buffers that stay in cache


def working_dtype(dtype: torch.dtype, k: int) -> torch.dtype | None:
    """The arithmetic that makes this k exact for scores of this dtype, or None where none does.

    Half precision counts as float32, in which it is computed.
    """
    dtype = torch.promote_types(dtype, torch.float32)
    if k <= FLOAT32_LIMIT:
        return dtype
    return torch.float64 if k <= FLOAT64_LIMIT[dtype] else None


def supports(scores: Tensor, k: int) -> bool:
    """Any k, any device, any floating-point dtype, and tensors without numbers: no step looks at the scores."""
    return scores.is_floating_point()


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    settings: Settings,
    normaliser: Tensor | None = None,
    needs_gradient: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """See `smooth_topk.pivot.loss_and_gradient`."""
    rows, classes = scores.shape
    labels, row_weights, _ = counted_labels(Rows(scores, labels, False, labels.shape), weight, settings.ignore_index)
    factors = wide(row_factors(scores, row_weights, settings.reduction, normaliser))
    dtype = working_dtype(scores.dtype, settings.k)
    composed = scores.device.type in WITHOUT_FLOAT64
    compute: Callable[..., tuple[Tensor, Tensor | None]] = torch_large_k.balanced_rows if dtype is None else pivot_rows
    block = torch_large_k.BLOCK if dtype is None else BLOCK
    compute = partial(
        composed_rows if composed else compute,
        k=settings.k,
        tau=settings.tau,
        margin=settings.margin,
        needs_gradient=needs_gradient,
    )
    size = max(1, block // max(classes, settings.k**2))
    if torch.compiler.is_compiling() or scores.device.type != "cpu" or size >= rows:  # a GPU has no such cache
        losses, gradient = compute(scores, labels, factors)
    else:
        losses, gradient = scores.new_empty(rows), torch.empty_like(scores) if needs_gradient else None
        for start in range(0, rows, size):
            part = slice(start, start + size)
            part_losses, part_gradient = compute(scores[part], labels[part], factors[part])
            losses[part] = part_losses
            if gradient is not None and part_gradient is not None:
                gradient[part] = part_gradient
    if gradient is not None and row_weights is not None:
        gradient.masked_fill_((row_weights == 0)[:, None], 0.0)
    return reduced(losses, row_weights, settings.reduction, normaliser), gradient


def pivot_rows(
    scores: Tensor, labels: Tensor, factors: Tensor, *, k: int, tau: float, margin: float, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Losses (N,) of scores (N, C), and derivatives by the scores times the factors (N,)."""
    dtype = working_dtype(scores.dtype, k)
    assert dtype is not None
    head_scores, index = largest_others(scores, labels, k)
    true_score = scores.gather(1, index[:, -1:]).double()
    missing = head_scores[:, -1:] == -torch.inf  # fewer than k other classes exist: the loss is zero
    kth_score = head_scores[:, -1:].masked_fill(missing, 0.0)
    scale = exponent_scale(k, tau, torch.finfo(dtype).max)
    u = (scores.to(dtype) - kth_score).mul_(scale).exp_().scatter_(1, index, 0.0)
    tail = newton(power_sums(u.T, k).double()).clamp_(min=0)  # (k + 1, N)
    distances = (kth_score - head_scores.double()).masked_fill(missing, 0.0)
    w = (distances * exponent_scale(k, tau)).exp().T  # (k, N)
    prefixes = products(w)
    sigmas = multiply(tail, prefixes[-1].flip(0))

    # The hard margin comes first: divided by tau, its terms would lose what is left when they cancel.
    smooth_margin = margin + (kth_score - true_score)[:, 0] / k + tau * torch.log(sigmas[k] / sigmas[k - 1])
    smooth_margin = smooth_margin.masked_fill(missing[:, 0], -torch.inf)
    largest = torch.maximum(head_scores[:, 0], true_score[:, 0])  # a score of +inf, or NaN, spoils its row
    smooth_margin = smooth_margin.masked_fill(~(largest < torch.inf), torch.nan)
    losses = loss_of_margin(smooth_margin, tau).to(scores.dtype)
    if not needs_gradient:
        return losses, None
    share = share_of_margin(smooth_margin, tau) * (factors / k)
    by_head = torch.cat([head_derivatives(w, tail, prefixes, sigmas) * share, -share[None]])
    by_tail = (tail_coefficients(sigmas[: k + 1]) * share).to(dtype).unsqueeze(2)
    gradient = polynomial(u, by_tail).to(scores.dtype)
    return losses, gradient.scatter_(1, index, by_head.T.to(scores.dtype))


def products(w: Tensor) -> list[Tensor]:
    """Coefficients of 1, 1 + w_1 X, (1 + w_1 X)(1 + w_2 X), ... for w (k, N); the i-th has shape (i + 1, N)."""
    polynomials = [torch.ones_like(w[:1])]
    for factor in w:
        last = polynomials[-1]
        nothing = torch.zeros_like(last[:1])
        polynomials.append(torch.addcmul(torch.cat([last, nothing]), torch.cat([nothing, last]), factor))
    return polynomials


def head_derivatives(w: Tensor, tail: Tensor, prefixes: list[Tensor], sigmas: Tensor) -> Tensor:
    """w_i ∂(log S_{k-1} - log S_k)/∂w_i (k, N): the products run backwards."""
    k = len(w)
    adjoint = -tail / sigmas[k]
    adjoint[1:] += tail[:-1] / sigmas[k - 1]
    derivatives = []
    for factor, prefix in zip(reversed(w), reversed(prefixes[:-1]), strict=True):
        derivatives.append(factor * (prefix * adjoint[1:]).sum(0))
        adjoint = torch.addcmul(adjoint[:-1], adjoint[1:], factor)
    return torch.stack(derivatives[::-1])

"""Scores that are spread over a device mesh (DTensor): every process computes the losses of the rows that it has.

Rows are independent, so scores that are sharded over the batch need no communication but that of the reduction. Where
the classes are sharded, every process computes the polynomial of its own classes and sends its k + 1 coefficients per
row; polynomials multiply as sums of exponentials add. The backward pass is local. The hard loss, soft labels, a learned
temperature and the paper's algorithms gather the scores instead.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid, pad

from .pivot.margins import exponent_scale
from .polynomials.divide_and_conquer import log_multiply
from .polynomials.pivot import log_scaled_sigmas
from .targets import Settings, as_rows, counted_labels, reduced


def is_distributed(tensor: object) -> bool:
    """Whether this is a DTensor; nothing is imported to find out."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def loss_on_mesh(
    loss: Callable[[Tensor, Tensor, Tensor | None, Settings], Tensor],
    scores: Any,
    labels: Any,
    weight: Any,
    settings: Settings,
    merges: bool = False,
) -> Tensor:
    """What `loss` returns for plain tensors, as a DTensor on the mesh of the scores.

    Args:
        loss: computes a loss from scores, labels, weight and settings.
        scores, labels: DTensors on one mesh; labels may be probabilities.
        weight: a DTensor, a plain tensor that is the same in every process, or None.
        settings: of the loss.
        merges: whether `loss` is the smooth loss, whose shards of classes merge.
    """
    from torch.distributed.tensor import DTensor, Replicate

    if not is_distributed(labels):
        raise TypeError(f"labels must be a DTensor on the mesh of the scores, got {type(labels).__name__}.")
    placements = [p if p.is_shard(0) and scores.ndim > 1 else Replicate() for p in scores.placements]
    mesh, shard = scores.device_mesh, _dimension_of_classes(scores, labels, settings) if merges else None
    kept_places = [p if place == shard else placements[place] for place, p in enumerate(scores.placements)]
    rows = scores.redistribute(mesh, kept_places).to_local()
    row_labels = labels.redistribute(mesh, placements).to_local()
    weight = weight.full_tensor() if is_distributed(weight) else weight
    shape = scores.shape[:1] + scores.shape[2:] if scores.ndim > 1 else scores.shape[:0]

    def spread(local: Tensor) -> Tensor:
        stride = tuple(int(shape[i + 1 :].numel()) for i in range(len(shape)))
        return DTensor.from_local(local.contiguous(), scores.device_mesh, placements, shape=shape, stride=stride)

    if shard is None:
        losses = spread(loss(rows, row_labels, weight, settings._replace(reduction="none")))
    else:
        losses = spread(_losses_of_shards(rows, row_labels, weight, settings, scores.shape[1], mesh.get_group(shard)))
    if settings.reduction == "none":
        return losses
    if settings.reduction == "sum" or row_labels.is_floating_point():
        return losses.sum() if settings.reduction == "sum" else losses.mean()
    kept = row_labels != settings.ignore_index
    counts = kept.to(losses.dtype) if weight is None else weight.to(losses.dtype)[row_labels * kept] * kept
    return losses.sum() / spread(counts).sum()


def _dimension_of_classes(scores: Any, labels: Any, settings: Settings) -> int | None:
    """The dimension of the mesh over which the classes are spread, where their shards can be merged."""
    dimensions = [place for place, p in enumerate(scores.placements) if p.is_shard(1)]
    soft = labels.is_floating_point() or settings.label_smoothing
    if scores.ndim != 2 or len(dimensions) != 1 or soft or isinstance(settings.tau, Tensor):
        return None
    return dimensions[0] if settings.algorithm == "pivot" else None


def _losses_of_shards(
    local: Tensor, labels: Tensor, weight: Tensor | None, settings: Settings, classes: int, group: Any
) -> Tensor:
    """Weighted losses (N,), the same in every process of the group, from the scores (N, c) of this process.

    Merged in logarithms of float64, measured from the largest score of a row.
    """
    k, tau, margin = settings.k, settings.tau, settings.margin
    assert not isinstance(tau, Tensor)
    rows = as_rows(local.new_empty(1).expand(len(local), classes), labels, weight, k)  # shapes are checked, no numbers
    known, row_weights, ignored = counted_labels(rows, weight, settings.ignore_index)
    local = local if ignored is None else local.masked_fill(ignored[:, None], 0.0)
    local = local.double() if local.shape[1] else local.new_full((len(local), 1), -torch.inf).double()
    largest = _gathered(local.detach().amax(1), group).amax(0)
    local = local - torch.where(largest.isfinite(), largest, 0.0)[:, None]
    place = known - group.rank() * -(-classes // group.size())
    own = (place >= 0) & (place < local.shape[1])
    column = torch.where(own, place, 0)[:, None]
    true_score = torch.where(own, local.gather(1, column)[:, 0], 0.0)
    others = torch.where(own[:, None], local.scatter(1, column, -torch.inf), local)
    scale = exponent_scale(k, tau)
    log_scaled, log_terms = log_scaled_sigmas(others, min(k, local.shape[1]), scale)
    log_sigmas = torch.where(log_scaled == -torch.inf, -torch.inf, log_scaled + log_terms).T
    log_sigmas = pad(log_sigmas, (0, k + 1 - log_sigmas.shape[1]), value=-torch.inf)
    shards = _Gather.apply(torch.cat([log_sigmas, true_score[:, None]], 1), group)  # (processes, N, k + 2)
    merged = shards[:1, :, :-1].transpose(0, 1)  # (N, 1, k + 1)
    for shard in shards[1:, :, :-1]:
        merged = log_multiply(merged, shard[:, None], k)
    lower, upper = merged[:, 0, -2:].unbind(1)
    empty = upper.detach() == -torch.inf  # fewer than k other classes exist
    log_ratio = torch.where(empty, 0.0, upper) - torch.where(empty, 0.0, lower)
    losses = -tau * logsigmoid(shards[..., -1].sum(0) * scale - margin / tau - log_ratio)
    losses = torch.where(empty, 0.0, losses) * torch.where(largest < torch.inf, 1.0, torch.nan)
    return reduced(losses, row_weights, "none").to(rows.scores.dtype)


def _gathered(tensor: Tensor, group: Any) -> Tensor:
    """The tensors of all processes of the group, stacked."""
    parts = [torch.empty_like(tensor) for _ in range(group.size())]
    torch.distributed.all_gather(parts, tensor.contiguous(), group=group)
    return torch.stack(parts)


class _Gather(torch.autograd.Function):
    """`_gathered`, where every process computes the same loss: the derivatives by its own part are complete."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.rank = group.rank()
        return _gathered(tensor, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad[ctx.rank], None

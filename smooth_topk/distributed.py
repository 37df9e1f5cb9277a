"""Scores that are spread over a device mesh (DTensor): every process computes the losses of the rows that it has.

Rows are independent, so scores that are sharded over the batch need no communication but that of the reduction. Scores
that are sharded over the classes are gathered first.
"""

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from .targets import Settings


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
) -> Tensor:
    """What `loss` returns for plain tensors, as a DTensor on the mesh of the scores.

    Args:
        loss: computes a loss from scores, labels, weight and settings.
        scores, labels: DTensors on one mesh; labels may be probabilities.
        weight: a DTensor, a plain tensor that is the same in every process, or None.
        settings: of the loss.
    """
    from torch.distributed.tensor import DTensor, Replicate

    if not is_distributed(labels):
        raise TypeError(f"labels must be a DTensor on the mesh of the scores, got {type(labels).__name__}.")
    placements = [p if p.is_shard(0) and scores.ndim > 1 else Replicate() for p in scores.placements]
    rows, row_labels = (tensor.redistribute(scores.device_mesh, placements).to_local() for tensor in (scores, labels))
    weight = weight.full_tensor() if is_distributed(weight) else weight
    shape = scores.shape[:1] + scores.shape[2:] if scores.ndim > 1 else scores.shape[:0]

    def spread(local: Tensor) -> Tensor:
        stride = tuple(int(shape[i + 1 :].numel()) for i in range(len(shape)))
        return DTensor.from_local(local.contiguous(), scores.device_mesh, placements, shape=shape, stride=stride)

    losses = spread(loss(rows, row_labels, weight, settings._replace(reduction="none")))
    if settings.reduction == "none":
        return losses
    if settings.reduction == "sum" or row_labels.is_floating_point():
        return losses.sum() if settings.reduction == "sum" else losses.mean()
    kept = row_labels != settings.ignore_index
    counts = kept.to(losses.dtype) if weight is None else weight.to(losses.dtype)[row_labels * kept] * kept
    return losses.sum() / spread(counts).sum()

"""Top-k accuracies of a network over batches that may be shared among processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from smooth_topk import topk_probabilities

if TYPE_CHECKING:
    from lightning_fabric import Fabric  # takes seconds to import, so only where a run starts

TOP = (1, 3, 5, 10, 20)  # the k of every accuracy that is counted
CENTRAL_CROP = 4  # torchvision's TenCrop: four corners, the centre, then the same mirrored


def count_hits(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns how many labels are among the k highest scores for every k of TOP, as float64 (5,)."""
    # Counts, not shares: they add up to the same number whatever the batches and the processes were.
    return (better_classes(scores, labels)[:, None] < _counted(scores.device)).sum(0).double()


def better_classes(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns how many classes of each row have a higher score than the label, (N,).

    As in `smooth_topk.topk_error`: a label that ties with the k-th score is in the top k, one with a NaN score is not.
    """
    return (~(scores <= scores.gather(1, labels[:, None]))).sum(1)


@cache
def _counted(device: torch.device) -> Tensor:
    """Returns TOP on a device, where it stays: a copy for every batch would make every batch wait."""
    return torch.tensor(TOP, device=device)


@torch.no_grad()
def evaluate(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    fabric: Fabric | None = None,
    loss: Callable[..., Tensor] | None = None,
    k: int = 5,
    after_batch: Callable[[], None] = lambda: None,
    hits: list[Tensor] | None = None,
) -> dict[str, float]:
    """Returns the shares of labels found over all batches of all processes, of any and of different sizes.

    Args:
        network: a plain module, not the one that Fabric wrapped: a wrapped one talks to the other processes in every
            forward pass, and they may have fewer batches.
        batches: images (N, 3, H, W), features (N, 128), or ten crops (N, 10, 3, H, W).
        loss: adds its mean under the name "loss"; for one crop only.
        k: of the marginals.
        after_batch: called after every batch; it may raise to stop.
        hits: gets, batch after batch, whether each label of this process is among the first five.

    Returns:
        top1, top3, top5, top10 and top20, for ten crops those of the central one; also ten_crop_softmax_top1 and
        so on from averaged softmax, ten_crop_marginals_top1 and so on from averaged top-k probabilities (appendix C).
    """
    if fabric is None:
        from lightning_fabric import Fabric

        fabric = Fabric(accelerator="cpu", devices=1)
    was_training = network.training
    network.eval()
    dtype = next(network.parameters()).dtype
    sums: dict[str, Tensor | float] = defaultdict(float)
    for images, labels in batches:
        images, labels = images.to(fabric.device, dtype), labels.to(fabric.device)
        with fabric.autocast():
            scores = _ten_crop_scores(network, images) if images.dim() == 5 else network(images)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        for name, answer in _ranked_by(scores, k).items():
            for k_counted, counted in zip(TOP, count_hits(answer, labels), strict=True):
                sums[f"{name}top{k_counted}"] += counted
            if hits is not None and not name:
                hits.append(better_classes(answer, labels) < 5)
        if loss is not None:
            sums["loss"] += loss(scores, labels, reduction="sum").double()
        sums["images"] += len(labels)
        after_batch()
    network.train(was_training)
    return _shares(sums, fabric)


def _ten_crop_scores(network: nn.Module, crops: Tensor) -> Tensor:
    return network(crops.flatten(0, 1)).unflatten(0, crops.shape[:2])  # (N, 10, classes)


def combined_crops(scores: Tensor, k: int) -> dict[str, Tensor]:
    """Returns what each way of making one answer of ten crops ranks the classes by, (N, C) in float64 (appendix C).

    Args:
        scores: (N, 10, C), the crops in the order of torchvision's TenCrop.
        k: of the marginals.

    Returns:
        "central" (the scores of the central crop alone), "softmax", "scores" and "marginals" (averaged over crops).
    """
    # In float32 the marginals of the first classes are all 1: they would tie, and a tie counts as a hit.
    scores = scores.double()
    return {
        "central": scores[:, CENTRAL_CROP],
        "softmax": scores.softmax(dim=-1).mean(dim=1),
        "scores": scores.mean(dim=1),
        "marginals": topk_probabilities(scores, k, tau=1 / k, crops=1),
    }


def _ranked_by(scores: Tensor, k: int) -> dict[str, Tensor]:
    """Returns the answers that are counted, by the beginning of their column's name."""
    if scores.dim() == 2:
        return {"": scores}
    answers = combined_crops(scores, k)
    return {"": answers["central"], **{f"ten_crop_{way}_": answers[way] for way in ("softmax", "marginals")}}


def _shares(sums: dict, fabric: Fabric) -> dict[str, float]:
    names = fabric.broadcast(sorted(sums))  # a process without a batch does not know them
    own = torch.tensor([float(sums[name]) for name in names], dtype=torch.float64, device=fabric.device)
    totals = dict(zip(names, torch.as_tensor(fabric.all_reduce(own, reduce_op="sum")).tolist(), strict=True))
    if "images" not in totals:
        raise ValueError("There is no image to evaluate: no process was given a batch.")
    images = totals.pop("images")
    return {name: total / images for name, total in totals.items()}

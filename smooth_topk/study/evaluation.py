"""Top-1 and top-5 accuracy of a network over batches that may be shared among processes."""

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from smooth_topk import topk_accuracy, topk_probabilities

CENTRAL_CROP = 4  # torchvision's TenCrop: four corners, the centre, then the same mirrored


def count_hits(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns how many labels are the highest score and how many are among the five highest, as float64 (2,)."""
    shares = [topk_accuracy(scores, labels, k=min(k, scores.shape[-1])) for k in (1, 5)]
    # Counts, not shares: they add up to the same number whatever the batches and the processes were.
    return (torch.stack(shares).double() * len(labels)).round()


@torch.no_grad()
def evaluate(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    fabric: Fabric | None = None,
    loss: Callable[..., Tensor] | None = None,
    k: int = 5,
    after_batch: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Returns the shares of labels found over all batches of all processes, of any and of different sizes.

    Args:
        network: a plain module, not the one that Fabric wrapped: a wrapped one talks to the other processes in every
            forward pass, and they may have fewer batches.
        batches: images (N, 3, H, W), or ten crops (N, 10, 3, H, W).
        loss: adds its mean under the name "loss"; for one crop only.
        k: of the marginals.
        after_batch: called after every batch; it may raise to stop.

    Returns:
        top1 and top5, for ten crops those of the central one; beside them ten_crop_softmax_top1 and _top5 from averaged
        softmax, ten_crop_marginals_top1 and _top5 from averaged top-k probabilities (appendix C).
    """
    fabric = fabric or Fabric(accelerator="cpu", devices=1)
    was_training = network.training
    network.eval()
    dtype = next(network.parameters()).dtype
    sums: dict[str, Tensor | float] = defaultdict(float)
    for images, labels in batches:
        images, labels = images.to(fabric.device, dtype), labels.to(fabric.device)
        with fabric.autocast():
            scores = network(images.flatten(0, -4)).unflatten(0, images.shape[:-3])
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        for name, answer in _answers(scores, k).items():
            hits = count_hits(answer, labels)
            sums[f"{name}top1"] += hits[0]
            sums[f"{name}top5"] += hits[1]
        if loss is not None:
            sums["loss"] += loss(scores, labels, reduction="sum").double()
        sums["images"] += len(labels)
        after_batch()
    network.train(was_training)
    return _shares(sums, fabric)


def _answers(scores: Tensor, k: int) -> dict[str, Tensor]:
    if scores.dim() == 2:
        return {"": scores}
    return {
        "": scores[:, CENTRAL_CROP],
        "ten_crop_softmax_": scores.softmax(dim=-1).mean(dim=1),
        "ten_crop_marginals_": topk_probabilities(scores, k=k, crops=1),
    }


def _shares(sums: dict, fabric: Fabric) -> dict[str, float]:
    names = fabric.broadcast(sorted(sums))  # a process without a batch does not know them
    totals = torch.tensor([float(sums[name]) for name in names], dtype=torch.float64, device=fabric.device)
    totals = dict(zip(names, fabric.all_reduce(totals, reduce_op="sum").tolist(), strict=True))
    images = totals.pop("images")
    return {name: total / images for name, total in totals.items()}

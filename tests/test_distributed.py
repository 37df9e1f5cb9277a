"""Scores on a device mesh: two processes, each with its rows, give the loss and the gradient of one."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

from smooth_topk import hard_topk_loss, smooth_topk_loss

ROWS, CLASSES = 5, 11  # five rows on two processes: three and two


def problem():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(ROWS, CLASSES, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES, (ROWS,), generator=generator)
    labels[1] = -100
    return scores, labels, torch.rand(CLASSES, generator=generator, dtype=torch.float64)


CASES = [
    (loss, placement, reduction, weighted, options)
    for loss, options in ((smooth_topk_loss, {"k": 3}), (hard_topk_loss, {"k": 3}))
    for placement in (Shard(0), Shard(1), Replicate())
    for reduction in ("mean", "sum", "none")
    for weighted in (False, True)
] + [(smooth_topk_loss, Shard(0), "mean", True, {"k": 3, "label_smoothing": 0.1})]


def compare(rank, folder):
    """Runs in each process: every case against plain tensors."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        scores, labels, weight = problem()
        spread_labels = distribute_tensor(labels, mesh, [Shard(0)])
        for loss, placement, reduction, weighted, options in CASES:
            options = options | {"weight": weight if weighted else None, "reduction": reduction}
            plain = scores.clone().requires_grad_()
            expected = loss(plain, labels, **options)
            expected.sum().backward()
            spread = distribute_tensor(scores, mesh, [placement]).requires_grad_()
            value = loss(spread, spread_labels, **options)
            value.sum().backward()
            torch.testing.assert_close(value.full_tensor(), expected)
            torch.testing.assert_close(spread.grad.full_tensor(), plain.grad)
        compare_other_shapes(mesh)
        compare_sharded_classes(mesh)
        with pytest.raises(TypeError, match="labels must be a DTensor on the mesh of the scores, got Tensor"):
            smooth_topk_loss(spread, labels, k=3)
        probabilities = torch.softmax(scores.flip(1), 1)
        soft = smooth_topk_loss(spread, distribute_tensor(probabilities, mesh, [Shard(0)]), k=3)
        assert isinstance(soft, DTensor)
        torch.testing.assert_close(soft.full_tensor(), smooth_topk_loss(scores, probabilities, k=3))
        for reduction in ("sum", "none"):
            options = {"k": 3, "weight": weight, "reduction": reduction}
            soft = smooth_topk_loss(spread, distribute_tensor(probabilities, mesh, [Shard(0)]), **options)
            torch.testing.assert_close(soft.full_tensor(), smooth_topk_loss(scores, probabilities, **options))
    finally:
        dist.destroy_process_group()


def compare_other_shapes(mesh):
    """Scores of one sample, scores with further dimensions, and a weight that is itself spread over the mesh."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(CLASSES, generator=generator, dtype=torch.float64)
    for shape in ((CLASSES,), (ROWS, CLASSES, 2, 3)):
        scores = torch.randn(shape, generator=generator, dtype=torch.float64)
        labels = torch.randint(CLASSES, shape[:1] + shape[2:] if len(shape) > 1 else (), generator=generator)
        labels_at = [Shard(0) if labels.ndim else Replicate()]
        for placement in (Shard(0), Replicate()):
            spread = distribute_tensor(scores, mesh, [placement])
            spread_labels = distribute_tensor(labels, mesh, labels_at)
            spread_weight = distribute_tensor(weight, mesh, [Shard(0)])
            for reduction in ("none", "mean", "sum"):
                options = {"k": 3, "tau": 0.5, "reduction": reduction}
                value = smooth_topk_loss(spread, spread_labels, weight=spread_weight, **options)
                expected = smooth_topk_loss(scores, labels, weight=weight, **options)
                assert value.shape == expected.shape
                assert value.stride() == expected.stride()
                torch.testing.assert_close(value.full_tensor(), expected)


def compare_sharded_classes(mesh):
    """Shards of classes merge: exact at any temperature, and the bytes sent per row do not grow with the classes."""
    sent = []
    original = dist.all_gather
    dist.all_gather = lambda parts, tensor, group: (sent.append(tensor.nbytes), original(parts, tensor, group))
    for k, classes, tau, scale in [(1, 2, 1.0, 1.0), (3, 11, 1e-3, 100.0), (8, 11, 0.1, 1.0), (5, 501, 1.0, 30.0)]:
        generator = torch.Generator().manual_seed(classes)
        plain = scale * torch.randn(ROWS, classes, generator=generator, dtype=torch.float64) + 1e6
        plain[0, 1 : classes - k] = -torch.inf
        plain[2, 0] = torch.nan
        labels = torch.arange(ROWS) % classes
        labels[4] = -100
        spread = distribute_tensor(plain, mesh, [Shard(1)]).requires_grad_()
        plain.requires_grad_()
        options = {"k": k, "tau": tau, "reduction": "none"}
        sent.clear()
        value = smooth_topk_loss(spread, distribute_tensor(labels, mesh, [Replicate()]), **options)
        assert sum(sent) == 8 * ROWS * (k + 3)  # k + 1 coefficients, the label's score, the largest score
        expected = smooth_topk_loss(plain, labels, **options)
        torch.testing.assert_close(value.full_tensor(), expected, equal_nan=True, rtol=1e-9, atol=1e-12)
        value.full_tensor().nansum().backward()
        expected.nansum().backward()
        kept = [0, 1, 3, 4]
        torch.testing.assert_close(spread.grad.full_tensor()[kept], plain.grad[kept], rtol=1e-9, atol=1e-12)
    dist.all_gather = original


def test_scores_on_a_mesh_give_the_loss_and_the_gradient_of_plain_tensors(tmp_path):
    multiprocessing.spawn(compare, args=(tmp_path,), nprocs=2)

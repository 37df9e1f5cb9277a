"""Bytes that a study needs on disk and in memory, computed from the networks and the data without running anything."""

import pandas as pd
import torch

from smooth_topk.study.experiments.expected_cost import SPLITS
from smooth_topk.study.experiments.run_config import FEATURES
from smooth_topk.study.training.checkpoints import KEPT
from smooth_topk.study.training.models import build_model

CLASSES = {"imagenet": 1000, "constructed_1000": 1000, "constructed_10000": 10_000}  # the other data sets have 100
IMAGE_SHAPES = {
    "synthetic": (3, 32, 32),
    "cifar100": (3, 32, 32),
    "imagenet": (3, 224, 224),
    **{name: (size,) for name, size in FEATURES.items()},
}
NETWORKS = {"small": 100, "densenet40_12": 100, "densenet40_40_bc": 100, "resnet18": 1000}  # with their classes


def disk_table() -> pd.DataFrame:
    """Returns by network its parameters in millions; in MB a checkpoint, and the room that an unfinished run needs."""
    rows = {}
    for name, classes in NETWORKS.items():
        with torch.device("meta"):
            network = build_model(name, classes)
        size = checkpoint_bytes(network) / 1e6
        parameters = sum(parameter.numel() for parameter in network.parameters()) / 1e6
        # A new checkpoint is whole before an old one goes.
        rows[name] = {"parameters (millions)": parameters, "checkpoint": size, "room for one run": (KEPT + 1) * size}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("network")


def network_without_memory(model: str, dataset: str) -> torch.nn.Module:
    """Returns the network for a data set with all its classes, on tensors without memory behind them."""
    with torch.device("meta"):
        return build_model(model, CLASSES.get(dataset, 100), FEATURES.get(dataset, 128))


def training_bytes(model: str, dataset: str, batch_size: int) -> int:
    """Returns what a training holds in memory at the end of a forward pass in float32, images of the data set left out.

    Weights, gradients, momentum, and what the layers keep for the backward pass. The network is called on tensors
    without memory behind them, so nothing is computed. What kernels need while they run is not counted.
    """
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    with torch.device("meta"), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network = network_without_memory(model, dataset)
        images = torch.empty(batch_size, *IMAGE_SHAPES[dataset])
        network(images)
    own = {tensor.untyped_storage()._cdata for tensor in network.state_dict().values()}
    kept = sum(storage.nbytes() for name, storage in saved.items() if name not in own)
    weights = sum(value.nbytes for value in network.state_dict().values())
    return weights + 2 * sum(parameter.nbytes for parameter in network.parameters()) + kept


def checkpoint_bytes(network: torch.nn.Module) -> int:
    """Returns the size of the tensors in a checkpoint: the weights, the best weights so far, and SGD's momentum."""
    weights = sum(value.nbytes for value in network.state_dict().values())
    return 2 * weights + sum(parameter.nbytes for parameter in network.parameters())


def image_bytes(dataset: str) -> int:
    """Returns the bytes of all images of CIFAR-100 or of the built-in data, 32 x 32 x 3 each, held in memory."""
    if dataset not in ("cifar100", "synthetic"):
        raise ValueError(f"The images of cifar100 and of synthetic are held in memory, got dataset={dataset!r}.")
    return sum(SPLITS[dataset]) * 3 * 32 * 32

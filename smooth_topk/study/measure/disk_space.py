"""Bytes that a study needs on disk and in memory, computed from the networks and the data without running anything."""

import pandas as pd
import torch

from smooth_topk.study.experiments.expected_cost import SPLITS
from smooth_topk.study.training.checkpoints import KEPT
from smooth_topk.study.training.models import build_model

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


def checkpoint_bytes(network: torch.nn.Module) -> int:
    """Returns the size of the tensors in a checkpoint: the weights, the best weights so far, and SGD's momentum."""
    weights = sum(value.nbytes for value in network.state_dict().values())
    return 2 * weights + sum(parameter.nbytes for parameter in network.parameters())


def image_bytes(dataset: str) -> int:
    """Returns the bytes of all images of CIFAR-100 or of the built-in data, 32 x 32 x 3 each, held in memory."""
    if dataset not in ("cifar100", "synthetic"):
        raise ValueError(f"The images of cifar100 and of synthetic are held in memory, got dataset={dataset!r}.")
    return sum(SPLITS[dataset]) * 3 * 32 * 32

"""Scores of a real network on real images that are part of the project's results, where they are recorded."""

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smooth_topk.study.notebook import recorded_folder

NOT_RECORDED = "not recorded"


def imagenet_scores(folder: Path | None = None, name: str = "imagenet_scores.npz") -> tuple[Tensor, Tensor] | None:
    """Returns recorded scores (N, 1000) and labels (N,), or None where they are not recorded.

    Args:
        folder: by default book/results.
        name: a file with the arrays `scores` and `labels`; scores of ten crops are (N, 10, 1000).
    """
    path = (folder or recorded_folder()) / name
    if not path.exists():
        return None
    try:
        with np.load(path) as arrays:
            return torch.from_numpy(arrays["scores"]).double(), torch.from_numpy(arrays["labels"]).long()
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} does not hold the arrays scores and labels: {error}") from error


def imagenet_class_names() -> list[str]:
    """Returns the English names of the 1,000 classes in the order of their WordNet ids, as torchvision lists them."""
    from smooth_topk.study.vision import torchvision  # takes seconds to import

    return torchvision.models.ResNet18_Weights.DEFAULT.meta["categories"]

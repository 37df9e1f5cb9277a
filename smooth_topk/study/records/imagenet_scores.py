"""Scores of a trained network on ImageNet images, where they are recorded: see scripts/imagenet_scores.py."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smooth_topk.study.records.paths import published_folder

ONE_CROP, TEN_CROPS = "imagenet_scores.npz", "imagenet_ten_crops.npz"
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class RecordedScores:
    """scores (N, 1000), or (N, 10, 1000) for ten crops, in float64; labels (N,); names of the classes; the network."""

    scores: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    network: str


def read_scores(name: str = ONE_CROP, folder: Path | None = None) -> RecordedScores | None:
    """Returns recorded scores, or None where they are not recorded.

    Args:
        name: ONE_CROP or TEN_CROPS.
        folder: by default book/results.
    """
    path = (folder or published_folder()) / name
    if not path.exists():
        return None
    try:
        with np.load(path) as arrays:
            return RecordedScores(
                torch.from_numpy(arrays["scores"]).double(),
                torch.from_numpy(arrays["labels"]).long(),
                tuple(arrays["class_names"].tolist()),
                str(arrays["network"]),
            )
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as recorded scores; record it again: {error}") from error

"""The built-in real data: 128 features of every image of CIFAR-100, seen by a network trained on ImageNet.

`book/results/cifar100_features.npz` holds them for all 50,000 training and 10,000 test images, one byte per feature,
with the fine labels; `cifar100_features.json` next to it says how it was made. They lie with the recorded results,
because they are a measurement of ours and no part of the package: the wheel does not carry them.
`scripts/extract_features.py` computes them from the images.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smooth_topk.noisy_labels import CIFAR100_SUPERCLASSES
from smooth_topk.study.data.augmentation import EpochPlan
from smooth_topk.study.data.sources import ArraySource
from smooth_topk.study.records.paths import published_folder

FILE, PROVENANCE = "cifar100_features.npz", "cifar100_features.json"
PARTS = {"train": 50_000, "test": 10_000}
HELD_OUT_PER_CLASS = 50  # as for the images themselves: the same 5,000 are held out
COMMAND = "python scripts/extract_features.py"


@dataclass(frozen=True)
class FeatureSource(ArraySource):
    """Features instead of pixels: `images` are (N, 128) float32; the first one has about the standard deviation one."""

    evaluation_batch: int = 2_500

    def augmented(self, images: Tensor, plan: EpochPlan) -> Tensor:
        """Features have no flips and crops: every epoch sees the same numbers."""
        return images

    def normalised(self, images: Tensor) -> Tensor:
        """Features are numbers that a network takes."""
        return images


@cache
def load(folder: Path | None = None) -> FeatureSource:
    """Checks the feature file against its recorded sum and reads it; a second call in a process is free.

    Raises:
        FileNotFoundError, ValueError: with the file and the command that makes it again.
    """
    path, provenance = ((folder or published_folder()) / name for name in (FILE, PROVENANCE))
    repair = f"Take it from a clone of the project, or make it again from CIFAR-100: {COMMAND}"
    for needed in (path, provenance):
        if not needed.is_file():
            raise FileNotFoundError(f"{needed} is missing. {repair}")
    expected = json.loads(provenance.read_text(encoding="utf-8"))
    if hashlib.sha256(path.read_bytes()).hexdigest() != expected["sha256"]:
        raise ValueError(f"{path} is damaged or altered: its SHA-256 sum is not that of {PROVENANCE}. {repair}")
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in ("train", "test", "train_labels", "test_labels", "step")}
        deviation = float(file["largest_deviation"])
    step = torch.from_numpy(arrays["step"]) / deviation  # a feature is its byte times this
    superclasses = tuple(int(group) for group in CIFAR100_SUPERCLASSES)
    return FeatureSource(
        images={part: torch.from_numpy(arrays[part]).float() * step for part in PARTS},
        labels={part: torch.from_numpy(arrays[f"{part}_labels"]).long() for part in PARTS},
        class_names=tuple(expected["class_names"]),
        class_to_superclass=superclasses,
        held_out_per_class=HELD_OUT_PER_CLASS,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
    )

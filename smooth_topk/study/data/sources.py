"""Where the pixels of a data set come from: rows in, uint8 images out. Arrays here, JPEG files in imagenet.py."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from smooth_topk.study.data.augmentation import PADDING, EpochPlan, flip_and_crop, normalise, scaled


@dataclass(frozen=True)
class Request:
    """One batch to read: rows (N,) of a part of the source and, for training, the random numbers (N,) of each."""

    rows: Tensor
    plan: EpochPlan | None = None


@dataclass(frozen=True)
class ArraySource:
    """Small images, all in memory or memory-mapped.

    Attributes:
        images: "train" and "test", each (N, 3, H, W) uint8.
        labels: "train" and "test", each (N,) int64.
        class_names: in the order of the labels.
        class_to_superclass: the superclass of every class.
        held_out_per_class: images of each class that leave the training part for validation.
        mean, std: of the training pixels, per channel, on the scale from 0 to 1.
    """

    images: dict[str, Tensor]
    labels: dict[str, Tensor]
    class_names: tuple[str, ...]
    class_to_superclass: tuple[int, ...]
    held_out_per_class: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    evaluation_batch: int = 250

    def read(self, part: str, requests: Iterable[Request], device: torch.device) -> Iterator[Tensor]:
        """Yields the images (N, 3, H, W) uint8 of every request, mirrored and cropped where it has a plan."""
        for request in requests:
            images = self.images[part].index_select(0, request.rows).to(device)
            yield images if request.plan is None else self.augmented(images, request.plan, device)

    def augmented(self, images: Tensor, plan: EpochPlan, device: torch.device) -> Tensor:
        """Returns the images mirrored and moved as the plan says."""
        down, right = (scaled(draws, 2 * PADDING + 1) for draws in (plan.draws_down, plan.draws_right))
        return flip_and_crop(images, plan.flips.to(device), down.to(device), right.to(device))

    def normalised(self, images: Tensor) -> Tensor:
        """Returns uint8 images as the float32 numbers that a network sees."""
        return normalise(images, self.mean, self.std)

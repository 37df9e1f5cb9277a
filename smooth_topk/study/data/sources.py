"""Where the pixels of a data set come from: rows in, uint8 images out. Arrays here, JPEG files in imagenet.py.

On a GPU the arrays are copied once and stay there. A batch is then picked, mirrored and cropped on the GPU; what it
needs is copied before the first batch of an epoch, so that no batch waits for a copy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
        mean: of the training pixels, per channel, on the scale from 0 to 1.
        std: the standard deviation of the same pixels, per channel.
    """

    images: dict[str, Tensor]
    labels: dict[str, Tensor]
    class_names: tuple[str, ...]
    class_to_superclass: tuple[int, ...]
    held_out_per_class: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    evaluation_batch: int = 250
    copies: dict[tuple[str, torch.device], Tensor] = field(default_factory=dict, init=False, compare=False, repr=False)

    def read(self, part: str, requests: Sequence[Request], device: torch.device) -> Iterator[Tensor]:
        """Yields the images (N, 3, H, W) uint8 of every request, mirrored and cropped where it has a plan."""
        everything = self.kept_on(device, part, self.images[part])
        for request in on_device(requests, device):
            images = everything.index_select(0, request.rows)
            yield images if request.plan is None else self.augmented(images, request.plan)

    def kept_on(self, device: torch.device, name: str, values: Tensor) -> Tensor:
        """Returns values on a device; they are copied when they are asked for the first time, and the copy is kept."""
        if values.device == device:
            return values
        if (name, device) not in self.copies:
            self.copies[name, device] = values.to(device)
        return self.copies[name, device]

    def augmented(self, images: Tensor, plan: EpochPlan) -> Tensor:
        """Returns the images mirrored and moved as the plan says."""
        down, right = (scaled(draws, 2 * PADDING + 1) for draws in (plan.draws_down, plan.draws_right))
        return flip_and_crop(images, plan.flips, down, right)

    def normalised(self, images: Tensor) -> Tensor:
        """Returns uint8 images as the float32 numbers that a network sees."""
        return normalise(images, self.mean, self.std)


def on_device(requests: Sequence[Request], device: torch.device) -> Iterator[Request]:
    """Yields the requests with their numbers on a device, copied there for all of them at once."""
    rows = together_on(device, [request.rows for request in requests])
    plans = [request.plan for request in requests if request.plan is not None]
    if not plans:
        yield from map(Request, rows)
        return
    columns = zip(*(vars(plan).values() for plan in plans), strict=True)
    moved = zip(*(together_on(device, column) for column in columns), strict=True)
    yield from (Request(chunk, EpochPlan(*values)) for chunk, values in zip(rows, moved, strict=True))


def together_on(device: torch.device, parts: Sequence[Tensor]) -> Sequence[Tensor]:
    """Returns the parts on a device, with one copy for all of them."""
    if device.type == "cpu" or not parts:
        return parts
    return torch.cat(list(parts)).to(device).split([len(part) for part in parts])

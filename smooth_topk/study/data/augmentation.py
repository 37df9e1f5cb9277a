"""The order and the random numbers of an epoch, and flips, crops and normalisation of whole batches.

Everything random about epoch e of a run is drawn here, at once, from (seed, e), and belongs to a place in the global
order. A resumed run, or one of several processes, takes its places from the same plan and sees the same pixels.
"""

import hashlib
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

PADDING = 4  # pixels on every side, section 5.1
DRAW_BITS = 31  # crop positions are drawn as integers of so many bits and scaled exactly to the range an image allows


@dataclass(frozen=True)
class EpochPlan:
    """What happens at every place of the global order of one epoch; all fields have the shape (places,).

    Attributes:
        order: the training image at each place of the epoch.
        flips: whether it is mirrored.
        draws_down: how far down the crop begins, as an integer below 2³¹ for `scaled`.
        draws_right: the same to the right.
    """

    order: Tensor
    flips: Tensor
    draws_down: Tensor
    draws_right: Tensor

    def at(self, places: slice) -> "EpochPlan":
        """Returns the plan of some places only."""
        return EpochPlan(self.order[places], self.flips[places], self.draws_down[places], self.draws_right[places])


def plan_epoch(images: int, seed: int, epoch: int) -> EpochPlan:
    """Draws the plan of one epoch over so many training images, a pure function of its arguments.

    Example:
        >>> torch.equal(plan_epoch(9, seed=1, epoch=2).order, plan_epoch(9, seed=1, epoch=2).order)
        True
    """
    random = torch.Generator().manual_seed(derived_seed(seed, "epoch", epoch))
    return EpochPlan(
        order=torch.randperm(images, generator=random),
        flips=torch.randint(2, (images,), generator=random, dtype=torch.bool),
        draws_down=torch.randint(2**DRAW_BITS, (images,), generator=random),
        draws_right=torch.randint(2**DRAW_BITS, (images,), generator=random),
    )


def scaled(draws: Tensor, choices: int) -> Tensor:
    """Turns draws into integers from 0 to choices - 1, all equally likely."""
    return (draws * choices) >> DRAW_BITS


def derived_seed(*parts: int | str) -> int:
    """Mixes its parts into 32 bits, all that torch's CPU generator uses: seeds 0, 1, 2 share no stream of numbers."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4])


def flip_and_crop(images: Tensor, flips: Tensor, down: Tensor, right: Tensor, padding: int = PADDING) -> Tensor:
    """Mirrors some images and moves every one by up to `padding` pixels; black comes in at the edges.

    Args:
        images: (N, C, H, W).
        flips: (N,) whether an image is mirrored.
        down: (N,) first row of the crop in the padded image, from 0 to 2 · padding.
        right: (N,) first column of the crop there.

    Returns:
        (N, C, H, W): each image padded, cropped back to its size, then mirrored.
    """
    height, width = images.shape[-2:]
    padded = F.pad(images, (padding,) * 4)
    # Every crop of every image as a view, (N, C, crops down, crops right, H, W): only the chosen ones are copied.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    cropped = windows[torch.arange(len(images), device=images.device), :, down, right]
    return torch.where(flips[:, None, None, None], cropped.flip(-1), cropped)


def normalise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Returns (pixel / 255 - mean) / std per channel as float32 for uint8 images (..., C, H, W)."""
    shift, scale = _shift_and_scale(mean, std, images.device)
    return torch.addcmul(shift, images.to(torch.float32), scale)


@cache
def _shift_and_scale(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns both as (C, 1, 1); they stay on the device, as a copy for every batch would be a wait for every batch."""
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=device)[:, None, None]
    return shift, torch.tensor([1 / (255 * s) for s in std], device=device)[:, None, None]

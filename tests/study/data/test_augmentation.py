"""Flips, crops and normalisation against a slow and obvious reference."""

import pytest
import torch

from smooth_topk.study.data.augmentation import (
    DRAW_BITS,
    derived_seed,
    flip_and_crop,
    normalise,
    plan_epoch,
    scaled,
)

# One float32 rounding of each of (pixel / 255 - mean) / std; the values are below 10.
ROUNDING = 1e-5
# 9,000 draws over 9 values: 1,000 each with a standard deviation of 30; this is five of them.
SAMPLING = 150


def reference(image, flip, down, right, padding):
    """Pads one image with black, cuts the crop out, mirrors it column by column."""
    channels, height, width = image.shape
    padded = torch.zeros(channels, height + 2 * padding, width + 2 * padding, dtype=image.dtype)
    padded[:, padding : padding + height, padding : padding + width] = image
    crop = padded[:, down : down + height, right : right + width]
    return crop[:, :, list(range(width - 1, -1, -1))] if flip else crop


@pytest.mark.parametrize(("height", "width", "padding"), [(32, 32, 4), (5, 7, 2)])
def test_a_batch_is_cropped_and_mirrored_image_by_image(height, width, padding):
    random = torch.Generator().manual_seed(0)
    images = torch.randint(256, (64, 3, height, width), generator=random, dtype=torch.uint8)
    flips = torch.randint(2, (64,), generator=random, dtype=torch.bool)
    down, right = torch.randint(2 * padding + 1, (2, 64), generator=random)
    expected = [
        reference(image, flip, d, r, padding)
        for image, flip, d, r in zip(images, flips, down.tolist(), right.tolist(), strict=True)
    ]
    assert torch.equal(flip_and_crop(images, flips, down, right, padding), torch.stack(expected))


def test_the_centre_crop_without_a_flip_is_the_image_itself():
    images = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8)
    centre = torch.full((8,), 4)
    assert torch.equal(flip_and_crop(images, torch.zeros(8, dtype=torch.bool), centre, centre), images)


def test_normalised_pixels_are_centred_and_scaled_per_channel():
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(2, 3, 1, 1)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    expected = (images.double() / 255 - torch.tensor(mean).double()[:, None, None]) / torch.tensor(std).double()[
        :, None, None
    ]
    assert torch.allclose(normalise(images, mean, std).double(), expected, rtol=0, atol=ROUNDING)
    ten_crops = images[:, None].repeat(1, 10, 1, 1, 1)
    assert torch.equal(normalise(ten_crops, mean, std)[:, 3], normalise(images, mean, std))


def test_draws_reach_every_crop_equally_often_and_none_beyond():
    draws = plan_epoch(9_000, seed=0, epoch=0).draws_down
    counts = scaled(draws, 9).bincount(minlength=9)
    assert len(counts) == 9
    assert (counts - 1_000).abs().max() < SAMPLING
    assert scaled(torch.tensor([0, 2**DRAW_BITS - 1]), 277).tolist() == [0, 276]


def test_the_plans_of_neighbouring_epochs_and_seeds_have_nothing_in_common():
    plans = [plan_epoch(1_000, seed, epoch).order for seed in range(3) for epoch in range(3)]
    for number, first in enumerate(plans):
        assert sorted(first.tolist()) == list(range(1_000))
        assert all((first == second).sum() < 20 for second in plans[number + 1 :])  # one in place is the expectation


def test_derived_seeds_differ_for_different_parts():
    seeds = {derived_seed(seed, "epoch", epoch) for seed in range(30) for epoch in range(30)}
    assert len(seeds) == 900
    assert all(0 <= seed < 2**32 for seed in seeds)

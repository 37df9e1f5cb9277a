"""Built-in synthetic images: 100 fine classes in 20 superclasses of 5, drawn by code from a seed, no download.

A superclass is a shape with a pattern, as in "striped star": easy to tell from the others. Its five fine classes differ
in hue alone, and every image's hue wanders around that of its class, so neighbours are often confused, as the fine
labels of one coarse class of CIFAR-100 are. Position, size, tilt, shade, background and pixel noise vary freely.

Fine classes are numbered in alphabetical order of names such as "blue striped star", as those of CIFAR-100 are. A block
of five consecutive numbers is thus five shapes of one hue, not a superclass: both noise groupings exist here too.
"""

import math
from functools import cache
from itertools import product

import torch
from torch import Tensor

from smooth_topk.study.data.sources import ArraySource

HUES = {"teal": 180, "blue": 225, "violet": 270, "magenta": 315, "red": 360}  # degrees
HUE_WANDERS = 17.0  # standard deviation in degrees: about one image in six looks like the neighbouring hue
SHAPES = ("cross", "disc", "square", "star", "triangle")
PATTERNS = ("checked", "plain", "spotted", "striped")
SUPERCLASSES = tuple(f"{pattern} {shape}" for pattern, shape in product(PATTERNS, SHAPES))
CLASSES = tuple(sorted(f"{hue} {superclass}" for hue, superclass in product(HUES, SUPERCLASSES)))
CLASS_TO_SUPERCLASS = tuple(SUPERCLASSES.index(name.split(" ", 1)[1]) for name in CLASSES)

SIZE = 32
IMAGES = {"train": 10_500, "test": 2_000}  # the training part includes what is held out for validation
MEAN, STD = (0.666, 0.632, 0.698), (0.209, 0.227, 0.178)  # per channel, of the training images
PIXEL_NOISE = 0.06
CHUNK = 1_000  # images drawn at once: the intermediate planes stay within the processor's cache and little memory


def load() -> ArraySource:
    """Returns the synthetic data as a source: 10,000 images to train with, 500 held out, 2,000 to test with."""
    train, test = synthetic_images("train"), synthetic_images("test")
    return ArraySource(
        images={"train": train[0], "test": test[0]},
        labels={"train": train[1], "test": test[1]},
        class_names=CLASSES,
        class_to_superclass=CLASS_TO_SUPERCLASS,
        held_out_per_class=5,
        mean=MEAN,
        std=STD,
    )


@cache
def synthetic_images(split: str) -> tuple[Tensor, Tensor]:
    """Draws one split, the same on every call; kept in memory for the life of the process.

    Args:
        split: "train" or "test".

    Returns:
        images (N, 3, 32, 32) uint8 and fine labels (N,) int64, balanced and in random order.
    """
    random = torch.Generator().manual_seed(20 if split == "train" else 18)
    labels = torch.arange(IMAGES[split]) % len(CLASSES)
    labels = labels[torch.randperm(len(labels), generator=random)]
    return torch.cat([draw_images(chunk, random) for chunk in labels.split(CHUNK)]), labels


def draw_images(labels: Tensor, random: torch.Generator) -> Tensor:
    """Draws one image (3, 32, 32) uint8 for every label (N,)."""
    count = len(labels)
    names = [CLASSES[label].split() for label in labels.tolist()]
    hue = torch.tensor([float(HUES[name[0]]) for name in names]) + HUE_WANDERS * _normal(random, count)
    pattern = torch.tensor([PATTERNS.index(name[1]) for name in names])
    shape = torch.tensor([SHAPES.index(name[2]) for name in names])

    x, y, radius = _place(random, count)
    inside = torch.sigmoid(-1.8 * _signed_distance(shape, x, y, radius))  # antialiased over about two pixels
    ink = _pattern(pattern, x, y, random)  # 1 in the figure's main colour, 0 in its dark shade

    bright = _colour(hue, _uniform(random, 0.6, 0.95, count), _uniform(random, 0.8, 1.0, count))
    dark = _colour(hue, _uniform(random, 0.6, 0.95, count), _uniform(random, 0.25, 0.4, count))
    figure = dark + (bright - dark) * ink.unsqueeze(1)
    image = figure * inside.unsqueeze(1) + _background(random, count) * (1 - inside.unsqueeze(1))
    image += PIXEL_NOISE * _normal(random, count, 3, SIZE, SIZE)
    return (255 * image.clamp(0, 1)).round().to(torch.uint8)


def _place(random: torch.Generator, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns every pixel's coordinates (N, 32, 32) in its figure's own frame, and the figure's radius (N, 1, 1)."""
    axis = torch.arange(SIZE, dtype=torch.float32) - (SIZE - 1) / 2
    x = axis[None, None, :] - _uniform(random, -4, 4, count, 1, 1)
    y = axis[None, :, None] - _uniform(random, -4, 4, count, 1, 1)
    tilt = _uniform(random, -0.25, 0.25, count, 1, 1)
    return x * tilt.cos() + y * tilt.sin(), y * tilt.cos() - x * tilt.sin(), _uniform(random, 9, 12.5, count, 1, 1)


def _signed_distance(shape: Tensor, x: Tensor, y: Tensor, radius: Tensor) -> Tensor:
    """Returns about how many pixels a point lies outside its figure, (N, 32, 32); negative inside."""
    across, down = x.abs(), y.abs()
    length, angle = torch.hypot(x, y), torch.atan2(x, -y)  # the angle is 0 at the top: figures look the same mirrored
    bar = 0.34 * radius
    fifth = math.pi / 5
    to_spike = (torch.remainder(angle + fifth, 2 * fifth) - fifth).abs() / fifth  # 0 at a spike, 1 in a notch
    distances = {
        "disc": length - 0.92 * radius,
        "square": torch.maximum(across, down) - 0.8 * radius,
        "triangle": torch.maximum(0.87 * across - 0.5 * y, y) - 0.58 * radius,
        "star": length - radius * (1.15 - 0.75 * to_spike.sqrt()),
        "cross": torch.minimum(torch.maximum(across - bar, down - radius), torch.maximum(across - radius, down - bar)),
    }
    return torch.stack([distances[name] for name in SHAPES])[shape, torch.arange(len(shape))]


def _pattern(pattern: Tensor, x: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    """Returns the share (N, 32, 32) of the bright colour at every pixel."""
    count = len(pattern)
    pitch = 2 * math.pi / _uniform(random, 5.0, 6.5, count, 1, 1)
    waves_x = torch.sin(pitch * x + _uniform(random, 0, 2 * math.pi, count, 1, 1))
    waves_y = torch.sin(pitch * y + _uniform(random, 0, 2 * math.pi, count, 1, 1))
    sharp = 4.0
    patterns = {
        "plain": torch.ones_like(x),
        "striped": torch.sigmoid(sharp * waves_y),
        "checked": torch.sigmoid(2 * sharp * waves_x * waves_y),
        "spotted": torch.sigmoid(sharp * (0.7 - waves_x - waves_y)),
    }
    return torch.stack([patterns[name] for name in PATTERNS])[pattern, torch.arange(count)]


def _background(random: torch.Generator, count: int) -> Tensor:
    """Returns soft light backgrounds (N, 3, 32, 32): one pale hue fading into another."""
    corners = torch.stack(
        [
            _colour(_uniform(random, 0, 360, count), _uniform(random, 0, 0.3, count), _uniform(random, 0.6, 1, count))
            for _ in range(2)
        ]
    )
    direction = _uniform(random, 0, 2 * math.pi, count, 1, 1, 1)
    axis = torch.linspace(-0.5, 0.5, SIZE)
    blend = 0.5 + 0.7 * (direction.cos() * axis[None, None, None, :] + direction.sin() * axis[None, None, :, None])
    return corners[0] + (corners[1] - corners[0]) * blend


def _colour(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Returns the red, green and blue (N, 3, 1, 1) of a hue in degrees, a saturation and a value, each (N,)."""
    sextant = torch.stack([(hue / 60 + offset) % 6 for offset in (5, 3, 1)], dim=1)
    fade = torch.minimum(sextant, 4 - sextant).clamp(0, 1)
    return (value[:, None] * (1 - saturation[:, None] * fade))[:, :, None, None]


def _normal(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=random)


def _uniform(random: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=random)

"""Constructed data with many classes: hierarchical Gaussian classes whose neighbours overlap. It is no real data.

A class is a normal distribution around a centre in 64 dimensions. Centres are drawn as a tree: ten classes around each
superclass, ten superclasses around each family. Classes of one superclass overlap strongly, those of one family less,
and others hardly, so that a prediction of five classes is worth more than one of a single class. Since the centres are
known, so is the best possible accuracy, that of the nearest centres (`best_accuracy`): about 58 % for the first class
and 90 % for the first five with 1,000 classes, 56 % and 87 % with 10,000. The spreads were chosen for these numbers.

    source = load(1_000)      # or 10_000; the same features on every machine and every call

Everything is drawn from a seed with torch's generator on the CPU. Memory is that of the arrays, 17 MB for 1,000 classes
and 69 MB for 10,000, and one chunk of samples more while they are drawn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from smooth_topk.study.data.augmentation import EpochPlan
from smooth_topk.study.data.sources import ArraySource

FEATURES = 64
BRANCHES = 10  # classes per superclass, and superclasses per family
FAMILY_SPREAD, SUPERCLASS_SPREAD, CLASS_SPREAD = 0.5, 0.35, 0.25  # of centres around their parent, per dimension
SAMPLE_SPREAD = 1.0  # of samples around their class
SAMPLES = {1_000: (50, 5, 10), 10_000: (20, 2, 5)}  # per class: to train with, held out for validation, to test with
CHUNK = 1 << 16  # samples drawn at once


@dataclass(frozen=True)
class ConstructedSource(ArraySource):
    """Features instead of pixels: `images` are (N, 64) float32, with a standard deviation near one.

    Attributes:
        centres: (C, 64) float32, the mean of every class.
    """

    centres: Tensor = field(default_factory=lambda: torch.empty(0))
    evaluation_batch: int = 1_000

    def augmented(self, images: Tensor, plan: EpochPlan) -> Tensor:
        """There is nothing to mirror or to crop: every epoch sees the same numbers."""
        return images

    def normalised(self, images: Tensor) -> Tensor:
        """Returns the features as they are."""
        return images


@cache
def load(classes: int = 1_000, *, seed: int = 0, features: int = FEATURES) -> ConstructedSource:
    """Returns the constructed data with 1,000 or 10,000 classes; a second call in a process is free.

    Args:
        classes: 1,000 or 10,000.
        seed: of the centres and of the samples; other seeds are other problems of the same kind.
        features: dimensions.

    Raises:
        ValueError: for another number of classes.
    """
    if classes not in SAMPLES:
        raise ValueError(f"Constructed data has 1,000 or 10,000 classes, got {classes!r}.")
    train, held_out, test = SAMPLES[classes]
    return construct(classes, train=train + held_out, held_out=held_out, test=test, seed=seed, features=features)


def construct(
    classes: int, *, train: int, held_out: int, test: int, seed: int = 0, features: int = FEATURES
) -> ConstructedSource:
    """Draws a problem of any size.

    Args:
        classes: a multiple of 100, so that the tree is full.
        train: samples per class of the training part, `held_out` of them for validation.
        held_out: samples per class that leave the training part for validation.
        test: samples per class of the test part.
        seed: of everything that is drawn.
        features: dimensions.

    Returns:
        A source whose classes are numbered by superclass: class 10 g + i belongs to superclass g.
    """
    if classes < 1 or classes % BRANCHES**2:
        raise ValueError(f"classes must be a positive multiple of {BRANCHES**2}, got {classes!r}.")
    if not 0 <= held_out < train:
        raise ValueError(f"held_out must be at least 0 and below train={train}, got held_out={held_out!r}.")
    generator = torch.Generator().manual_seed(seed)
    centres = _draw_centres(classes, features, generator)
    parts = {part: _draw_samples(centres, amount, generator) for part, amount in (("train", train), ("test", test))}
    return ConstructedSource(
        images={part: samples for part, (samples, _) in parts.items()},
        labels={part: labels for part, (_, labels) in parts.items()},
        class_names=tuple(f"constructed {number}" for number in range(classes)),
        class_to_superclass=tuple(number // BRANCHES for number in range(classes)),
        held_out_per_class=held_out,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        centres=centres,
    )


def best_accuracy(source: ConstructedSource, ks: tuple[int, ...] = (1, 5, 10), part: str = "test") -> dict[int, float]:
    """Returns the top-k accuracies of the k nearest centres, which no classifier can exceed but by luck.

    All classes are equally frequent and equally spread, so that the most probable classes are those with the nearest
    centres.
    """
    hits = dict.fromkeys(ks, 0)
    samples, labels = source.images[part], source.labels[part]
    for chunk in _chunks(len(labels), CHUNK // 32):
        distances = torch.cdist(samples[chunk], source.centres)
        nearer = (distances < distances.gather(1, labels[chunk][:, None])).sum(1)
        for k in ks:
            hits[k] += int((nearer < k).sum())
    return {k: count / len(labels) for k, count in hits.items()}


def _draw_centres(classes: int, features: int, generator: torch.Generator) -> Tensor:
    """Returns the centres (C, features) of all classes, divided like the samples by their standard deviation."""
    centres = torch.zeros(1, features)
    for branches, spread in (
        (classes // BRANCHES**2, FAMILY_SPREAD),
        (BRANCHES, SUPERCLASS_SPREAD),
        (BRANCHES, CLASS_SPREAD),
    ):
        centres = centres.repeat_interleave(branches, 0)
        centres = centres + spread * torch.randn(centres.shape, generator=generator)
    return centres / _standard_deviation()


def _draw_samples(centres: Tensor, per_class: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns samples (N, features) and labels (N,), every class `per_class` times, in random order."""
    amount = per_class * len(centres)
    labels = torch.arange(amount) % len(centres)
    labels = labels[torch.randperm(amount, generator=generator)]
    samples = torch.empty(amount, centres.shape[1])
    for chunk in _chunks(amount, CHUNK):
        noise = torch.randn(samples[chunk].shape, generator=generator)
        samples[chunk] = centres[labels[chunk]] + (SAMPLE_SPREAD / _standard_deviation()) * noise
    return samples, labels


def _standard_deviation() -> float:
    """Of one feature over all classes and samples."""
    spreads = (FAMILY_SPREAD, SUPERCLASS_SPREAD, CLASS_SPREAD, SAMPLE_SPREAD)
    return sum(spread**2 for spread in spreads) ** 0.5


def _chunks(amount: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, amount)) for start in range(0, amount, size))

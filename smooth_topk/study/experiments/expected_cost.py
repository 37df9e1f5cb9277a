"""What a run will cost, before it runs: RunConfig in, seconds out. An estimate, and the assumption behind it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from smooth_topk.study.experiments.run_config import FEATURES, RunConfig

SPLITS = {  # training, validation and test images
    "synthetic": (10_000, 500, 2_000),
    "cifar100_features": (45_000, 5_000, 10_000),
    "constructed_1000": (50_000, 5_000, 10_000),
    "constructed_10000": (200_000, 20_000, 50_000),
    "cifar100": (45_000, 5_000, 10_000),
    "imagenet": (1_231_167, 50_000, 50_000),
}
MULTIPLY_ADDS = {  # millions per image, forward; 100 classes at 32 x 32, ResNet-18 1,000 classes at 224 x 224
    "linear": 0.0128,
    "head": 0.117,
    "small": 6.6,
    "small_wide": 24.3,
    "densenet40_12": 264.9,
    "densenet40_40": 2_662.9,
    "densenet40_12_bc": 72.4,
    "densenet40_40_bc": 798.9,
    "resnet18": 1_814.1,
}
TRAINING_FACTOR = 3  # a backward pass costs about two forward passes
# Millions of multiply-adds a second, forward and backward. One CPU thread: measured, the best of several steps.
CPU_RATES = {
    "linear": 5_000,
    "head": 30_000,  # overhead of small steps included
    "small": 20_000,
    "small_wide": 20_000,
    "densenet40_12": 14_000,
    "densenet40_40": 22_000,
    "densenet40_12_bc": 11_000,
    "densenet40_40_bc": 22_000,
    "resnet18": 23_000,
}
# One GPU: the paper's day and a half on two Titan Xp for ResNet-18 on ImageNet (section 5.2) is 3.1e12 per second and
# card. DenseNets and small nets move more memory per multiply-add: a third and a tenth of that are assumed.
GPU_RATES = {name: 1_000_000 for name in MULTIPLY_ADDS} | {
    "resnet18": 3_100_000,
    "small": 300_000,
    "small_wide": 300_000,
    "linear": 100_000,
    "head": 100_000,
}
ASSUMPTIONS = {
    "cpu": "one thread of a server processor of the 2020s with nothing else to do",
    "gpu": "one Titan Xp as in the paper (ResNet-18 by its section 5.2; other networks assumed); not measured here",
}


class StepKind(NamedTuple):
    """What decides how long a training step takes."""

    dataset: str
    model: str
    batch_size: int
    precision: str


class StepTime(NamedTuple):
    """Measured on a device: seconds of one training step, and of one image in a forward pass without gradients."""

    step: float
    evaluated_image: float


def step_kind(config: RunConfig) -> StepKind:
    """Returns the kind of steps that a run makes; runs with the same kind take the same time per step."""
    return StepKind(config.dataset, config.model, config.batch_size, config.precision)


def expected_seconds(
    config: RunConfig, device: str = "cpu", measured: Mapping[StepKind, StepTime] | None = None
) -> float:
    """Estimates the duration of a run with one process, from measured steps or with ASSUMPTIONS[device] given.

    Args:
        device: "cpu" or "gpu", whose assumption holds where this kind of step was not measured.
        measured: what `measure.step_times` found.

    Example:
        >>> round(expected_seconds(RunConfig(dataset="imagenet", model="resnet18", epochs=120), "gpu") / 3600)  # hours
        73
    """
    if device not in ASSUMPTIONS:
        raise ValueError(f"device must be cpu or gpu, got {device!r}.")
    if measured and (found := measured.get(step_kind(config))):
        training, evaluated = images_of(config)
        return training / config.batch_size * found.step + evaluated * found.evaluated_image
    rate = (CPU_RATES if device == "cpu" else GPU_RATES)[config.model]
    return images_in_forward_passes(config) * _multiply_adds(config) / rate


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Returns when the last run ends if every free worker takes the longest run that is left.

    Example:
        >>> makespan([2.0, 3.0, 4.0], workers=2)
        5.0
    """
    free_at = [0.0] * max(1, min(workers, len(seconds)))
    for duration in sorted(seconds, reverse=True):
        free_at.sort()
        free_at[0] += duration
    return max(free_at)


def images_in_forward_passes(config: RunConfig) -> float:
    """Returns how many images go forward through the network, an image trained on counted three times."""
    training, evaluated = images_of(config)
    return TRAINING_FACTOR * training + evaluated


def images_of(config: RunConfig) -> tuple[float, float]:
    """Returns how many images a run trains on and evaluates, over all epochs; each of ten crops counts."""
    whole, validation, test = SPLITS[config.dataset]
    share = 1.0 if config.train_size is None else config.train_size
    training = share * whole if isinstance(share, float) else share
    return config.epochs * training, config.epochs * validation + test * (10 if config.ten_crop else 1)


def _multiply_adds(config: RunConfig) -> float:
    if config.dataset.startswith("constructed"):  # a linear classifier costs in proportion to features and classes
        classes = int(config.dataset.partition("_")[2])
        return MULTIPLY_ADDS[config.model] * classes / 100 * FEATURES[config.dataset] / FEATURES["cifar100_features"]
    # Convolutions cost in proportion to the pixels.
    usual, given = (224 if config.model == "resnet18" else 32), (224 if config.dataset == "imagenet" else 32)
    return MULTIPLY_ADDS[config.model] * (given / usual) ** 2

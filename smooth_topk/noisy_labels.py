"""Label noise, balanced subsets and hold-out sets: labels (N,) in, labels or indices out (section 5).

Pure index arithmetic, no images. Every draw is a function of the seed and the position of the sample alone, computed
in 64-bit integers: the same on every machine, for arrays and tensors, whatever the batches or the order of calls.
"""

import operator

import torch
from torch import Tensor

from .targets import real_number, whole_number

# Superclass of each of the 100 fine labels of CIFAR-100, in the data set's own order of both.
CIFAR100_SUPERCLASSES = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7),
    *(6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10),
    *(16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16),
    *(12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)
# Blocks of five consecutive labels: the grouping of the paper's public code (book/errata.md).
INDEX_BLOCKS = tuple(label // 5 for label in range(100))

# Independent streams of random numbers for the same seed.
REPLACED, REPLACEMENT, SUBSET, HELD_OUT = range(4)


def corrupt_within_superclass(labels, noise_level: float, *, groups, seed: int):
    """With probability `noise_level`, replace a label by one drawn uniformly from its group (section 5.1).

    The new label may be the old one. For one seed the noise is nested: a label that is replaced at one level is
    replaced by the same label at every higher level.

    Args:
        labels: (N,) integers, array or tensor.
        noise_level: the paper's p, between 0 and 1.
        groups: group of each class, for example `CIFAR100_SUPERCLASSES` (the paper's text) or `INDEX_BLOCKS`.
        seed: any integer.

    Returns:
        (N,) labels, of the type and dtype that came in.

    Example:
        >>> labels = torch.tensor([0, 1, 2, 3, 4, 5])
        >>> corrupt_within_superclass(labels, 1.0, groups=(0, 0, 0, 1, 1, 1), seed=0)
        tensor([2, 1, 1, 5, 3, 4])

    Explained in notebooks/09_noisy_labels_study.
    """
    if not 0 <= real_number("noise_level", noise_level) <= 1:
        raise ValueError(f"noise_level must be between 0 and 1, got {noise_level!r}.")
    clean, table = _integers(labels, "labels"), _integers(groups, "groups")
    if len(clean) and not 0 <= clean.min() <= clean.max() < len(table):
        raise ValueError(
            f"groups must have an entry for every label, got {len(table)} groups "
            f"for labels from {clean.min()} to {clean.max()}."
        )
    _, group, size = table.unique(return_inverse=True, return_counts=True)
    members = group.argsort(stable=True)  # classes, group after group
    first = size.cumsum(0) - size
    draw = (_uniform(seed, REPLACEMENT, len(clean)) * size[group[clean]]).long()
    noisy = members[first[group[clean]] + draw]
    return _like(torch.where(_uniform(seed, REPLACED, len(clean)) < noise_level, noisy, clean), labels, keep_dtype=True)


def balanced_subset(labels, fraction_or_count: float | int, *, seed: int):
    """Indices of a subset with the same number of samples of every class (section 5.2).

    For one seed the subsets are nested: 5 % is inside 10 %, which is inside 25 %.

    Args:
        labels: (N,) integers, array or tensor.
        fraction_or_count: a float in (0, 1], or an integer, the number of samples, which must be a multiple of the
            number of classes. The fraction 1.0 takes every sample, balanced or not, as in the paper.
        seed: any integer.

    Returns:
        Ascending indices, array or tensor as `labels`.

    Example:
        >>> balanced_subset(torch.tensor([0, 1, 0, 1, 0, 1, 0, 1]), 0.5, seed=0)
        tensor([0, 2, 3, 7])

    Explained in notebooks/10_small_data_study.
    """
    values = _integers(labels, "labels")
    fraction, count = _fraction_or_count(fraction_or_count)
    if fraction == 1:
        return _like(torch.arange(len(values), device="cpu"), labels)
    rank, smallest, classes = _rank_within_class(values, seed, SUBSET)
    if fraction is not None:
        if not 0 < fraction <= 1:
            raise ValueError(f"A fraction must be above 0 and at most 1, got {fraction_or_count!r}.")
        per_class = round(fraction * len(values) / max(classes, 1))
    else:
        per_class, rest = divmod(count, max(classes, 1))
        if rest:
            raise ValueError(f"A count must be a multiple of the {classes} classes, got {fraction_or_count!r}.")
    if not 1 <= per_class <= smallest:
        raise ValueError(
            f"A balanced subset has between 1 and {smallest} samples of each class, the size of the smallest, "
            f"got {fraction_or_count!r}, which asks for {per_class}."
        )
    return _like((rank < per_class).nonzero().squeeze(1), labels)


def hold_out(labels, per_class: int, *, seed: int):
    """Split the samples into those kept and a balanced hold-out set with `per_class` samples of every class.

    Returns:
        (kept, held out): ascending indices, arrays or tensors as `labels`.

    Example:
        >>> hold_out(torch.tensor([0, 1, 0, 1, 0, 1]), 1, seed=0)
        (tensor([0, 3, 4, 5]), tensor([1, 2]))
    """
    values = _integers(labels, "labels")
    rank, smallest, _ = _rank_within_class(values, seed, HELD_OUT)
    per_class = whole_number("per_class", per_class)
    if not 0 <= per_class <= smallest:
        raise ValueError(
            f"per_class must be an integer between 0 and {smallest}, the size of the smallest class, got {per_class!r}."
        )
    held_out = rank < per_class
    return _like((~held_out).nonzero().squeeze(1), labels), _like(held_out.nonzero().squeeze(1), labels)


def _fraction_or_count(value) -> tuple[float | None, int]:
    """An integer of any library is a count; any other number is a fraction, and then the count is zero."""
    try:
        return None, operator.index(value)
    except TypeError:
        return real_number("fraction_or_count", value), 0


def _rank_within_class(labels: Tensor, seed: int, stream: int) -> tuple[Tensor, int, int]:
    """Place (N,) of each sample in a random order of its class; the size of the smallest class; their number."""
    _, group, size = labels.unique(return_inverse=True, return_counts=True)
    order = _uniform(seed, stream, len(labels)).argsort(stable=True)
    order = order[group[order].argsort(stable=True)]  # class after class, each in random order
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device="cpu") - (size.cumsum(0) - size)[group[order]]
    return rank, int(size.min()) if len(size) else 0, len(size)


def _uniform(seed: int, stream: int, count: int) -> Tensor:
    """`count` float64 numbers in [0, 1): number i is a function of seed, stream and i (the SplitMix64 generator)."""
    start = _mixed(torch.tensor(_signed(whole_number("seed", seed) * 4 + stream), device="cpu"))
    state = start + torch.arange(1, count + 1, device="cpu") * _signed(0x9E3779B97F4A7C15)
    return (_mixed(state) >> 11 & (1 << 53) - 1).double() * 2.0**-53


def _mixed(z: Tensor) -> Tensor:
    """The finaliser of SplitMix64; int64 products wrap around, and the masks make the shifts unsigned."""
    z = (z ^ (z >> 30 & (1 << 34) - 1)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> 27 & (1 << 37) - 1)) * _signed(0x94D049BB133111EB)
    return z ^ (z >> 31 & (1 << 33) - 1)


def _signed(value: int) -> int:
    """The 64-bit two's complement of any integer."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _integers(values, name: str) -> Tensor:
    """A one-dimensional int64 copy on the CPU."""
    tensor = values.detach().cpu() if isinstance(values, Tensor) else torch.tensor(values, device="cpu")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {tensor.dtype}.")
    if tensor.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got shape {tuple(tensor.shape)}.")
    return tensor.long()


def _like(result: Tensor, given, *, keep_dtype: bool = False):
    """`result` as a tensor on the device of `given` if that is a tensor, else as an array."""
    if isinstance(given, Tensor):
        return result.to(given.device, given.dtype if keep_dtype else result.dtype)
    array = result.numpy()
    return array.astype(given.dtype) if keep_dtype and hasattr(given, "dtype") else array

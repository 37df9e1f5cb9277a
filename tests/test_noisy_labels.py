"""Noise within groups, balanced subsets and hold-out sets: exact counts, nesting, and independence of containers."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smooth_topk import balanced_subset, corrupt_within_superclass, hold_out
from smooth_topk.noisy_labels import CIFAR100_SUPERCLASSES, INDEX_BLOCKS, _uniform

LABELS = torch.arange(100).repeat(500)  # the size of CIFAR-100's training set
FOUR_SIGMA = 4  # a share drawn n times is within four standard deviations but once in 16,000 seeds; the seed is fixed


def corrupted(noise_level, labels=LABELS, groups=CIFAR100_SUPERCLASSES, seed=0):
    return corrupt_within_superclass(labels, noise_level, groups=groups, seed=seed)


def test_the_superclasses_are_twenty_of_five_and_hold_the_examples_of_the_paper():
    assert len(CIFAR100_SUPERCLASSES) == len(INDEX_BLOCKS) == 100
    for groups in (CIFAR100_SUPERCLASSES, INDEX_BLOCKS):
        assert np.bincount(groups).tolist() == [5] * 20
    people = [2, 11, 35, 46, 98]  # baby, boy, girl, man, woman
    assert len({CIFAR100_SUPERCLASSES[label] for label in people}) == 1
    assert len({INDEX_BLOCKS[label] for label in people}) == 5


@pytest.mark.parametrize("groups", [CIFAR100_SUPERCLASSES, INDEX_BLOCKS])
def test_noise_stays_in_the_group(groups):
    table = torch.tensor(groups)
    noisy = corrupted(1.0, groups=groups)
    assert torch.equal(table[noisy], table[LABELS])
    assert not torch.equal(noisy, LABELS)


@pytest.mark.parametrize("noise_level", [0.2, 0.6, 1.0])
def test_a_label_changes_with_probability_four_fifths_of_the_noise_level(noise_level):
    changed = (corrupted(noise_level) != LABELS).double().mean().item()
    expected = noise_level * 4 / 5  # the new label may be the old one
    assert abs(changed - expected) < FOUR_SIGMA * (expected * (1 - expected) / len(LABELS)) ** 0.5


def test_complete_noise_is_uniform_within_the_group():
    noisy = corrupted(1.0)
    baby, people = 2, [2, 11, 35, 46, 98]
    shares = torch.bincount(noisy[baby == LABELS], minlength=100)[people] / 500
    assert (shares - 0.2).abs().max() < FOUR_SIGMA * (0.2 * 0.8 / 500) ** 0.5


def test_no_noise_changes_nothing():
    assert torch.equal(corrupted(0.0), LABELS)


def test_noise_is_nested_in_its_level():
    low, high = corrupted(0.3), corrupted(0.7)
    replaced = low != LABELS
    assert torch.equal(low[replaced], high[replaced])
    assert (high != LABELS).sum() > replaced.sum()


def test_groups_may_have_any_names_and_sizes():
    labels = torch.tensor([0, 1, 2, 3] * 200)
    noisy = corrupted(1.0, labels, groups=[7, -1, 7, 7])
    assert (noisy[labels == 1] == 1).all()
    assert set(noisy[labels == 0].tolist()) == {0, 2, 3}


def test_one_label_alone_and_no_label_at_all_may_be_noisy():
    assert corrupted(1.0, torch.tensor([3, 3]), groups=[0, 1, 2, 3]).tolist() == [3, 3]
    assert corrupted(1.0, torch.tensor([], dtype=torch.int64)).tolist() == []


def test_the_noise_of_a_sample_depends_on_its_position_and_the_seed_alone():
    assert torch.equal(corrupted(0.5, LABELS[:1000]), corrupted(0.5)[:1000])
    assert not torch.equal(corrupted(0.5, seed=1), corrupted(0.5))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_arrays_and_tensors_of_any_integer_dtype_get_the_same_result_in_their_own_type(dtype):
    array = LABELS.numpy()[:2000].astype(dtype)
    array.flags.writeable = False
    noisy = corrupted(0.5, array)
    assert isinstance(noisy, np.ndarray)
    assert noisy.dtype == dtype
    assert noisy.tolist() == corrupted(0.5, LABELS[:2000]).tolist()
    as_tensor = corrupted(0.5, torch.tensor(array))
    assert as_tensor.dtype == torch.tensor(array).dtype
    assert as_tensor.tolist() == noisy.tolist()

    assert isinstance(balanced_subset(array, 0.5, seed=0), np.ndarray)
    assert balanced_subset(array, 0.5, seed=0).tolist() == balanced_subset(torch.tensor(array), 0.5, seed=0).tolist()
    for ours, theirs in zip(hold_out(array, 2, seed=0), hold_out(torch.tensor(array), 2, seed=0), strict=True):
        assert isinstance(ours, np.ndarray)
        assert ours.tolist() == theirs.tolist()


def test_the_input_is_not_changed():
    labels = LABELS.clone()
    corrupted(1.0, labels)
    assert torch.equal(labels, LABELS)


@pytest.mark.parametrize(("fraction", "per_class"), [(0.05, 25), (0.1, 50), (0.25, 125), (0.5, 250)])
def test_a_fraction_has_the_same_number_of_every_class(fraction, per_class):
    subset = balanced_subset(LABELS, fraction, seed=3)
    assert torch.bincount(LABELS[subset]).tolist() == [per_class] * 100
    assert torch.equal(subset, subset.unique())
    assert torch.equal(subset, balanced_subset(LABELS, 100 * per_class, seed=3))


def test_a_subset_may_have_one_sample_per_class_and_a_data_set_one_class():
    assert torch.bincount(LABELS[balanced_subset(LABELS, 100, seed=0)]).tolist() == [1] * 100
    alone = torch.zeros(10, dtype=torch.int64)
    assert len(balanced_subset(alone, 0.5, seed=0)) == len(balanced_subset(alone, 5, seed=0)) == 5


def test_subsets_of_one_seed_are_nested_and_those_of_two_differ():
    subsets = [set(balanced_subset(LABELS, f, seed=0).tolist()) for f in (0.05, 0.1, 0.25, 0.5, 1.0)]
    for small, large in pairwise(subsets):
        assert small < large
    assert set(balanced_subset(LABELS, 0.05, seed=1).tolist()) != subsets[0]


def test_everything_keeps_the_proportions_of_the_classes():
    labels = torch.tensor([0, 0, 0, 1, 1])
    assert balanced_subset(labels, 1.0, seed=0).tolist() == [0, 1, 2, 3, 4]
    assert torch.bincount(labels[balanced_subset(labels, 0.8, seed=0)]).tolist() == [2, 2]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(0, 3), st.integers(-5, 2**80))
def test_a_hold_out_set_is_balanced_and_disjoint_from_what_is_kept(labels, per_class, seed):
    values = torch.tensor(labels)
    counts = torch.bincount(values)
    if per_class > counts[counts > 0].min():
        with pytest.raises(ValueError, match=f"got {per_class}"):
            hold_out(values, per_class, seed=seed)
        return
    kept, held_out = hold_out(values, per_class, seed=seed)
    assert sorted(kept.tolist() + held_out.tolist()) == list(range(len(labels)))
    assert torch.bincount(values[held_out], minlength=len(counts)).tolist() == [per_class * bool(c) for c in counts]


def test_the_numbers_are_those_of_splitmix64_in_python_integers():
    mask = (1 << 64) - 1

    def mix(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    for seed, stream in [(0, 0), (1, 3), (-7, 2), (2**70, 1)]:
        start = mix(seed * 4 + stream & mask)
        numbers = [(mix(start + i * 0x9E3779B97F4A7C15 & mask) >> 11) * 2.0**-53 for i in range(1, 101)]
        assert _uniform(seed, stream, 100).tolist() == numbers


@pytest.mark.parametrize(
    ("call", "error", "value"),
    [
        (lambda: corrupted(1.01), ValueError, "1.01"),
        (lambda: corrupted(-0.01), ValueError, "-0.01"),
        (lambda: corrupted(float("nan")), ValueError, "nan"),
        (lambda: corrupted("0.5"), TypeError, "'0.5'"),
        (lambda: corrupted(torch.tensor([0.1, 0.2])), TypeError, "tensor"),
        (lambda: corrupted(0.5, groups=(0, 0, 1)), ValueError, "3 groups .* 0 to 99"),
        (lambda: corrupted(0.5, torch.tensor([-1])), ValueError, "-1"),
        (lambda: corrupted(0.5, torch.tensor([100])), ValueError, "100 to 100"),
        (lambda: corrupted(0.5, LABELS.float()), TypeError, "labels .*float32"),
        (lambda: corrupted(0.5, groups=[0.5] * 100), TypeError, "groups .*float32"),
        (lambda: balanced_subset(LABELS.bool(), 0.5, seed=0), TypeError, "bool"),
        (lambda: hold_out(LABELS * 1j, 1, seed=0), TypeError, "complex64"),
        (lambda: corrupted(0.5, LABELS[None]), ValueError, r"\(1, 50000\)"),
        *((lambda x=x: balanced_subset(LABELS, x, seed=0), ValueError, str(x)) for x in (0.0, -0.01, 1.01, 0.0001)),
        *((lambda x=x: balanced_subset(LABELS, x, seed=0), ValueError, str(x)) for x in (150, 50_100, 0)),
        *((lambda x=x: hold_out(LABELS, x, seed=0), ValueError, str(x)) for x in (-1, 501)),
        (lambda: balanced_subset(LABELS, "half", seed=0), TypeError, "'half'"),
        (lambda: hold_out(LABELS, 0.5, seed=0), TypeError, "0.5"),
        (lambda: hold_out(LABELS, 2, seed=1.5), TypeError, "1.5"),
        (lambda: hold_out(LABELS[:0], 1, seed=0), ValueError, "got 1"),
        *((lambda x=x: balanced_subset(LABELS[:0], x, seed=0), ValueError, str(x)) for x in (0.5, 1)),
    ],
)
def test_bad_input_is_refused_with_its_value(call, error, value):
    with pytest.raises(error, match=value):
        call()


def test_seeds_counts_and_fractions_may_be_those_of_numpy():
    for seed in (np.int64(3), np.uint8(3), torch.tensor(3)):
        assert (
            balanced_subset(LABELS, np.int32(200), seed=seed).tolist() == balanced_subset(LABELS, 200, seed=3).tolist()
        )
    half = balanced_subset(LABELS, 0.5, seed=0)
    assert balanced_subset(LABELS, np.float32(0.5), seed=0).tolist() == half.tolist()
    kept, held_out = hold_out(LABELS, np.int64(2), seed=np.int16(-1))
    assert [part.tolist() for part in hold_out(LABELS, 2, seed=-1)] == [kept.tolist(), held_out.tolist()]


def test_no_labels_leave_nothing_to_hold_out_or_to_take():
    nothing = torch.empty(0, dtype=torch.int64)
    assert [len(part) for part in hold_out(nothing, 0, seed=0)] == [0, 0]

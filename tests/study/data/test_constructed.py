"""The constructed classes: the same every time, a tree that overlaps as said, and parts that share no sample."""

import pytest
import torch

from smooth_topk import hold_out, topk_accuracy
from smooth_topk.study.data import constructed

SMALL = {"train": 6, "held_out": 2, "test": 5}


@pytest.fixture(scope="module")
def small():
    return constructed.construct(400, **SMALL)


def test_the_data_is_the_same_whatever_was_drawn_before_and_another_seed_is_another_problem(small):
    torch.manual_seed(5)
    torch.rand(3)
    again, other = constructed.construct(400, **SMALL), constructed.construct(400, **SMALL, seed=1)
    for part in ("train", "test"):
        assert torch.equal(small.images[part], again.images[part])
        assert torch.equal(small.labels[part], again.labels[part])
        assert not torch.equal(small.images[part], other.images[part])


def test_every_class_is_equally_frequent_in_float32_and_no_test_sample_is_a_training_sample(small):
    assert small.labels["train"].bincount().tolist() == [SMALL["train"]] * 400
    assert small.labels["test"].bincount().tolist() == [SMALL["test"]] * 400
    assert small.images["train"].shape == (2_400, constructed.FEATURES)
    assert small.images["train"].dtype == torch.float32
    first = {row.numpy().tobytes() for row in small.images["train"]}
    assert not first & {row.numpy().tobytes() for row in small.images["test"]}
    kept, held_out = hold_out(small.labels["train"], small.held_out_per_class, seed=0)
    assert len(held_out) == 2 * 400
    assert not set(kept.tolist()) & set(held_out.tolist())


def test_features_have_a_standard_deviation_near_one(small):
    assert small.images["train"].std().item() == pytest.approx(1.0, abs=0.15)


def test_the_centres_form_a_tree_of_ten_by_ten(small):
    """Centres of one superclass are nearer than those of one family, and these nearer than the rest."""
    distances = torch.cdist(small.centres, small.centres)
    number = torch.arange(400)
    superclass, family = number // 10, number // 100
    siblings = (superclass[:, None] == superclass) & (number[:, None] != number)
    cousins = (family[:, None] == family) & (superclass[:, None] != superclass)
    strangers = family[:, None] != family
    means = [distances[pairs].mean() for pairs in (siblings, cousins, strangers)]
    assert means[0] < 0.75 * means[1]
    assert means[1] < 0.85 * means[2]
    assert torch.tensor(small.class_to_superclass).bincount().tolist() == [10] * 40


def test_neighbours_overlap_so_that_five_guesses_are_worth_far_more_than_one(small):
    best = constructed.best_accuracy(small, (1, 5, 10))
    assert 0.45 < best[1] < 0.70
    assert best[5] > best[1] + 0.2
    assert best[10] < 1.0


def test_the_best_accuracy_is_that_of_the_nearest_centres(small):
    scores = -torch.cdist(small.images["test"], small.centres)
    for k, accuracy in constructed.best_accuracy(small, (1, 5)).items():
        assert accuracy == pytest.approx(topk_accuracy(scores, small.labels["test"], k=k).item(), abs=1e-3)


def test_the_best_accuracy_of_a_thousand_classes_is_what_the_module_says():
    source = constructed.construct(1_000, train=1, held_out=0, test=10)
    best = constructed.best_accuracy(source, (1, 5))
    assert best[1] == pytest.approx(0.58, abs=0.02)
    assert best[5] == pytest.approx(0.90, abs=0.02)


def test_batches_are_read_as_they_are():
    source = constructed.construct(100, **SMALL)
    rows = source.images["train"][:3]
    assert source.augmented(rows, None) is rows
    assert source.normalised(rows) is rows


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"classes": 150}, "classes must be a positive multiple of 100, got 150"),
        ({"held_out": 6}, "held_out must be at least 0 and below train=6, got held_out=6"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        constructed.construct(**({"classes": 400} | SMALL | wrong))


def test_other_numbers_of_classes_have_no_fixed_sizes():
    with pytest.raises(ValueError, match="Constructed data has 1,000 or 10,000 classes, got 500"):
        constructed.load(500)

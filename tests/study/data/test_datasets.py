"""Splits, noise, the order of an epoch and its shares among processes, on the synthetic data."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

from smooth_topk.study.data import augmentation, datasets, synthetic
from smooth_topk.study.data.datasets import Data, load_data
from smooth_topk.study.data.sources import ArraySource, Request
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.training.evaluation import count_hits

CLASSES, PER_CLASS, HELD_OUT = 10, 12, 2
CONFIG = RunConfig(batch_size=16)
# With p = 0.5 and groups of 5, two labels in five change; five standard deviations of that share in 2,000 labels.
SAMPLING = 0.06

# SHA-256 of the pixels and labels of one epoch as the recorded runs saw them.
RECORDED_EPOCH = "f1cd1b7824e633c5f4acba40fdbeec61187370e0939beba25877aa1aeba5021c"


class Copies(TorchFunctionMode):
    """Counts the calls that bring numbers from the CPU to the device "meta", which stands in for a GPU."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        made = function in (torch.tensor, torch.as_tensor)
        brought = function is torch.Tensor.to and arguments[0].device.type == "cpu"
        if (made or brought) and result.device.type == "meta":
            self.count += 1
        return result


@pytest.fixture(scope="module")
def source():
    """Ten classes in two superclasses: the even and the odd ones."""
    random = torch.Generator().manual_seed(0)
    images = torch.randint(256, (CLASSES * PER_CLASS, 3, 8, 8), generator=random, dtype=torch.uint8)
    labels = torch.arange(CLASSES * PER_CLASS) % CLASSES
    return ArraySource(
        images={"train": images, "test": images[:37]},
        labels={"train": labels, "test": labels[:37]},
        class_names=tuple("abcdefghij"),
        class_to_superclass=tuple(label % 2 for label in range(CLASSES)),
        held_out_per_class=HELD_OUT,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.3, 0.4),
        evaluation_batch=7,
    )


def same_batches(first, second):
    return all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(list(first), list(second), strict=True)
    )


def test_the_splits_are_balanced_and_disjoint(source):
    data = Data(CONFIG, source)
    assert not set(data.train.rows.tolist()) & set(data.validation.rows.tolist())
    assert data.validation.clean_labels.bincount().tolist() == [HELD_OUT] * CLASSES
    assert data.train.clean_labels.bincount().tolist() == [PER_CLASS - HELD_OUT] * CLASSES
    assert (len(data.train), len(data.validation), len(data.test)) == (100, 20, 37)
    assert torch.equal(data.validation.images, source.images["train"][data.validation.rows])


def test_a_smaller_training_set_is_inside_a_larger_one_and_validation_stays(source):
    sizes = [Data(replace(CONFIG, train_size=size), source) for size in (20, 0.5, None)]
    small, half, full = (set(data.train.rows.tolist()) for data in sizes)
    assert small < half < full
    assert [data.train_size for data in sizes] == [20, 50, 100]
    assert all(torch.equal(data.validation.rows, sizes[0].validation.rows) for data in sizes)


@pytest.mark.parametrize(
    ("grouping", "group"), [("superclass", lambda label: label % 2), ("index_blocks", lambda label: label // 5)]
)
def test_noise_stays_within_its_group(source, grouping, group):
    data = Data(replace(CONFIG, noise_level=1.0, noise_grouping=grouping), source)
    assert torch.equal(group(data.train.labels), group(data.train.clean_labels))
    assert not torch.equal(data.train.labels, data.train.clean_labels)


def test_only_training_labels_are_noisy_unless_validation_is_asked_for(source):
    clean = Data(replace(CONFIG, noise_level=1.0), source)
    noisy = Data(replace(CONFIG, noise_level=1.0, validation_labels="noisy"), source)
    assert torch.equal(clean.validation.labels, clean.validation.clean_labels)
    assert not torch.equal(noisy.validation.labels, noisy.validation.clean_labels)
    assert torch.equal(noisy.test.labels, source.labels["test"])
    assert torch.equal(clean.train.labels, noisy.train.labels)


def test_the_noise_of_an_image_depends_on_the_seed_and_not_on_the_size_of_the_training_set(source):
    full = Data(replace(CONFIG, noise_level=0.8), source)
    half = Data(replace(CONFIG, noise_level=0.8, train_size=0.5), source)
    label_of = dict(zip(full.train.rows.tolist(), full.train.labels.tolist(), strict=True))
    assert [label_of[row] for row in half.train.rows.tolist()] == half.train.labels.tolist()
    assert not torch.equal(Data(replace(CONFIG, noise_level=0.8, seed=1), source).train.labels, full.train.labels)


def test_half_the_noise_changes_two_labels_in_five():
    data = load_data(replace(CONFIG, noise_level=0.5, train_size=2_000))
    changed = (data.train.labels != data.train.clean_labels).float().mean().item()
    assert changed == pytest.approx(0.5 * 4 / 5, abs=SAMPLING)


def test_an_epoch_is_a_function_of_seed_and_epoch_alone(source):
    data = Data(CONFIG, source)
    first = list(data.train_batches(3))
    torch.manual_seed(123)
    assert same_batches(first, Data(CONFIG, source).train_batches(3))
    assert not torch.equal(first[0][0], next(data.train_batches(4))[0])
    assert not torch.equal(first[0][0], next(Data(replace(CONFIG, seed=1), source).train_batches(3))[0])


def test_batches_leave_the_global_random_state_alone(source):
    before = torch.get_rng_state()
    list(Data(replace(CONFIG, noise_level=0.5, train_size=0.5), source).train_batches(0))
    assert torch.equal(before, torch.get_rng_state())


def test_an_epoch_taken_up_in_the_middle_is_the_rest_of_it(source):
    data = Data(CONFIG, source)
    assert same_batches(list(data.train_batches(2))[4:], data.train_batches(2, start_batch=4))


@pytest.mark.parametrize("world_size", [2, 4])
def test_the_shares_of_several_processes_make_up_the_global_batch(source, world_size):
    data = Data(CONFIG, source)
    shares = [list(data.train_batches(1, rank=rank, world_size=world_size)) for rank in range(world_size)]
    for number, (images, labels) in enumerate(data.train_batches(1)):
        for rank in range(world_size):
            assert torch.equal(shares[rank][number][0], images[rank::world_size])
            assert torch.equal(shares[rank][number][1], labels[rank::world_size])


def test_a_batch_that_cannot_be_shared_equally_is_refused(source):
    with pytest.raises(ValueError, match="16 images cannot be shared equally by 3 processes"):
        Data(CONFIG, source).train_batches(0, world_size=3)


def test_an_incomplete_last_batch_is_left_out_and_a_small_set_is_one_batch(source):
    data = Data(CONFIG, source)
    assert [len(labels) for _, labels in data.train_batches(0)] == [16] * 6
    assert data.batches_per_epoch == 6
    small = Data(replace(CONFIG, train_size=10), source)
    assert [len(labels) for _, labels in small.train_batches(0)] == [10]


def test_an_epoch_shows_every_image_at_most_once_with_its_own_label(source):
    data = Data(replace(CONFIG, augment=False, batch_size=10, noise_level=0.8), source)
    images, labels = (torch.cat(parts) for parts in zip(*data.train_batches(0), strict=True))
    known = augmentation.normalise(data.train.images, source.mean, source.std)
    matches = (images[:, None] == known[None]).flatten(2).all(2)
    assert (matches.sum(1) == 1).all()
    assert (matches.sum(0) == 1).all()
    assert torch.equal(labels, data.train.labels[matches.int().argmax(1)])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_the_evaluation_shares_of_all_processes_make_up_the_split(source, world_size):
    data = Data(CONFIG, source)
    shares = [list(data.test_batches(rank=rank, world_size=world_size)) for rank in range(world_size)]
    rebuilt = torch.empty(37, 3, 8, 8)
    for rank, share in enumerate(shares):
        rebuilt[rank::world_size] = torch.cat([images for images, _ in share])
        assert torch.equal(torch.cat([labels for _, labels in share]), data.test.labels[rank::world_size])
    assert torch.equal(rebuilt, augmentation.normalise(data.test.images, source.mean, source.std))


def test_more_processes_than_images_leave_some_without_batches(source):
    assert list(Data(CONFIG, source).test_batches(rank=40, world_size=50)) == []


def test_a_source_whose_images_are_all_held_out_is_refused(source):
    with pytest.raises(ValueError, match=r"The train split of synthetic is empty: every class needs more than the 12"):
        Data(CONFIG, replace(source, held_out_per_class=PER_CLASS))
    with pytest.raises(ValueError, match=r"The validation split of synthetic is empty"):
        Data(CONFIG, replace(source, held_out_per_class=0))


def test_a_training_set_smaller_than_one_batch_is_one_batch(source):
    data = Data(replace(CONFIG, train_size=10), source)
    assert (data.batch_size, data.batches_per_epoch) == (10, 1)
    assert [len(labels) for _, labels in data.train_batches(0)] == [10]


def test_batches_are_delivered_on_the_device_asked_for(source):
    images, labels = next(Data(CONFIG, source).train_batches(0, device="cpu"))
    assert (images.device.type, labels.device.type) == ("cpu", "cpu")
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)


def test_an_epoch_has_the_pixels_and_labels_that_the_recorded_runs_saw(source):
    data = Data(replace(CONFIG, noise_level=0.5, seed=3), source)
    plan = augmentation.plan_epoch(data.train_size, seed=3, epoch=2)
    pixels = source.read("train", [Request(data.train.rows[plan.order], plan)], torch.device("cpu"))
    found = hashlib.sha256(next(pixels).numpy().tobytes() + data.train.labels[plan.order].numpy().tobytes())
    assert found.hexdigest() == RECORDED_EPOCH


@pytest.mark.parametrize("augment", [True, False])
def test_on_a_gpu_no_batch_is_copied(source, augment):
    data = Data(replace(CONFIG, augment=augment, batch_size=5), replace(source))  # a source that has no copies yet
    with Copies() as first:
        for images, labels in data.train_batches(0, device="meta"):
            assert (images.device.type, images.shape[1:], labels.device.type) == ("meta", (3, 8, 8), "meta")
            count_hits(images.flatten(1), labels)
    with Copies() as second:
        batches = data.train_batches(1, device="meta")
        next(batches)
        before_the_rest = second.count
        rest = len([count_hits(images.flatten(1), labels) for images, labels in batches])
    assert rest == 19
    assert second.count == before_the_rest, "only the beginning of an epoch copies"
    assert 0 < second.count < first.count, "the images were copied in the first epoch and stayed"
    with Copies() as evaluation:
        assert len(list(data.validation_batches(device="meta"))) == 3
    assert evaluation.count == 2, "rows and labels, once"


def test_the_data_folder_is_the_argument_then_the_variable_then_the_projects(monkeypatch, tmp_path):
    monkeypatch.setenv("SMOOTH_TOPK_DATA", str(tmp_path / "variable"))
    assert datasets.data_folder_or_default(tmp_path / "argument") == tmp_path / "argument"
    assert datasets.data_folder_or_default() == tmp_path / "variable"
    monkeypatch.delenv("SMOOTH_TOPK_DATA")
    monkeypatch.setenv("SMOOTH_TOPK_ROOT", str(tmp_path / "project"))
    assert datasets.data_folder_or_default() == tmp_path / "project" / "data"
    monkeypatch.delenv("SMOOTH_TOPK_ROOT")
    assert datasets.data_folder_or_default() == Path(datasets.__file__).parents[3] / "data"


def test_the_synthetic_data_needs_no_folder(tmp_path):
    data = load_data(RunConfig(), tmp_path / "missing")
    assert (len(data.train), len(data.validation), len(data.test)) == (10_000, 500, 2_000)
    assert data.class_names == synthetic.CLASSES
    assert data.num_classes == 100


def test_fewer_classes_are_those_of_the_first_superclasses_with_labels_from_zero_on():
    config = RunConfig(dataset="cifar100_features", model="head", noise_level=0.5)
    whole, part = load_data(config), load_data(replace(config, classes=20))
    superclasses = whole.source.class_to_superclass
    assert set(part.class_names) == {name for name, g in zip(whole.class_names, superclasses, strict=True) if g < 4}
    assert part.num_classes == 20
    for split in (part.train, part.validation, part.test):
        assert split.clean_labels.unique().tolist() == list(range(20))
        same_group = [part.source.class_to_superclass[label] for label in split.labels.tolist()]
        assert same_group == [part.source.class_to_superclass[label] for label in split.clean_labels.tolist()]
    name = part.class_names[int(part.test.labels[0])]
    of_name = whole.test.images[whole.test.labels == whole.class_names.index(name)]
    torch.testing.assert_close(part.test.images[part.test.labels == part.test.labels[0]], of_name)


def test_more_classes_than_there_are_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="got classes=200"):
        load_data(RunConfig(dataset="cifar100_features", model="head", classes=200))


def test_constructed_data_trains_like_any_other():
    data = load_data(RunConfig(dataset="constructed_1000", model="linear"))
    assert (data.num_classes, data.train_size, len(data.test)) == (1_000, 50_000, 10_000)
    features, labels = next(data.train_batches(0))
    assert (features.shape, labels.shape) == ((64, 64), (64,))


def test_another_split_seed_holds_out_other_images_with_the_same_noise(source):
    first, second = (datasets.Data(replace(CONFIG, split_seed=seed), source) for seed in (0, 1))
    assert set(first.validation.rows.tolist()) != set(second.validation.rows.tolist())
    assert torch.equal(first.test.rows, second.test.rows)


def test_a_long_tail_keeps_all_of_the_largest_class_and_few_of_the_smallest():
    labels = torch.arange(1_000) % 10
    rows = datasets.long_tail(labels, 20.0, seed=3)
    sizes = labels[rows].bincount(minlength=10).sort(descending=True).values
    assert sizes[0] == 100
    assert sizes[-1] == 5
    assert (sizes[1:] / sizes[:-1]).std() < 0.03  # geometric, but for rounding
    assert torch.equal(rows, datasets.long_tail(labels, 20.0, seed=3))
    assert not torch.equal(rows, datasets.long_tail(labels, 20.0, seed=4))

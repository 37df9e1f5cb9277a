"""The command that prepares data, run in this process on small made-up data."""

import hashlib
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smooth_topk.noisy_labels import CIFAR100_SUPERCLASSES
from smooth_topk.study.data import cifar100, prepare
from smooth_topk.study.data.vision import torchvision

SMALL = {"train": 200, "test": 100}


@pytest.fixture(scope="module")
def script():
    return prepare


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """An archive laid out as the official one, and its sum in place of the official one."""
    path = tmp_path / "download" / cifar100.ARCHIVE
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        for name, content in archive_contents().items():
            data = pickle.dumps(content)
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    monkeypatch.setattr(cifar100, "IMAGES", SMALL)
    official = torchvision.datasets.CIFAR100
    sums = {name: hashlib.md5(pickle.dumps(content)).hexdigest() for name, content in archive_contents().items()}
    monkeypatch.setattr(official, "tgz_md5", hashlib.md5(path.read_bytes()).hexdigest())
    monkeypatch.setattr(official, "train_list", [["train", sums["train"]]])
    monkeypatch.setattr(official, "test_list", [["test", sums["test"]]])
    monkeypatch.setattr(official, "meta", official.meta | {"md5": sums["meta"]})
    arrays, _ = cifar100.read_archive(path)
    monkeypatch.setattr(cifar100, "KNOWN_DIGESTS", {split: cifar100.split_digest(arrays, split) for split in SMALL})
    return path


def archive_contents():
    random = np.random.default_rng(0)
    contents = {}
    for split, count in SMALL.items():
        fine = random.permutation(np.arange(count) % 100)
        contents[split] = {
            "data": random.integers(256, size=(count, 3 * 32 * 32), dtype=np.uint8),
            "fine_labels": fine.tolist(),
            "coarse_labels": [CIFAR100_SUPERCLASSES[label] for label in fine],
        }
    contents["meta"] = {
        "fine_label_names": [f"fine {label}" for label in range(100)],
        "coarse_label_names": [f"coarse {label}" for label in range(20)],
    }
    return contents


def test_the_official_archive_becomes_a_checked_folder(script, archive, tmp_path, capsys):
    assert script.main(["cifar100", "--from", str(archive), "--data-folder", str(tmp_path)]) == 0
    assert "200 train, 100 test images, every file checked" in capsys.readouterr().out
    source = cifar100.load(tmp_path / "cifar100")
    expected = archive_contents()["test"]
    assert source.labels["test"].tolist() == expected["fine_labels"]
    assert np.array_equal(source.images["test"].numpy().reshape(100, -1), expected["data"])
    assert source.class_to_superclass == CIFAR100_SUPERCLASSES


def test_a_folder_with_the_archive_and_a_folder_of_arrays_give_the_same_files(script, archive, tmp_path):
    assert script.main(["cifar100", "--from", str(archive.parent), "--data-folder", str(tmp_path / "a")]) == 0
    arrays = tmp_path / "a" / "cifar100"
    assert script.main(["cifar100", "--from", str(arrays), "--data-folder", str(tmp_path / "b")]) == 0
    for file in arrays.iterdir():
        assert file.read_bytes() == (tmp_path / "b" / "cifar100" / file.name).read_bytes()


@pytest.mark.parametrize("with_manifest", [True, False])
def test_damaged_arrays_do_not_become_checked_ones(script, archive, tmp_path, capsys, with_manifest):
    assert script.main(["cifar100", "--from", str(archive), "--data-folder", str(tmp_path / "a")]) == 0
    images = tmp_path / "a" / "cifar100" / "train_images.npy"
    content = bytearray(images.read_bytes())
    content[-1000] ^= 1
    images.write_bytes(content)
    if not with_manifest:
        (images.parent / cifar100.MANIFEST).unlink()
    capsys.readouterr()
    assert script.main(["cifar100", "--from", str(images.parent), "--data-folder", str(tmp_path / "b")]) == 1
    reason = "train_images.npy is truncated or altered" if with_manifest else "The train images or labels are not those"
    output = capsys.readouterr()
    assert reason in output.err
    assert "checked" not in output.out
    assert not (tmp_path / "b" / "cifar100").exists()


def test_an_altered_archive_is_refused_before_it_is_unpickled(script, archive, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pickle, "load", lambda *_, **__: pytest.fail("An unchecked pickle was executed."))
    archive.write_bytes(archive.read_bytes()[:-10])
    assert script.main(["cifar100", "--from", str(archive), "--data-folder", str(tmp_path)]) == 1
    assert str(archive) in capsys.readouterr().err
    assert not (tmp_path / "cifar100").exists()


def test_without_an_origin_the_archive_is_downloaded(script, archive, tmp_path, monkeypatch):
    asked = []
    real = torchvision.datasets.CIFAR100.download

    def download(dataset):
        asked.append(dataset.root)
        (Path(dataset.root) / cifar100.ARCHIVE).write_bytes(archive.read_bytes())
        real(dataset)

    monkeypatch.setattr(torchvision.datasets.CIFAR100, "download", download)
    assert script.main(["cifar100", "--data-folder", str(tmp_path)]) == 0
    assert asked
    assert (tmp_path / "cifar100" / cifar100.MANIFEST).is_file()


def test_an_origin_that_is_missing_or_incomplete_is_named(script, tmp_path, capsys):
    assert script.main(["cifar100", "--from", str(tmp_path / "nothing"), "--data-folder", str(tmp_path)]) == 1
    assert "nothing does not exist" in capsys.readouterr().err
    assert script.main(["cifar100", "--from", str(tmp_path), "--data-folder", str(tmp_path)]) == 1
    assert "train_images.npy is missing" in capsys.readouterr().err


def make_tree(folder, per_class):
    for part, count in {"train": per_class, "val": 2}.items():
        for name in ("n01440764", "n02085620"):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (8, 8)).save(folder / part / name / f"{number}.JPEG")


def test_an_image_folder_is_linked_and_indexed(script, tmp_path, capsys):
    make_tree(tmp_path / "elsewhere", per_class=51)
    assert script.main(["imagenet", "--from", str(tmp_path / "elsewhere"), "--data-folder", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "102 images, 2 classes, 51 to 51 images per class" in output
    assert "4 images, 2 classes, 2 to 2 images per class" in output
    assert sorted(os.listdir(tmp_path / "imagenet")) == ["train", "val"]


def test_classes_too_small_for_a_validation_set_are_refused(script, tmp_path, capsys):
    make_tree(tmp_path / "imagenet", per_class=50)
    assert script.main(["imagenet", "--data-folder", str(tmp_path)]) == 1
    assert "the smallest has 50" in capsys.readouterr().err


def test_a_missing_image_folder_is_named(script, tmp_path, capsys):
    assert script.main(["imagenet", "--data-folder", str(tmp_path)]) == 1
    assert "imagenet/train is missing" in capsys.readouterr().err
    assert script.main(["imagenet", "--from", str(tmp_path / "none"), "--data-folder", str(tmp_path)]) == 1
    assert "none/train" in capsys.readouterr().err


def test_another_tree_replaces_the_link_to_the_first_and_says_so(script, tmp_path, capsys):
    for name, per_class in (("old", 51), ("new", 52)):
        make_tree(tmp_path / name, per_class)
        assert script.main(["imagenet", "--from", str(tmp_path / name), "--data-folder", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert f"{tmp_path}/imagenet/train led to {tmp_path}/old/train and now leads to {tmp_path}/new/train." in output
    assert "104 images, 2 classes, 52 to 52 images per class" in output


@pytest.mark.parametrize("target", ["gone", "imagenet/train"], ids=["nowhere", "to itself"])
def test_a_link_that_leads_nowhere_is_replaced(script, tmp_path, target):
    make_tree(tmp_path / "new", 51)
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet" / "train").symlink_to(tmp_path / target)
    assert script.main(["imagenet", "--from", str(tmp_path / "new"), "--data-folder", str(tmp_path)]) == 0
    assert (tmp_path / "imagenet" / "train").resolve() == tmp_path / "new" / "train"


def test_a_real_folder_is_not_replaced_by_a_link(script, tmp_path, capsys):
    make_tree(tmp_path / "imagenet", 51)
    make_tree(tmp_path / "new", 51)
    assert script.main(["imagenet", "--from", str(tmp_path / "new"), "--data-folder", str(tmp_path)]) == 1
    assert "imagenet/train is a folder of its own" in capsys.readouterr().err

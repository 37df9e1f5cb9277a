"""CIFAR-100 as plain .npy arrays with a manifest of SHA-256 sums: checked and memory-mapped.

The folder holds, for "train" and "test", SPLIT_images.npy (N, 3, 32, 32) uint8, SPLIT_fine.npy and SPLIT_coarse.npy
(N,) uint8; class_names.json; and manifest.json, which `scripts/prepare_data.py cifar100` writes last.
"""

import hashlib
import io
import json
import pickle
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
import torch

from smooth_topk.study.files import write_whole
from smooth_topk.study.sources import ArraySource

IMAGES = {"train": 50_000, "test": 10_000}
CLASSES, SUPERCLASSES = 100, 20
ARRAYS = tuple(f"{split}_{kind}.npy" for split in IMAGES for kind in ("images", "fine", "coarse"))
NAMES, MANIFEST = "class_names.json", "manifest.json"
HELD_OUT_PER_CLASS = 50  # 5,000 images, section 5.1
MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)  # of the 50,000 training images, per channel
ARCHIVE = "cifar-100-python.tar.gz"
ARCHIVE_ADDRESS = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
ARCHIVE_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"  # as published beside the archive
COMMAND = "python scripts/prepare_data.py cifar100"


@cache
def load(folder: Path) -> ArraySource:
    """Checks the prepared folder against its manifest and memory-maps it; a second call in a process is free.

    Raises:
        FileNotFoundError, ValueError: with the file that is missing, truncated or altered and the command to run.
    """
    names = json.loads(_checked(folder)[NAMES].read_text())
    # Copy-on-write: torch wants writable memory, the files stay as they are and processes share their pages.
    arrays = {name: torch.from_numpy(np.load(folder / name, mmap_mode="c")) for name in ARRAYS}
    return ArraySource(
        images={split: arrays[f"{split}_images.npy"] for split in IMAGES},
        labels={split: arrays[f"{split}_fine.npy"].long() for split in IMAGES},
        class_names=tuple(names["fine"]),
        class_to_superclass=tuple(names["fine_to_coarse"]),
        held_out_per_class=HELD_OUT_PER_CLASS,
        mean=MEAN,
        std=STD,
    )


def prepare(arrays: dict[str, np.ndarray], names: dict, folder: Path) -> None:
    """Checks arrays by file name and the class names, and writes the folder that `load` reads, the manifest last."""
    check_contents(arrays, names)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)  # a half-replaced folder must not look complete
    contents = {NAMES: json.dumps(names, indent=1).encode()}
    sums = {}
    for name in (*ARRAYS, NAMES):
        content = contents.get(name) or _npy(arrays[name])
        write_whole(folder / name, content)
        sums[name] = hashlib.sha256(content).hexdigest()
    write_whole(folder / MANIFEST, json.dumps({"sha256": sums}, indent=1).encode())
    load.cache_clear()


def check_contents(arrays: dict[str, np.ndarray], names: dict) -> None:
    """Raises ValueError in a full sentence where arrays or names are not those of CIFAR-100."""
    for split, count in IMAGES.items():
        images, fine, coarse = (arrays[f"{split}_{kind}.npy"] for kind in ("images", "fine", "coarse"))
        for name, array, shape in (
            (f"{split}_images.npy", images, (count, 3, 32, 32)),
            (f"{split}_fine.npy", fine, (count,)),
            (f"{split}_coarse.npy", coarse, (count,)),
        ):
            if array.shape != shape or array.dtype != np.uint8:
                raise ValueError(f"{name} must hold uint8 of shape {shape}, got {array.dtype} of shape {array.shape}.")
        if not np.array_equal(np.bincount(fine, minlength=CLASSES), np.full(CLASSES, count // CLASSES)):
            raise ValueError(f"{split}_fine.npy must have {count // CLASSES} images of each label from 0 to 99.")
        if not np.array_equal(np.asarray(names["fine_to_coarse"])[fine], coarse):
            raise ValueError(f"{split}_coarse.npy does not agree with {split}_fine.npy and {NAMES}.")
    if (len(names["fine"]), len(names["coarse"])) != (CLASSES, SUPERCLASSES):
        raise ValueError(f"{NAMES} must name 100 fine and 20 coarse classes.")


def read_arrays(folder: Path) -> tuple[dict[str, np.ndarray], dict]:
    """Reads a folder of prepared arrays, with or without a manifest."""
    for name in (*ARRAYS, NAMES):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing; the folder must hold {', '.join((*ARRAYS, NAMES))}.")
    return {name: np.load(folder / name) for name in ARRAYS}, json.loads((folder / NAMES).read_text())


def read_archive(archive: Path) -> tuple[dict[str, np.ndarray], dict]:
    """Reads the official Python archive after comparing its MD5 sum with the published one.

    Raises:
        ValueError: when the sum differs; nothing of the archive, which holds pickles, is then executed.
    """
    found = _digest(archive, "md5")
    if found != ARCHIVE_MD5:
        raise ValueError(
            f"{archive} has the MD5 sum {found}, the official archive has {ARCHIVE_MD5}: it is incomplete or altered. "
            f"Delete it and run: {COMMAND}"
        )
    with tarfile.open(archive) as tar:
        members = (tar.extractfile(f"cifar-100-python/{name}") for name in ("train", "test", "meta"))
        train, test, meta = (pickle.load(member, encoding="latin1") for member in members)
    arrays = {}
    for split, content in (("train", train), ("test", test)):
        arrays[f"{split}_images.npy"] = np.asarray(content["data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        arrays[f"{split}_fine.npy"] = np.asarray(content["fine_labels"], dtype=np.uint8)
        arrays[f"{split}_coarse.npy"] = np.asarray(content["coarse_labels"], dtype=np.uint8)
    fine_to_coarse = dict(zip(train["fine_labels"], train["coarse_labels"], strict=True))
    names = {
        "fine": meta["fine_label_names"],
        "coarse": meta["coarse_label_names"],
        "fine_to_coarse": [fine_to_coarse[label] for label in sorted(fine_to_coarse)],
    }
    return arrays, names


def _checked(folder: Path) -> dict[str, Path]:
    """Returns the files of the manifest by name after comparing their SHA-256 sums."""
    repair = f"Run: {COMMAND} --data-folder {folder.parent}"
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"CIFAR-100 is not prepared: {folder / MANIFEST} is missing. {repair}")
    try:
        sums = json.loads((folder / MANIFEST).read_text())["sha256"]
        expected = {name: sums[name] for name in (*ARRAYS, NAMES)}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{folder / MANIFEST} is damaged. {repair}") from None
    for name, digest in expected.items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing. {repair}")
        if _digest(folder / name, "sha256") != digest:
            raise ValueError(f"{folder / name} is truncated or altered: its SHA-256 sum is wrong. {repair}")
    return {name: folder / name for name in expected}


def _digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()

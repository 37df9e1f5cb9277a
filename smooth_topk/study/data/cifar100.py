"""CIFAR-100 as plain .npy arrays with a manifest of SHA-256 sums: checked and memory-mapped.

The folder holds, for "train" and "test", SPLIT_images.npy (N, 3, 32, 32) uint8, SPLIT_fine.npy and SPLIT_coarse.npy
(N,) uint8; class_names.json; and manifest.json, which `scripts/prepare_data.py cifar100` writes last.

Two checks keep damaged data out. `prepare` compares what it is given with the known sums of CIFAR-100 before it writes
a manifest; `load` compares the files with that manifest before every run.
"""

import hashlib
import json
import pickle
import shlex
import tarfile
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from smooth_topk.noisy_labels import CIFAR100_SUPERCLASSES
from smooth_topk.study.data.sources import ArraySource
from smooth_topk.study.records.files import npy, write_whole

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
# SHA-256 of every split as `split_digest` computes it. The training images that gave the first sum have the published
# MD5 sum of the official file. Test images may stand in any order, as copies of CIFAR-100 differ in it.
KNOWN_DIGESTS = {
    "train": "2c97e084abdde30601dd5869bebd133ae00b01542e670df2364fb1dd28ed5f28",
    "test": "9f104bf6740d7529378090fd9216393357afb2292ad3863a9ffae5dafbca7b31",
}


@cache
def load(folder: Path) -> ArraySource:
    """Checks the prepared folder against its manifest and memory-maps it; a second call in a process is free.

    Raises:
        FileNotFoundError, ValueError: with the file that is missing, truncated or altered and the command to run.
    """
    repair = f"Run: {COMMAND} --data-folder {shlex.quote(str(folder.parent))}"
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"CIFAR-100 is not prepared: {folder / MANIFEST} is missing. {repair}")
    _check_sums(folder, repair)
    names = json.loads((folder / NAMES).read_bytes())
    # Copy-on-write: torch wants writable memory, the files stay as they are and processes share their pages.
    arrays = {name: torch.from_numpy(_read_array(folder / name, repair, mmap_mode="c")) for name in ARRAYS}
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
    """Checks arrays by file name and the class names, and writes the folder that `load` reads, the manifest last.

    Raises:
        ValueError: the arrays are not CIFAR-100 to the last bit; nothing is written.
    """
    check_contents(arrays, names)
    for split, known in KNOWN_DIGESTS.items():
        if split_digest(arrays, split) != known:
            raise ValueError(
                f"The {split} images or labels are not those of CIFAR-100: at least one byte differs from the official "
                f"data, so nothing was written. Take another copy, or download the official archive: {COMMAND}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)  # a half-replaced folder must not look complete
    contents = {NAMES: json.dumps(names, indent=1).encode()}
    sums = {}
    for name in (*ARRAYS, NAMES):
        content = contents.get(name) or npy(arrays[name])
        write_whole(folder / name, content)
        sums[name] = hashlib.sha256(content).hexdigest()
    write_whole(folder / MANIFEST, json.dumps({"sha256": sums}, indent=1).encode())
    load.cache_clear()


def split_digest(arrays: dict[str, np.ndarray], split: str) -> str:
    """Returns the SHA-256 of a split, one row per image: pixels, fine label, coarse label; test rows are sorted first.

    The order of training images decides which of them a run holds out and sees first, so it counts; that of test images
    decides nothing.
    """
    images, fine, coarse = (
        np.ascontiguousarray(arrays[f"{split}_{kind}.npy"]) for kind in ("images", "fine", "coarse")
    )
    rows = np.concatenate((images.reshape(len(images), -1), fine[:, None], coarse[:, None]), axis=1)
    ordered = sorted(map(bytes, rows)) if split == "test" else rows
    digest = hashlib.sha256()
    for row in ordered:
        digest.update(row)
    return digest.hexdigest()


def check_contents(arrays: dict[str, np.ndarray], names: dict) -> None:
    """Raises ValueError in a full sentence where arrays or names are not those of CIFAR-100."""
    _check_names(names)
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


def _check_names(names: object) -> None:
    """Raises ValueError where class_names.json does not hold the names and superclasses of 100 classes."""
    expected = {"fine": CLASSES, "coarse": SUPERCLASSES, "fine_to_coarse": CLASSES}
    if not isinstance(names, dict) or not all(isinstance(names.get(key), list) for key in expected):
        raise ValueError(f"{NAMES} must hold the lists {', '.join(expected)}, got {_shortened(names)}.")
    for key, count in expected.items():
        if len(names[key]) != count:
            raise ValueError(f"{NAMES} must have {count} entries under {key!r}, got {len(names[key])}.")
    if not all(isinstance(name, str) for name in (*names["fine"], *names["coarse"])):
        raise ValueError(f"{NAMES} must hold names of classes as texts, got {_shortened(names['fine'])}.")
    if tuple(names["fine_to_coarse"]) != CIFAR100_SUPERCLASSES:
        raise ValueError(f"{NAMES} does not map the classes to the superclasses of CIFAR-100.")


def read_arrays(folder: Path) -> tuple[dict[str, np.ndarray], dict]:
    """Reads a folder of prepared arrays; where it has a manifest, every file must agree with it.

    Raises:
        FileNotFoundError, ValueError: with the file that is missing or unreadable, or disagrees with the manifest.
    """
    remedy = "Take another copy of this folder."
    for name in (*ARRAYS, NAMES):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing; the folder must hold {', '.join((*ARRAYS, NAMES))}.")
    if (folder / MANIFEST).is_file():
        _check_sums(folder, remedy)
    return {name: _read_array(folder / name, remedy) for name in ARRAYS}, _read_names(folder / NAMES, remedy)


def _read_array(path: Path, remedy: str, mmap_mode: Literal["c"] | None = None) -> np.ndarray:
    # NumPy's own message advises to allow pickles, which would run whatever code the file holds.
    try:
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise ValueError(f"{path} is not a whole .npy file of numbers. {remedy}") from None


def _read_names(path: Path, remedy: str) -> dict:
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
        _check_names(names)
    except ValueError as error:  # also what JSON and UTF-8 raise
        raise ValueError(f"{path} cannot be used: {str(error).rstrip('.')}. {remedy}") from None
    return names


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


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
        members = [tar.extractfile(f"cifar-100-python/{name}") for name in ("train", "test", "meta")]
        train, test, meta = (pickle.load(member, encoding="latin1") for member in members if member)
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


def _check_sums(folder: Path, remedy: str) -> None:
    """Compares every file with the SHA-256 sum that the manifest of the folder has for it."""
    try:
        sums = json.loads((folder / MANIFEST).read_bytes())["sha256"]
        expected = {name: sums[name] for name in (*ARRAYS, NAMES)}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{folder / MANIFEST} is damaged. {remedy}") from None
    for name, digest in expected.items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing. {remedy}")
        if _digest(folder / name, "sha256") != digest:
            raise ValueError(f"{folder / name} is truncated or altered: its SHA-256 sum is wrong. {remedy}")


def _digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()

"""CIFAR-100 as plain .npy arrays with a manifest of SHA-256 sums: checked and memory-mapped.

The folder holds, for "train" and "test", SPLIT_images.npy (N, 3, 32, 32) uint8, SPLIT_fine.npy and SPLIT_coarse.npy
(N,) uint8; class_names.json; and manifest.json, which `scripts/prepare_data.py cifar100` writes last.

Two checks keep damaged data out. `prepare` compares what it is given with the known sums of CIFAR-100 before it writes
a manifest; `load` compares the files with that manifest before every run.
"""

import hashlib
import json
import shlex
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from smooth_topk.noisy_labels import CIFAR100_SUPERCLASSES
from smooth_topk.study.data.sources import ArraySource
from smooth_topk.study.records.files import npy, write_whole

IMAGES = {"train": 50_000, "test": 10_000}
ARRAYS = tuple(f"{split}_{kind}.npy" for split in IMAGES for kind in ("images", "fine", "coarse"))
NAMES, MANIFEST = "class_names.json", "manifest.json"
HELD_OUT_PER_CLASS = 50  # 5,000 images, section 5.1
MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)  # of the 50,000 training images, per channel
ARCHIVE = "cifar-100-python.tar.gz"
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
    if tuple(names["fine_to_coarse"]) != CIFAR100_SUPERCLASSES:
        raise ValueError(f"{NAMES} does not map the classes to the superclasses of CIFAR-100.")
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
    return hashlib.sha256(b"".join(map(bytes, ordered))).hexdigest()


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
    names = json.loads((folder / NAMES).read_bytes())
    return {name: _read_array(folder / name, remedy) for name in ARRAYS}, names


def _read_array(path: Path, remedy: str, mmap_mode: Literal["c"] | None = None) -> np.ndarray:
    # NumPy's own message advises to allow pickles, which would run whatever code the file holds.
    try:
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise ValueError(f"{path} is not a whole .npy file of numbers. {remedy}") from None


def read_archive(archive: Path | None) -> tuple[dict[str, np.ndarray], dict]:
    """Reads the official Python archive with torchvision, which compares its MD5 sums; None downloads it."""
    from smooth_topk.study.data.vision import torchvision

    official = torchvision.datasets.CIFAR100
    if archive is not None and not torchvision.datasets.utils.check_integrity(archive, official.tgz_md5):
        raise ValueError(
            f"{archive} does not have the MD5 sum of the official archive: it is incomplete or altered. "
            f"Delete it and run: {COMMAND}"
        )
    arrays = {}
    with tempfile.TemporaryDirectory() as folder:
        if archive is not None:
            (Path(folder) / ARCHIVE).symlink_to(archive.resolve())
        for split in IMAGES:
            part = official(folder, train=split == "train", download=True)
            arrays[f"{split}_images.npy"] = np.ascontiguousarray(part.data.transpose(0, 3, 1, 2))
            arrays[f"{split}_fine.npy"] = np.array(part.targets, dtype=np.uint8)
            arrays[f"{split}_coarse.npy"] = np.array(CIFAR100_SUPERCLASSES, dtype=np.uint8)[part.targets]
    return arrays, {"fine": part.classes, "fine_to_coarse": list(CIFAR100_SUPERCLASSES)}


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

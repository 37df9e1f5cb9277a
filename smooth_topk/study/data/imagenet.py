"""ImageNet as an ImageFolder tree: `train/WNID/*.JPEG` and `val/WNID/*.JPEG`.

Classes are numbered in the order of their WordNet ids. Images are resized to 256 pixels on the short side; training
takes random crops of 224 and mirrors half of them, evaluation the centre or ten crops (section 5.2).
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from smooth_topk.study.data.augmentation import normalise, scaled
from smooth_topk.study.data.sources import Request
from smooth_topk.study.records.machine import available_cores
from smooth_topk.study.records.paths import workers_setting

FOLDERS = {"train": "train", "test": "val"}  # the official validation set is the test set, section 5.2
EXTENSIONS = (".jpeg", ".jpg", ".png")
HELD_OUT_PER_CLASS = 50  # 50,000 images, section 5.2
RESIZED, CROP = 256, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the training images, the values in general use
COMMAND = "python scripts/prepare_data.py imagenet"


@dataclass(frozen=True)
class FolderIndex:
    """The images of one part: their class folders in order, their paths below the part's folder and their labels."""

    classes: tuple[str, ...]
    paths: np.ndarray  # bytes of a fixed width: a million Python strings would be copied into every worker process
    labels: Tensor


@dataclass(frozen=True)
class FolderSource:
    """Images decoded from files by worker processes; the same attributes as ArraySource where they share a name."""

    folder: Path
    indexes: dict[str, FolderIndex]
    workers: int
    ten_crop: bool = False
    held_out_per_class: int = HELD_OUT_PER_CLASS
    mean: tuple[float, float, float] = MEAN
    std: tuple[float, float, float] = STD

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.indexes["train"].classes

    @property
    def class_to_superclass(self) -> tuple[int, ...]:
        return tuple(range(len(self.class_names)))  # every class is alone: ImageNet comes without superclasses

    @property
    def labels(self) -> dict[str, Tensor]:
        return {part: index.labels for part, index in self.indexes.items()}

    @property
    def evaluation_batch(self) -> int:
        return 32 if self.ten_crop else 256

    def normalised(self, images: Tensor) -> Tensor:
        """Returns uint8 images as the float32 numbers that a network sees."""
        return normalise(images, self.mean, self.std)

    def read(self, part: str, requests: Iterable[Request], device: torch.device) -> Iterator[Tensor]:
        """Yields uint8 images (N, 3, 224, 224) of every request in order, or (N, 10, 3, 224, 224) for ten crops."""
        paths, ten_crop = self.indexes[part].paths, self.ten_crop and part == "test"
        loader = DataLoader(
            DecodedBatches(self.folder / FOLDERS[part], paths, list(requests), ten_crop),
            batch_size=None,  # an item is a batch already
            num_workers=self.workers,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # else the loader draws from the global state that resuming restores
        )
        for images in loader:
            yield images.to(device, non_blocking=True)


class DecodedBatches(Dataset):
    """One decoded batch per request; used by the worker processes."""

    def __init__(self, folder: Path, paths: np.ndarray, requests: list[Request], ten_crop: bool):
        self.folder, self.paths, self.requests, self.ten_crop = folder, paths, requests, ten_crop

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, number: int) -> Tensor:
        request = self.requests[number]
        images = [self._resized(row) for row in request.rows.tolist()]
        if request.plan is None:
            return torch.stack([make_ten_crops(image) if self.ten_crop else _centre(image) for image in images])
        plan = request.plan
        draws = zip(images, plan.draws_down, plan.draws_right, plan.flips.tolist(), strict=True)
        return torch.stack([_random_crop(image, down, right, flip) for image, down, right, flip in draws])

    def _resized(self, row: int) -> Tensor:
        from smooth_topk.study.data.vision import v2

        path = self.folder / os.fsdecode(self.paths[row])
        try:
            with Image.open(path) as image:
                return v2.functional.pil_to_tensor(v2.functional.resize(image.convert("RGB"), RESIZED))
        except (OSError, SyntaxError) as error:  # what Pillow raises for a damaged file
            raise ValueError(f"{path} cannot be decoded ({error}); replace it, then run: {COMMAND}") from error


def load(folder: Path, workers: int | None = None, ten_crop: bool = False) -> FolderSource:
    """Reads or makes both indexes and checks that the two parts have the same classes."""
    indexes = {part: read_index(folder, part) for part in FOLDERS}
    if indexes["train"].classes != indexes["test"].classes:
        differing = sorted(set(indexes["train"].classes) ^ set(indexes["test"].classes))
        raise ValueError(f"{folder}/train and {folder}/val differ in the class folders {', '.join(differing[:5])}.")
    if workers is None:
        runs = workers_setting() or torch.cuda.device_count() or 1  # that share the cores, as in a grid
        workers = max(1, min(available_cores() // runs, 16))
    return FolderSource(folder, indexes, workers, ten_crop)


def read_index(folder: Path, part: str) -> FolderIndex:
    """Returns the images of one part, as torchvision's ImageFolder finds them."""
    from smooth_topk.study.data.vision import torchvision

    root = folder / FOLDERS[part]
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root} is missing: ImageNet needs train/ and val/ with one folder per class, see {COMMAND} --help"
        )
    classes, numbers = torchvision.datasets.folder.find_classes(root)
    samples = torchvision.datasets.folder.make_dataset(root, numbers, EXTENSIONS)
    paths = np.array([os.fsencode(os.path.relpath(path, root)) for path, _ in samples])
    return FolderIndex(tuple(classes), paths, torch.tensor([label for _, label in samples]))


def _random_crop(image: Tensor, down: Tensor, right: Tensor, flip: bool) -> Tensor:
    top = int(scaled(down, image.shape[1] - CROP + 1))
    left = int(scaled(right, image.shape[2] - CROP + 1))
    cropped = image[:, top : top + CROP, left : left + CROP]
    return cropped.flip(-1) if flip else cropped


def _centre(image: Tensor) -> Tensor:
    from smooth_topk.study.data.vision import v2

    return v2.functional.center_crop(image, CROP)


def make_ten_crops(image: Tensor) -> Tensor:
    """Returns the four corners and the centre, then the same mirrored, (10, 3, 224, 224)."""
    from smooth_topk.study.data.vision import v2

    five = torch.stack(v2.functional.five_crop(image, CROP))
    return torch.cat((five, five.flip(-1)))

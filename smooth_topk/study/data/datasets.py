"""The data of a run: (RunConfig, folder) in, batches of normalised images and labels out.

    data = load_data(config)
    for images, labels in data.train_batches(epoch): ...

What a batch holds depends on the configuration and the epoch only. Of several processes each takes a disjoint share of
the same global batch: places rank, rank + world_size, ... of the global order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from smooth_topk.noisy_labels import balanced_subset, corrupt_within_superclass, hold_out
from smooth_topk.study.data import cifar100, constructed, features, imagenet, synthetic
from smooth_topk.study.data.augmentation import plan_epoch
from smooth_topk.study.data.sources import ArraySource, Request, together_on
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.paths import data_folder_or_default

BLOCK = 5  # classes that share their noise under "index_blocks"

Batches = Iterator[tuple[Tensor, Tensor]]
Device = str | torch.device


def load_data(config: RunConfig, data_folder: str | Path | None = None, workers: int | None = None) -> "Data":
    """Returns the data of a run.

    Args:
        config: decides everything but where the files are.
        data_folder: see `data_folder_or_default`; synthetic and constructed data and the features need none.
        workers: processes that decode JPEG files; by default the cores of this run, at most 16. Other data needs none.

    Raises:
        FileNotFoundError, ValueError: with the file concerned and the command to run.
    """
    folder = data_folder_or_default(data_folder)
    if config.dataset == "synthetic":
        return Data(config, synthetic.load())
    if config.dataset == "cifar100_features":
        return Data(config, features.load())
    if config.dataset.startswith("constructed"):
        return Data(config, constructed.load(int(config.dataset.partition("_")[2])))
    if config.dataset == "cifar100":
        return Data(config, cifar100.load(folder / "cifar100"))
    return Data(config, imagenet.load(folder / "imagenet", workers=workers, ten_crop=config.ten_crop))


@dataclass(frozen=True)
class Split:
    """Rows of one part of a source, with the labels a run works with.

    Attributes:
        source: where the images are.
        part: "train" or "test".
        rows: (N,) int64.
        labels: (N,) int64, noisy where the configuration asks for it.
        clean_labels: (N,) int64.
    """

    source: "ArraySource | imagenet.FolderSource"
    part: str
    rows: Tensor
    labels: Tensor
    clean_labels: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def images(self) -> Tensor:
        """All images as uint8 (N, 3, H, W), as evaluation sees them; decodes every file of an image folder."""
        return next(self.source.read(self.part, [Request(self.rows)], torch.device("cpu")))


class Data:
    """Training, validation and test split of a run and their batches, on any number of processes.

    Attributes:
        train: the Split that is trained on.
        validation: the Split held out of the training images.
        test: the Split of the test images.
        num_classes: number of classes of the run.
        train_size: number of training images of the run.
        class_counts: (C,) training images of each class, by their labels in the run.
        batch_size: images of a batch, over all processes.
        batches_per_epoch: number of these batches in an epoch.
    """

    def __init__(self, config: RunConfig, source: "ArraySource | imagenet.FolderSource"):
        if config.classes is not None:
            source = _with_fewer_classes(source, config)
        self.config, self.source = config, source
        self.class_names = source.class_names
        self.num_classes = len(source.class_names)
        self.train, self.validation, self.test = _splits(config, source)
        for name in ("train", "validation", "test"):
            if not len(getattr(self, name)):
                raise ValueError(
                    f"The {name} split of {config.dataset} is empty: every class needs more than the "
                    f"{source.held_out_per_class} images that are held out for validation, and a test image."
                )
        self.train_size = len(self.train)
        self.class_counts = self.train.labels.bincount(minlength=self.num_classes)
        self.batch_size = min(config.batch_size, self.train_size)
        # An incomplete last batch is left out, other images every epoch: all shares of all batches are equally large.
        self.batches_per_epoch = self.train_size // self.batch_size

    def train_batches(
        self,
        epoch: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        start_batch: int = 0,
        device: Device = "cpu",
    ) -> Batches:
        """Yields this process's share (images, labels) of every global batch of an epoch, from start_batch on.

        Args:
            epoch: counted from 0; order and augmentation are a pure function of it and the configuration's seed.
            rank: number of this process, counted from 0.
            world_size: number of processes, which must divide the batch size.
            start_batch: the first batch wanted, to go on within an epoch.
            device: where the images are augmented and the batch is delivered.
        """
        if self.batch_size % world_size:
            raise ValueError(
                f"The global batch of {self.batch_size} images cannot be shared equally by {world_size} processes; "
                "choose a number of processes that divides it."
            )
        plan = plan_epoch(self.train_size, self.config.seed, epoch)
        starts = range(start_batch * self.batch_size, self.batches_per_epoch * self.batch_size, self.batch_size)
        shares = [plan.at(slice(start + rank, start + self.batch_size, world_size)) for start in starts]
        augmented = shares if self.config.augment else [None] * len(shares)
        requests = [Request(self.train.rows[s.order], a) for s, a in zip(shares, augmented, strict=True)]
        labels = [self.train.labels[share.order] for share in shares]
        return self._deliver("train", requests, labels, torch.device(device))

    def validation_batches(self, *, rank: int = 0, world_size: int = 1, device: Device = "cpu") -> Batches:
        """Yields this process's share (images, labels) of the validation split; shares may differ by one image."""
        return self._evaluation_batches(self.validation, rank, world_size, device)

    def test_batches(self, *, rank: int = 0, world_size: int = 1, device: Device = "cpu") -> Batches:
        """Yields this process's share (images, labels) of the test split; images are (N, 10, 3, H, W) for ten crops."""
        return self._evaluation_batches(self.test, rank, world_size, device)

    def _evaluation_batches(self, split: Split, rank: int, world_size: int, device: Device) -> Batches:
        size = self.source.evaluation_batch
        rows, labels = (values[rank::world_size].split(size) for values in (split.rows, split.labels))
        return self._deliver(split.part, [Request(part) for part in rows if len(part)], labels, torch.device(device))

    def _deliver(self, part: str, requests: list[Request], labels: Sequence[Tensor], device: torch.device) -> Batches:
        moved = together_on(device, labels)
        for images, batch_labels in zip(self.source.read(part, requests, device), moved, strict=False):
            yield self.source.normalised(images), batch_labels


def _splits(config: RunConfig, source: "ArraySource | imagenet.FolderSource") -> tuple[Split, Split, Split]:
    """Returns training, validation and test split. The test labels are always clean (section 5.1)."""
    clean = source.labels["train"]
    noisy = _noisy_labels(config, clean, source.class_to_superclass)
    # `split_seed` draws which images are held out and in a subset; `seed` draws noise, order and weights.
    kept, held_out = hold_out(clean, source.held_out_per_class, seed=config.split_seed)
    if config.train_size is not None:
        kept = kept[balanced_subset(clean[kept], config.train_size, seed=config.split_seed)]
    if config.imbalance > 1:
        kept = kept[long_tail(clean[kept], config.imbalance, seed=config.split_seed)]
    validation_labels = clean if config.validation_labels == "clean" else noisy
    test = source.labels["test"]
    return (
        Split(source, "train", kept, noisy[kept], clean[kept]),
        Split(source, "train", held_out, validation_labels[held_out], clean[held_out]),
        Split(source, "test", torch.arange(len(test)), test, test),
    )


def long_tail(labels: Tensor, imbalance: float, *, seed: int) -> Tensor:
    """Returns the rows of a long tail: class sizes fall geometrically over the classes in a random order.

    Args:
        labels: (N,) int64, balanced.
        imbalance: the largest class keeps all its rows, the smallest this many times fewer.
        seed: draws the order of the classes, and which rows are kept.
    """
    classes, sizes = int(labels.max()) + 1, labels.bincount()
    generator = torch.Generator().manual_seed(seed)
    place = torch.randperm(classes, generator=generator)
    wanted = (sizes * imbalance ** (-place / max(classes - 1, 1))).round().long().clamp(min=1)
    order = torch.randperm(len(labels), generator=generator)
    order = order[labels[order].argsort(stable=True)]  # class after class, each in random order
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[labels[order]]
    return (rank < wanted[labels]).nonzero().squeeze(1)


def _with_fewer_classes(source: "ArraySource | imagenet.FolderSource", config: RunConfig) -> ArraySource:
    """Returns the samples of the classes of the first superclasses, with labels from 0 on: neighbours stay together."""
    found = len(source.class_names)
    if not isinstance(source, ArraySource) or not 1 < (config.classes or 0) <= found:
        raise ValueError(
            f"classes must be between 2 and the {found} of {config.dataset}, which must not be an image folder, "
            f"got classes={config.classes}."
        )
    chosen = sorted(sorted(range(found), key=lambda c: (source.class_to_superclass[c], c))[: config.classes])
    new_label = torch.full((found,), -1).index_copy(0, torch.tensor(chosen), torch.arange(len(chosen)))
    rows = {part: (new_label[labels] >= 0).nonzero()[:, 0] for part, labels in source.labels.items()}
    return replace(
        source,
        images={part: images[rows[part]] for part, images in source.images.items()},
        labels={part: new_label[labels[rows[part]]] for part, labels in source.labels.items()},
        class_names=tuple(source.class_names[c] for c in chosen),
        class_to_superclass=tuple(source.class_to_superclass[c] for c in chosen),
    )


def _noisy_labels(config: RunConfig, clean: Tensor, class_to_superclass: tuple[int, ...]) -> Tensor:
    # All training labels are corrupted before any are held out or left out: an image's noise depends on the seed alone.
    groups = class_to_superclass
    if config.noise_grouping == "index_blocks":
        groups = tuple(label // BLOCK for label in range(len(class_to_superclass)))
    return corrupt_within_superclass(clean, config.noise_level, groups=groups, seed=config.seed)

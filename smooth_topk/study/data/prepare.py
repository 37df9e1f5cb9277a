"""Prepares the data of the study, once.

    python scripts/prepare_data.py cifar100                       download the official archive, check it, unpack it
    python scripts/prepare_data.py cifar100 --from ARCHIVE        the same with cifar-100-python.tar.gz already there
    python scripts/prepare_data.py cifar100 --from FOLDER         a folder that holds the archive or prepared arrays
    python scripts/prepare_data.py imagenet                       check DATA_FOLDER/imagenet/{train,val}/WNID/*.JPEG
    python scripts/prepare_data.py imagenet --from FOLDER         link that ImageFolder tree there first

The data folder is --data-folder, else the variable SMOOTH_TOPK_DATA, else data/ in the project's root. The synthetic
data and the built-in features need no preparation; `python scripts/extract_features.py` computes the features again.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

from smooth_topk.study.data import cifar100, imagenet
from smooth_topk.study.records.files import make_folder
from smooth_topk.study.records.paths import data_folder_or_default, path_option


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=("cifar100", "imagenet"))
    parser.add_argument("--from", dest="origin", type=path_option, help="an archive or a folder, instead of a download")
    parser.add_argument("--data-folder", type=path_option)
    options = parser.parse_args(arguments)
    folder = data_folder_or_default(options.data_folder) / options.dataset
    prepare = {"cifar100": prepare_cifar100, "imagenet": prepare_imagenet}[options.dataset]
    try:
        prepare(options.origin, folder)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def prepare_cifar100(origin: Path | None, folder: Path) -> None:
    """Writes the checked arrays from an archive, a folder or a download."""
    if origin is not None and not origin.exists():
        raise FileNotFoundError(f"{origin} does not exist; --from takes {cifar100.ARCHIVE} or a folder.")
    if origin is not None and origin.is_dir() and not (origin / cifar100.ARCHIVE).is_file():
        arrays, names = cifar100.read_arrays(origin)
    else:
        arrays, names = cifar100.read_archive(origin / cifar100.ARCHIVE if origin and origin.is_dir() else origin)
    cifar100.prepare(arrays, names, folder)
    source = cifar100.load(folder)
    counts = ", ".join(f"{len(labels):,} {part}" for part, labels in source.labels.items())
    print(f"CIFAR-100 is ready in {folder}: {counts} images, every file checked.")


def prepare_imagenet(origin: Path | None, folder: Path) -> None:
    """Links the tree into the data folder where asked, and counts the images of both parts."""
    if origin is not None:
        make_folder(folder)
        for part in imagenet.FOLDERS.values():
            if not (origin / part).is_dir():
                raise FileNotFoundError(f"{origin / part} is missing; --from takes a folder with train/ and val/.")
            link_folder(folder / part, (origin / part).resolve())
    source = imagenet.load(folder)
    for part, index in source.indexes.items():
        per_class = np.bincount(index.labels.numpy())
        print(
            f"{folder / imagenet.FOLDERS[part]} ({part}): {len(index.labels):,} images, "
            f"{len(index.classes):,} classes, {per_class.min():,} to {per_class.max():,} images per class."
        )
    smallest = int(np.bincount(source.labels["train"].numpy()).min())
    if smallest <= source.held_out_per_class:
        raise ValueError(
            f"Every training class needs more than the {source.held_out_per_class} images held out for validation, "
            f"the smallest has {smallest}."
        )


def link_folder(link: Path, target: Path) -> None:
    """Makes `link` lead to the folder `target`; another link there is replaced, a real folder is refused."""
    if link.is_symlink():
        if os.path.realpath(link) == str(target):
            return
        print(f"{link} led to {os.readlink(link)} and now leads to {target}.")
        link.unlink()
    elif link.exists():
        if link.samefile(target):
            return
        raise FileExistsError(
            f"{link} is a folder of its own and cannot lead to {target}: move it away, or use it by leaving out --from."
        )
    link.symlink_to(target, target_is_directory=True)

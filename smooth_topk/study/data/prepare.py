"""Prepares the data of the study, once.

    python scripts/prepare_data.py cifar100                       download the official archive, check it, unpack it
    python scripts/prepare_data.py cifar100 --from ARCHIVE        the same with cifar-100-python.tar.gz already there
    python scripts/prepare_data.py cifar100 --from FOLDER         a folder that holds the archive or prepared arrays
    python scripts/prepare_data.py imagenet                       index DATA_FOLDER/imagenet/{train,val}/WNID/*.JPEG
    python scripts/prepare_data.py imagenet --from FOLDER         link that ImageFolder tree there first

    python scripts/prepare_data.py features                       compute the built-in features again from CIFAR-100

The data folder is --data-folder, else the variable SMOOTH_TOPK_DATA, else data/ in the project's root. The synthetic
data and the built-in features need no preparation: `features` is for those who want to check or change them. It takes
about ten minutes on one core, keeps what it has computed in DATA_FOLDER/cifar100_features, and writes
cifar100_features.npz and cifar100_features.json to book/results, or to the folder that --output names.
"""

import argparse
import json
import os
import sys
import tempfile
import urllib.request
from pathlib import Path

import numpy as np

from smooth_topk.study.data import cifar100, feature_extraction, features, imagenet
from smooth_topk.study.records.files import make_folder, make_writable_folder, npz, write_whole
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import data_folder_or_default, path_option, published_folder


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=("cifar100", "imagenet", "features"))
    parser.add_argument("--from", dest="origin", type=path_option, help="an archive or a folder, instead of a download")
    parser.add_argument("--data-folder", type=path_option)
    parser.add_argument(
        "--output", type=path_option, default=None, help="folder of the feature file (default: book/results)"
    )
    options = parser.parse_args(arguments)
    if options.dataset == "features":
        return prepare_features(data_folder_or_default(options.data_folder), options.output or published_folder())
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
    with tempfile.TemporaryDirectory() as temporary:
        if origin is None:
            origin = download(cifar100.ARCHIVE_ADDRESS, Path(temporary) / cifar100.ARCHIVE)
        if not origin.exists():
            raise FileNotFoundError(f"{origin} does not exist; --from takes {cifar100.ARCHIVE} or a folder.")
        if (origin / cifar100.ARCHIVE).is_file():
            origin = origin / cifar100.ARCHIVE
        read = cifar100.read_arrays if origin.is_dir() else cifar100.read_archive
        cifar100.prepare(*read(origin), folder)
    source = cifar100.load(folder)
    counts = ", ".join(f"{len(labels):,} {part}" for part, labels in source.labels.items())
    print(f"CIFAR-100 is ready in {folder}: {counts} images, every file checked.")


def prepare_features(data_folder: Path, output: Path) -> int:
    """Computes the built-in features from the prepared images of CIFAR-100; what a stopped call computed is kept."""
    try:
        images = cifar100.load(data_folder / "cifar100")
        network = feature_extraction.load_network()
        kept = make_writable_folder(data_folder / "cifar100_features")
        make_writable_folder(output)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    pooled = {
        part: feature_extraction.extract(network, pixels.numpy(), kept, part) for part, pixels in images.images.items()
    }
    labels = {part: values.numpy() for part, values in images.labels.items()}
    arrays = feature_extraction.build(pooled, labels)
    content = npz(**arrays)
    found = feature_extraction.provenance(arrays, pooled, content, describe_machine())
    found["class_names"] = list(images.class_names)
    write_whole(output / features.FILE, content)
    write_whole(output / features.PROVENANCE, json.dumps(found, indent=1).encode())
    features.load.cache_clear()
    source = features.load(output)
    print(f"{output / features.FILE}: {len(content) / 1e6:.1f} MB, {len(source.labels['train']):,} training images.")
    return 0


def prepare_imagenet(origin: Path | None, folder: Path) -> None:
    """Links the tree into the data folder where asked, and writes and checks the index of both parts."""
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


def download(address: str, path: Path) -> Path:
    """Downloads a file and shows progress; whoever reads it checks its sum."""

    def show(blocks: int, block_size: int, total: int) -> None:
        if sys.stderr.isatty():
            done = min(blocks * block_size, total)
            print(f"\r{address}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", end="", file=sys.stderr)

    try:
        urllib.request.urlretrieve(address, path, show)
    except OSError as error:
        raise OSError(
            f"Could not download {address} ({error}). Fetch it by other means, "
            f"then run: {cifar100.COMMAND} --from {path.name}"
        ) from error
    return path

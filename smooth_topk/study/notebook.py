"""What every chapter needs first: where the project and its results lie, one style, one honest line about the run."""

import importlib.util
import os
from importlib import metadata
from pathlib import Path

import matplotlib as mpl
import matplotlib.style
import pandas as pd
import torch

from smooth_topk.study.machine import describe_machine

PROFILES = ("smoke", "quick", "laptop", "paper")
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
STYLE_FILE = Path(__file__).with_name("book.mplstyle")


def project_root() -> Path:
    """Returns the project's folder: $SMOOTH_TOPK_ROOT, or the one that holds the package."""
    root = Path(os.environ.get("SMOOTH_TOPK_ROOT") or Path(__file__).parents[2]).resolve()
    if not (root / "notebooks").is_dir():
        raise FileNotFoundError(
            f"{root} is not the project's folder, it has no notebooks/: set SMOOTH_TOPK_ROOT to a clone of the project."
        )
    return root


def runs_folder(profile: str) -> Path:
    """Returns where a profile's executed notebooks, logs and checkpoints go, made if it is missing."""
    _check_profile(profile)
    folder = Path(os.environ.get("SMOOTH_TOPK_RUNS") or project_root() / "runs").resolve() / profile
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def results_folder(profile: str) -> Path:
    """Returns where a profile's records go: `book/results` for laptop and paper, `runs/PROFILE/results` for the others.

    Results of smoke and quick runs never mix with the recorded ones.
    """
    if profile in ("laptop", "paper"):
        return recorded_folder()
    folder = runs_folder(profile) / "results"
    folder.mkdir(exist_ok=True)
    return folder


def recorded_folder() -> Path:
    """Returns `book/results`, the results that are part of the project, whatever the profile."""
    return project_root() / "book" / "results"


def start(profile: str) -> None:
    """Applies the book's style and prints which profile, machine and torch the outputs below come from."""
    _check_profile(profile)
    use_style()
    found = describe_machine()
    print(f"Profile {profile} on {machine_name()}, Python {found['python']}, torch {found['torch']}.")
    if profile == "smoke":
        print("The numbers of a smoke run mean nothing: it only shows that every cell runs.")


def check_environment() -> pd.DataFrame:
    """Returns what is installed and found, and for what each missing part is needed."""
    from smooth_topk.study.datasets import data_folder_or_default  # imports torchvision, which few chapters need

    rows = [(name, _version(name), need) for name, need in NEEDED_FOR.items()]
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    rows.append(("GPU", gpu, "profile paper; everything else runs on a CPU"))
    for name, need in (("cifar100", "profile laptop"), ("imagenet", "profile paper")):
        folder = data_folder_or_default() / name
        found = "found" if folder.is_dir() else f"not prepared: python scripts/prepare_data.py {name}"
        rows.append((f"data: {name}", found, need))
    return pd.DataFrame(rows, columns=["part", "found", "needed for"]).set_index("part")


def machine_name() -> str:
    """Returns the machine in a few words: processor, cores, GPU where there is one."""
    found = describe_machine("cuda" if torch.cuda.is_available() else "cpu")
    gpu = "no GPU" if found["device"] == "cpu" else found["device"]
    return f"{found['cpu']} ({found['machine']}, {gpu})"


def use_style() -> None:
    """Applies `book.mplstyle`; inside a notebook, figures become sharp on dense screens too."""
    mpl.style.use(STYLE_FILE)
    pd.set_option("display.max_colwidth", None)  # a cell of a table is never cut short
    if importlib.util.find_spec("IPython") is None:
        return
    from IPython import get_ipython

    if get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("retina")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _check_profile(profile: str) -> None:
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got profile={profile!r}.")

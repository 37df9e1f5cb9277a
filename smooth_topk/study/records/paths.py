"""Where things lie, and how settings travel between the processes of a study.

Environment variables reach the command, the chapters' Jupyter kernels and whoever calls the package alike:

    SMOOTH_TOPK_ROOT        the project's folder; by default the one that holds the package
    SMOOTH_TOPK_RUNS        the folder of records, checkpoints, executed chapters, logs; by default runs/ in the project
    SMOOTH_TOPK_DATA        the folder of the data sets; by default data/ in the project
    SMOOTH_TOPK_EXECUTOR    where training runs go: local, ray or ray:ADDRESS; by default local
    SMOOTH_TOPK_WORKERS     runs at a time on this machine; by default one per GPU or core

The options of `run_study.py` set them for the chapters.
"""

import argparse
import os
from pathlib import Path

from smooth_topk.study.experiments.profiles import check_profile

EXECUTORS = ("local", "ray")


def project_root() -> Path:
    """Returns the project's folder: $SMOOTH_TOPK_ROOT, or the one that holds the package."""
    root = _project_folder()
    if not (root / "notebooks").is_dir():
        raise FileNotFoundError(
            f"{root} is not the project's folder, it has no notebooks/: set SMOOTH_TOPK_ROOT to a clone of the project."
        )
    return root


def runs_folder(profile: str) -> Path:
    """Returns where a profile's records, checkpoints, executed notebooks and logs go."""
    check_profile(profile)
    given = os.environ.get("SMOOTH_TOPK_RUNS")
    return (absolute(given) if given else project_root() / "runs") / profile


def records_folder(profile: str) -> Path:
    """Returns where a profile's runs are recorded, one JSON file each."""
    return runs_folder(profile) / "records"


def checkpoints_folder(profile: str) -> Path:
    """Returns where the checkpoints of a profile's unfinished runs are, and the logs of its workers."""
    return runs_folder(profile) / "checkpoints"


def published_folder() -> Path:
    """Returns `book/results`, the results that are part of the project: a study reads them and never writes them."""
    return project_root() / "book" / "results"


def data_folder_or_default(data_folder: str | Path | None = None) -> Path:
    """Returns the folder given, else that of the variable SMOOTH_TOPK_DATA, else data/ in the project."""
    return absolute(data_folder or os.environ.get("SMOOTH_TOPK_DATA") or _project_folder() / "data")


def executor_setting() -> str:
    """Returns $SMOOTH_TOPK_EXECUTOR, or local; see `check_executor`."""
    return os.environ.get("SMOOTH_TOPK_EXECUTOR") or "local"


def check_executor(executor: str) -> str:
    """Returns the executor; raises ValueError where it is not local, ray or ray:ADDRESS."""
    kind, colon, address = executor.partition(":")
    if kind not in EXECUTORS or (colon and not (kind == "ray" and address)):
        raise ValueError(f"executor must be 'local', 'ray' or 'ray:ADDRESS', got executor={executor!r}.")
    return executor


def workers_setting() -> int | None:
    """Returns $SMOOTH_TOPK_WORKERS, a number of at least 1, or None where it is not set."""
    text = os.environ.get("SMOOTH_TOPK_WORKERS", "").strip()
    if text and not (text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise ValueError(f"SMOOTH_TOPK_WORKERS must be a whole number from 1 to 999999999, got {text[:60]!r}.")
    return int(text) if text else None


def path_option(text: str) -> Path:
    """Returns a path of a command line; an empty one, as of a variable that is not set, is refused by argparse."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"a path must not be empty, got {text!r}")
    return Path(text)


def absolute(path: str | Path) -> Path:
    """Returns a path as the user meant it: ~ is the home folder, a relative path starts in the current folder."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"{path} begins with the home folder of a user who is not known here.") from None


def _project_folder() -> Path:
    return Path(os.path.realpath(os.environ.get("SMOOTH_TOPK_ROOT") or Path(__file__).parents[3]))

"""Torchvision, importable beside a torch it was not compiled for.

Use: `from smooth_topk.study.data.vision import torchvision`.

A CPU build of torch often comes with a torchvision whose compiled library cannot load. Its transforms, data sets and
models are plain Python, but importing them looks up two operators of that library. They are declared here, without an
implementation, only when the library did not bring them.
"""

import contextlib
import importlib.util
from pathlib import Path

import torch

NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def declare_missing_operators() -> None:
    """Loads torchvision's compiled library where it fits, and declares the two operators where it does not."""
    found = importlib.util.find_spec("torchvision")
    folders = found.submodule_search_locations if found else None
    for library in Path((folders or [""])[0]).glob("_C*"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(library)
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            torch.library.define(f"torchvision::{operator}", NMS)


declare_missing_operators()

import torchvision  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

__all__ = ["torchvision", "v2"]

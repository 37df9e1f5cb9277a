"""Classifier and loss in one function against the plain path with its score matrix: time and memory for many classes.

`F.linear_cross_entropy` of torch, with its chunks, is timed in the same rounds where torch has it.
"""

from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from smooth_topk import linear_smooth_topk_loss, smooth_topk_loss
from smooth_topk.study.measure.memory import peak_bytes
from smooth_topk.study.measure.speed import Settings

ROWS, FEATURES, CLASSES = 2048, 256, 50_000
OURS, PLAIN, CROSS_ENTROPY = "linear_smooth_topk", "linear + smooth_topk", "linear_cross_entropy"


def measure_linear(settings: Settings, *, rows: int = ROWS, features: int = FEATURES, classes: int = CLASSES):
    """Returns one row per function: seconds of forward and backward pass, and bytes beyond inputs and gradients.

    Returns:
        Columns algorithm, rows, features, n, k, threads, bytes, those of the timed sections, and ratios of time and
        bytes to those of the plain path and of `F.linear_cross_entropy`.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(settings.threads))
    try:
        calls = linear_calls(rows, features, classes, settings.k, settings.device)
        gradients = 4 * features * (rows + classes)
        memory = {name: peak_bytes(call, settings.device) - gradients for name, call in calls.items()}
        timed = settings.time(calls)
    finally:
        torch.set_num_threads(before)
    case = {"rows": rows, "features": features, "n": classes, "k": settings.k, "threads": max(settings.threads)}
    table = pd.DataFrame([{"algorithm": name, **case, "bytes": memory[name], **timed[name]} for name in calls])
    table = table.drop(columns="ratio").set_index("algorithm")
    for name, short in ((PLAIN, "plain"), (CROSS_ENTROPY, "cross_entropy")):
        for column in ("seconds", "bytes"):
            base = table[column].get(name, float("nan"))
            table[f"{column}_to_{short}"] = table[column] / base
    return table.reset_index()


def linear_calls(rows: int, features: int, classes: int, k: int, device: str) -> dict[str, Callable[[], object]]:
    """Forward and backward pass of each function, on the same random features and classifier."""
    generator = torch.Generator().manual_seed(0)
    input = torch.randn(rows, features, generator=generator).to(device).requires_grad_()
    weight = (torch.randn(classes, features, generator=generator) / features**0.5).to(device).requires_grad_()
    labels = torch.randint(classes, (rows,), generator=generator).to(device)

    def both(loss: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(loss(), (input, weight))

    calls = {
        OURS: both(lambda: linear_smooth_topk_loss(input, weight, labels, k=k)),
        PLAIN: both(lambda: smooth_topk_loss(functional.linear(input, weight), labels, k=k)),
    }
    if hasattr(functional, "linear_cross_entropy"):
        options = nn.LinearCrossEntropyOptions()
        calls[CROSS_ENTROPY] = both(
            lambda: functional.linear_cross_entropy(input, weight, labels, options=options)  # in chunks
        )
    return calls

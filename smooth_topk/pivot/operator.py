"""The operator that a compiled program calls: one call of a backend, whose inside the compiler does not enter.

Traced, plain torch would be compiled instead of the kernels. Registered with torch.library, the operator has a
description for compilers (shapes, dtypes, derivative) and runs eagerly what `loss_and_gradient` runs.
"""

from typing import Any

import torch
from torch import Tensor

from ..targets import Settings

LIBRARY = torch.library.Library("smooth_topk", "DEF")
LIBRARY.define(
    "loss_and_gradient(Tensor scores, Tensor labels, Tensor? weight, int k, float tau, float margin, "
    "int ignore_index, str reduction, str backend, bool needs_gradient) -> (Tensor, Tensor)"
)


def compiled_loss(scores: Tensor, labels: Tensor, weight: Tensor | None, settings: Settings) -> Tensor:
    """The reduced loss as one operator; tau is a number."""
    k, tau, margin, ignore_index, reduction, *_, backend = settings
    needs_gradient = scores.requires_grad and torch.is_grad_enabled()
    return torch.ops.smooth_topk.loss_and_gradient(
        scores, labels, weight, k, tau, margin, ignore_index, reduction, backend, needs_gradient
    )[0]


@torch.library.impl(LIBRARY, "loss_and_gradient", "CompositeExplicitAutograd")
def _run(
    scores: Tensor, labels: Tensor, weight: Tensor | None, k: int, tau: float, margin: float,
    ignore_index: int, reduction: str, backend: str, needs_gradient: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    from . import loss_and_gradient

    settings = Settings(k, tau, margin, ignore_index, reduction, 0.0, backend=backend)
    loss, gradient = loss_and_gradient(scores, labels, weight, settings, needs_gradient=needs_gradient)
    return loss, scores.new_empty(0) if gradient is None else gradient


@torch.library.register_fake("smooth_topk::loss_and_gradient", lib=LIBRARY)
def _describe(
    scores: Tensor, labels: Tensor, weight: Tensor | None, k: int, tau: float, margin: float,
    ignore_index: int, reduction: str, backend: str, needs_gradient: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    loss = scores.new_empty(scores.shape[:1] if reduction == "none" else ())
    return loss, scores.new_empty(scores.shape if needs_gradient else (0,))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    (gradient,) = ctx.saved_tensors
    return gradient * (grad if grad.dim() == 0 else grad.unsqueeze(-1)), *[None] * 9


torch.library.register_autograd("smooth_topk::loss_and_gradient", _backward, setup_context=_save, lib=LIBRARY)

"""What all losses share: arguments are checked, tensors become rows, labels become weights, losses are reduced.

Arguments come as people have them, plain numbers and checked tensors go out. Every refusal is a full sentence that
names the value received.
"""

import math
import operator
import sys
from collections.abc import Collection
from functools import lru_cache
from numbers import Real
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from .torch_internals import holds_numbers, is_wrapped, unwrapped

Reduction = Literal["none", "mean", "sum"]
Algorithm = Literal["pivot", "enumeration", "summation", "divide_and_conquer", "divide_and_conquer_autograd"]
Backend = Literal["auto", "torch", "numba", "triton"]
HALF = (torch.float16, torch.bfloat16)
FLOATING_POINT = (torch.float32, torch.float64, *HALF)  # what torch computes with; float8 is for storage
WITHOUT_FLOAT64 = {"mps"}  # kinds of devices: Apple's GPUs
PLAIN = {int, float, str, type(None)}  # types whose values can be remembered: equal ones mean the same


class Settings(NamedTuple):
    """What a loss is computed with besides its tensors; `smooth_topk_loss` explains each."""

    k: int
    tau: float | Tensor  # a tensor where a derivative by it may be asked for
    margin: float
    ignore_index: int
    reduction: str
    label_smoothing: float
    algorithm: str = "pivot"
    series_order: int | None = None
    backend: str = "auto"


class Rows(NamedTuple):
    """Scores and labels whose shapes, dtypes and devices fit."""

    scores: Tensor  # (N, C)
    labels: Tensor  # (N,) int64, or (N, C) probabilities
    soft: bool  # whether labels are probabilities
    shape: torch.Size  # of the losses, with reduction "none"


def checked_settings(*arguments: Any) -> Settings:
    """The fields of Settings in their order, checked; remembered, because a loss is called again with the same ones."""
    if torch.compiler.is_compiling() or not all(map(PLAIN.__contains__, map(type, arguments))):
        return _checked(*arguments)
    return _remembered(*arguments)


def _checked(
    k: Any, tau: Any, margin: Any, ignore_index: Any, reduction: Any, label_smoothing: Any,
    algorithm: Any = "pivot", series_order: Any = None, backend: Any = "auto",
) -> Settings:  # fmt: skip
    check_choice("reduction", reduction, get_args(Reduction))
    check_choice("algorithm", algorithm, get_args(Algorithm))
    check_choice("backend", backend, get_args(Backend))
    check_series_order(series_order, algorithm)
    if algorithm != "pivot" and backend not in ("auto", "torch"):
        raise ValueError(f"backend {backend!r} computes algorithm 'pivot' only, got algorithm {algorithm!r}.")
    size = whole_number("k", k)
    if size < 1:
        raise ValueError(f"k must be at least 1, got k={size}.")
    alpha = real_number("margin", margin)
    if not 0 <= alpha < math.inf:
        raise ValueError(f"margin must be a finite number, zero or more, got {margin!r}.")
    smoothing = real_number("label_smoothing", label_smoothing)
    if not 0 <= smoothing <= 1:
        raise ValueError(f"label_smoothing must be between 0 and 1, got {label_smoothing!r}.")
    ignored = whole_number("ignore_index", ignore_index)
    if not -(1 << 63) <= ignored < 1 << 63:
        raise ValueError(f"ignore_index must be within the range of int64, as labels are, got {ignored}.")
    return Settings(size, _temperature(tau), alpha, ignored, reduction, smoothing, algorithm, series_order, backend)


_remembered = lru_cache(maxsize=256, typed=True)(_checked)


def _temperature(tau: Any) -> float | Tensor:
    """A number; or, where a derivative by it may be asked for, a tensor without dimensions.

    A number on a GPU is read once, and again after it was changed in place: reading it stalls the device.
    """
    if not isinstance(tau, Tensor) or tau.numel() != 1:
        return positive_number("tau", tau)
    on_cpu = tau.device.type == "cpu"
    if tau.device.type == "meta" or not holds_numbers(tau) or is_wrapped(tau) or (tau.requires_grad and not on_cpu):
        return tau.reshape(())
    if on_cpu or tau.is_inference():
        number = positive_number("tau", tau.detach())
    else:
        version, number = getattr(tau, "_smooth_topk_number", (-1, 0.0))
        if version != tau._version:
            number = positive_number("tau", tau)
            tau._smooth_topk_number = tau._version, number  # type: ignore[attr-defined]
    return tau.reshape(()) if tau.requires_grad else number


def as_rows(scores: Tensor, labels: Tensor, weight: Tensor | None, k: int) -> Rows:
    """Checks the tensors of a loss against each other, and brings them to rows; arguments as in `smooth_topk_loss`."""
    check_floating_point("scores", scores)
    if scores.dim() == 0:
        raise ValueError("scores must have shape (N, C), (C,) or (N, C, d1, ...), got a scalar.")
    classes = scores.shape[min(1, scores.dim() - 1)]
    shape = scores.shape[:1] + scores.shape[2:] if scores.dim() > 1 else torch.Size()
    size_of_prediction(k, classes, spare=1)
    soft = isinstance(labels, Tensor) and labels.is_floating_point() and labels.shape == scores.shape
    if not soft:
        _check_labels(scores, labels, shape)
    if labels.device != scores.device:
        raise RuntimeError(f"labels must be on the device of the scores, {scores.device}, got {labels.device}.")
    if weight is not None:
        _check_weight(weight, scores, classes)
    labels = labels if soft else _as_int64(labels)
    if scores.dim() == 2:
        return Rows(scores, labels, soft, shape)
    labels = _class_last(labels, classes) if soft else labels.reshape(-1)
    return Rows(_class_last(scores, classes), labels, soft, shape)


def counted_labels(rows: Rows, weight: Tensor | None, ignore_index: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Labels (N,) with zero for those that are ignored, the weight of each row (N,), and which are ignored (N,).

    Where every row counts once, the weights are None; where no label is known to be ignored, so is the last. A label
    that cannot be looked at, on a GPU, and is not a class gets the weight NaN.
    """
    labels, ignored, wrong = rows.labels, None, None
    dtype, classes = torch.promote_types(rows.scores.dtype, torch.float32), rows.scores.shape[1]
    if not check_label_range(labels, classes, ignore_index):
        ignored = labels == ignore_index
        wrong = ((labels < 0) | (labels >= classes)) & ~ignored
        labels = labels.masked_fill(ignored | wrong, 0)
    weights = None if weight is None else weight.to(dtype)[labels]
    if ignored is not None and wrong is not None:
        weights = torch.ones_like(labels, dtype=dtype) if weights is None else weights
        weights = weights.masked_fill(ignored, 0.0).masked_fill(wrong, torch.nan)
    return labels, weights, ignored


def mixture_of_labels(
    rows: Rows, weight: Tensor | None, ignore_index: int, smoothing: float
) -> tuple[Tensor, Tensor | None]:
    """What the loss of each label counts (N, C), and what each row counts in the mean (N,), None for ones.

    As in cross-entropy: ((1 - ε) q + ε/C) w, where q is one-hot for integer labels, and zero for those ignored.
    Probabilities count once per row in the mean, whatever the weights of the classes.
    """
    classes = rows.scores.shape[1]
    dtype = torch.promote_types(rows.scores.dtype, torch.float32)
    if rows.soft:
        mixture = rows.labels.to(dtype) * (1 - smoothing) + smoothing / classes
        return (mixture if weight is None else mixture * weight.to(dtype)), None
    labels, row_weights, ignored = counted_labels(rows, weight, ignore_index)
    one_hot = labels[:, None] == torch.arange(classes, device=labels.device)  # torch's own one_hot would read values
    mixture = one_hot.to(dtype) * (1 - smoothing) + smoothing / classes
    mixture = mixture if weight is None else mixture * weight.to(dtype)
    if ignored is None or row_weights is None:
        return mixture, row_weights
    return mixture.masked_fill(ignored[:, None], 0.0).masked_fill(row_weights.isnan()[:, None], torch.nan), row_weights


def reduced(losses: Tensor, row_weights: Tensor | None, reduction: str, normaliser: Tensor | None = None) -> Tensor:
    """Σ w l for "sum", Σ w l / Σ w for "mean", and w l, shape (N,), for "none".

    Args:
        losses: (N,).
        row_weights: (N,), or None where every row counts once; a row of weight zero adds nothing, even if it is NaN.
        reduction: one of the three.
        normaliser: what "mean" divides by instead of Σ w, where the rows are a part of a batch.
    """
    weighted = losses if row_weights is None else torch.where(row_weights == 0, 0.0, losses * row_weights)
    if reduction == "none":
        return weighted
    if reduction == "mean" and row_weights is None and normaliser is None:
        return losses.mean()
    return weighted.sum() if reduction == "sum" else weighted.sum() / _divisor(losses, row_weights, normaliser)


def row_factors(like: Tensor, row_weights: Tensor | None, reduction: str, normaliser: Tensor | None = None) -> Tensor:
    """Derivatives (N,) of what `reduced` returns by the losses of the rows; for "none", of each by its own."""
    weights = like.new_ones(len(like)) if row_weights is None else row_weights
    return weights / _divisor(like, row_weights, normaliser) if reduction == "mean" else weights


def _divisor(like: Tensor, row_weights: Tensor | None, normaliser: Tensor | None) -> Tensor | int:
    return normaliser if normaliser is not None else len(like) if row_weights is None else row_weights.sum()


def without_ignored(rows: Tensor, row_weights: Tensor | None) -> Tensor:
    """Scores or a gradient (N, C), with zeros in rows of weight zero whatever they hold: zero times NaN is NaN."""
    return rows if row_weights is None else rows.masked_fill((row_weights == 0)[:, None], 0.0)


def mixed(losses: Tensor, mixture: Tensor, row_weights: Tensor | None, reduction: str) -> Tensor:
    """Like `reduced`, for labels that are mixtures: a row's loss is Σ_y m_y l_y, and "mean" divides by Σ w.

    Args:
        losses: (N, C), the loss of each label.
        mixture: (N, C) what each label counts; a label that counts zero adds nothing, even if its loss is infinite.
        row_weights: (N,), or None where every row counts once in the mean; no further factor of the losses.
        reduction: as in `reduced`.
    """
    harmless = torch.where((mixture == 0) & ~losses.isfinite(), 0.0, losses)
    of_rows = (mixture * harmless).sum(1)
    if reduction == "none":
        return of_rows
    return of_rows.sum() if reduction == "sum" else of_rows.sum() / _divisor(of_rows, row_weights, None)


def widened(scores: Tensor) -> Tensor:
    """Half precision in float32; other dtypes as they are."""
    return scores.float() if scores.dtype in HALF else scores


def wide(tensor: Tensor) -> Tensor:
    """The tensor in float64; in float32 on a device that has no float64."""
    return tensor.float() if tensor.device.type in WITHOUT_FLOAT64 else tensor.double()


def whole_number(name: str, value: Any) -> int:
    """An int from an int, an integer of numpy or a tensor that holds one integer."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}.") from None


def size_of_prediction(k: Any, count: int, *, things: str = "classes", spare: int = 0) -> int:
    """k as an int between 1 and the number of classes, or that number minus one where one class must be `spare`."""
    k = whole_number("k", k)
    if not 1 <= k <= count - spare:
        bound = f"the number of {things}" + " minus one" * spare
        raise ValueError(f"k must be between 1 and {bound}, got k={k} for {count} {things}.")
    return k


def real_number(name: str, value: Any) -> float:
    """A float from a number of Python or numpy, or a tensor that holds one number and needs no derivative."""
    if type(value) is float:
        return value  # as it is: a compiler may treat it as a variable
    if isinstance(value, int) and not -sys.float_info.max <= value <= sys.float_info.max:
        raise ValueError(f"{name} must be within the range of float64, got an integer of {value.bit_length()} bits.")
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        if value.requires_grad:
            raise ValueError(f"{name} must not require a gradient, got {value!r}.")
        return float(value)
    if getattr(value, "shape", None) == () and not isinstance(value, Tensor):  # of numpy
        value = value.item()
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{name} must be a number, got {value!r}.")


def positive_number(name: str, value: Any) -> float:
    """A positive finite float, from what `real_number` takes."""
    number = real_number(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a positive finite number, got {value!r}.")
    return number


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuses what is not among the choices."""
    if value not in tuple(choices):  # what cannot be hashed is no choice either
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_series_order(series_order: Any, algorithm: str) -> None:
    """Refuses an order that is no whole number, and one that the algorithm has no use for."""
    if series_order is None:
        return
    if algorithm != "divide_and_conquer":
        raise ValueError(f"series_order belongs to algorithm 'divide_and_conquer', got algorithm {algorithm!r}.")
    if whole_number("series_order", series_order) < 0:
        raise ValueError(f"series_order must be an integer of at least zero, got {series_order!r}.")


def check_floating_point(name: str, tensor: Any) -> None:
    """Refuses what is not a tensor of real floating-point numbers of 16 bits or more."""
    if not (isinstance(tensor, Tensor) and tensor.dtype in FLOATING_POINT):
        raise TypeError(f"{name} must be a tensor of float16, bfloat16, float32 or float64, got {_kind(tensor)}.")


def check_integers(name: str, tensor: Any) -> None:
    """Refuses what is not a tensor of integers."""
    wrong = not isinstance(tensor, Tensor) or tensor.is_floating_point() or tensor.is_complex()
    if wrong or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be a tensor of integers, got {_kind(tensor)}.")


def check_label_range(labels: Tensor, classes: int, ignore_index: int | None = None) -> bool:
    """Raises IndexError, as cross-entropy does, for a label outside [0, classes) that is not `ignore_index`.

    Returns True if the values were seen and no label is ignored. Values are looked at on the CPU only: on a GPU that
    would wait for the device, and there the loss of a row with such a label is NaN.
    """
    inside = None if torch.compiler.is_compiling() else unwrapped(labels)
    if inside is None or inside.device.type != "cpu" or not holds_numbers(inside) or not inside.numel():
        return False
    smallest, largest = (int(bound) for bound in inside.aminmax())
    if smallest >= 0 and largest < classes and (ignore_index is None or not smallest <= ignore_index <= largest):
        return True
    wrong = inside[(inside < 0) | (inside >= classes)]
    wrong = wrong[wrong != ignore_index] if ignore_index is not None else wrong
    if len(wrong):
        allowed = f"in [0, {classes})" + ("" if ignore_index is None else " or be ignore_index")
        raise IndexError(f"labels must lie {allowed}, got the label {int(wrong[0])}.")
    return False


def _check_labels(scores: Tensor, labels: Any, shape: torch.Size) -> None:
    if isinstance(labels, Tensor) and labels.is_floating_point():
        raise TypeError(
            "labels must be a tensor of integers, or of probabilities in the shape of the scores, "
            f"{tuple(scores.shape)}, got {labels.dtype} of shape {tuple(labels.shape)}."
        )
    check_integers("labels", labels)
    if labels.shape != shape:
        raise ValueError(
            f"labels must have shape {tuple(shape)} for scores of shape {tuple(scores.shape)}, "
            f"got {tuple(labels.shape)}."
        )


def _check_weight(weight: Any, scores: Tensor, classes: int) -> None:
    check_floating_point("weight", weight)
    if tuple(weight.shape) != (classes,):
        raise ValueError(f"weight must have shape ({classes},), one per class, got {tuple(weight.shape)}.")
    if weight.device != scores.device:
        raise RuntimeError(f"weight must be on the device of the scores, {scores.device}, got {weight.device}.")


def _as_int64(labels: Tensor) -> Tensor:
    """Labels as int64; one of uint64 that int64 does not hold stays out of range, and never becomes `ignore_index`."""
    if labels.dtype != torch.uint64:
        return labels.long()
    signed = labels.view(torch.int64)
    if holds_numbers(signed) and signed.device.type == "cpu" and (signed < 0).any():
        raise IndexError(f"labels must be within the range of int64, got {int(signed[signed < 0][0]) + (1 << 64)}.")
    return torch.where(signed < 0, torch.iinfo(torch.int64).max, signed)


def _class_last(tensor: Tensor, classes: int) -> Tensor:
    """(N, C, d1, ...) or (C,) as rows of classes."""
    return (tensor.movedim(1, -1) if tensor.dim() > 1 else tensor).reshape(-1, classes)


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__

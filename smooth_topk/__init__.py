"""The smooth top-k loss of Berrada, Zisserman and Kumar (ICLR 2018), accurate to rounding in float32."""

from .linear import LinearSmoothTopKLoss, linear_smooth_topk_loss
from .losses import HardTopKLoss, SmoothTopKLoss, hard_topk_loss, smooth_topk_loss
from .noisy_labels import CIFAR100_SUPERCLASSES, balanced_subset, corrupt_within_superclass, hold_out
from .polynomials import log_symmetric_polynomials
from .prediction import topk_accuracy, topk_error, topk_probabilities

__version__ = "0.1.0"

__all__ = [
    "CIFAR100_SUPERCLASSES",
    "HardTopKLoss",
    "LinearSmoothTopKLoss",
    "SmoothTopKLoss",
    "balanced_subset",
    "corrupt_within_superclass",
    "hard_topk_loss",
    "hold_out",
    "linear_smooth_topk_loss",
    "log_symmetric_polynomials",
    "smooth_topk_loss",
    "topk_accuracy",
    "topk_error",
    "topk_probabilities",
]

"""The smooth top-k loss of Berrada, Zisserman and Kumar (ICLR 2018), exact in float32."""

from .losses import HardTopKLoss, SmoothTopKLoss, hard_topk_loss, smooth_topk_loss
from .symmetric_polynomials import log_symmetric_polynomials

__all__ = [
    "HardTopKLoss",
    "SmoothTopKLoss",
    "hard_topk_loss",
    "log_symmetric_polynomials",
    "smooth_topk_loss",
]

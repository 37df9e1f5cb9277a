"""The loss classes of the authors' package `topk`, under their names: `from smooth_topk.compat import SmoothTop1SVM`.

They replace `from topk.svm import SmoothTop1SVM`: same constructor arguments, scores (N, C) and labels (N,), the mean
over the batch. Two things differ: there is no switch to the hard loss, and the gradient is exact.

Explained on the page "Coming from topk".
"""

from typing import Any

from torch import Tensor, nn

from .losses import hard_topk_loss, smooth_topk_loss


class _SVMLoss(nn.Module):
    """What the four classes share: `n_classes`, the margin `alpha` (None is 1), and checkpoints."""

    def __init__(self, n_classes: int, alpha: float | None, k: int):
        super().__init__()
        self.n_classes, self.alpha, self.k = n_classes, 1.0 if alpha is None else alpha, k
        self.register_load_state_dict_pre_hook(_drop_labels)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.n_classes:
            raise ValueError(f"scores must be (N, {self.n_classes}), got shape {tuple(x.shape)}.")
        return self._loss(x, y)

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return hard_topk_loss(x, y, k=self.k, margin=self.alpha)

    def extra_repr(self) -> str:
        return f"n_classes={self.n_classes}, alpha={self.alpha}, k={self.k}"


class MaxTop1SVM(_SVMLoss):
    """The multi-class hinge loss of Crammer and Singer: `hard_topk_loss` with k = 1."""

    def __init__(self, n_classes: int, alpha: float | None = None):
        super().__init__(n_classes, alpha, 1)


class MaxTopkSVM(_SVMLoss):
    """The top-k hinge loss l_k, eq. (8): `hard_topk_loss`."""

    def __init__(self, n_classes: int, alpha: float | None = None, k: int = 5):
        super().__init__(n_classes, alpha, k)


class SmoothTopkSVM(_SVMLoss):
    """The smooth top-k loss L_{k,τ}, eq. (9): `smooth_topk_loss`. `tau` may be changed between two steps."""

    def __init__(self, n_classes: int, alpha: float | None = None, tau: float = 1.0, k: int = 5):
        super().__init__(n_classes, alpha, k)
        self.tau = tau

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return smooth_topk_loss(x, y, k=self.k, tau=self.tau, margin=self.alpha)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, tau={self.tau}"


class SmoothTop1SVM(SmoothTopkSVM):
    """The smooth top-1 loss, `smooth_topk_loss` with k = 1: cross-entropy with a margin and a temperature.

    Example:
        >>> import torch
        >>> SmoothTop1SVM(n_classes=2)(torch.tensor([[2.0, 1.0]]), torch.tensor([0]))  # softplus(1 - (2 - 1))
        tensor(0.6931)
    """

    def __init__(self, n_classes: int, alpha: float | None = None, tau: float = 1.0):
        super().__init__(n_classes, alpha, tau, k=1)


def _drop_labels(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """The authors' classes save their class numbers 0, 1, ... as a buffer; ours have no tensors."""
    state_dict.pop(prefix + "labels", None)

"""Elementary symmetric polynomials σ_0..σ_k of e = exp(x), in logarithms; one algorithm per file (section 4).

Every algorithm is a function log_sigma(x, k) from (N, n) to (N, k + 1): x is log e, -inf deletes an element, k is the
largest degree, and log σ_j is -inf where no subset of that size exists.
"""

import torch
from torch import Tensor

from ..targets import check_choice, check_floating_point, check_series_order, size_of_prediction, widened
from . import backward, divide_and_conquer, enumeration, pivot, summation

ALGORITHMS = {
    "auto": pivot.log_sigma,
    "pivot": pivot.log_sigma,
    "enumeration": enumeration.log_sigma,
    "summation": summation.log_sigma,
    "divide_and_conquer": backward.log_sigma,
    "divide_and_conquer_autograd": divide_and_conquer.log_sigma,
}


def log_symmetric_polynomials(x: Tensor, k: int, *, algorithm: str = "auto", series_order: int | None = None) -> Tensor:
    """log σ_0, ..., log σ_k of exp(x): σ_j is the sum of all products of j distinct elements (section 4.1).

    Args:
        x: (..., n) logarithms of the elements; -inf deletes one. Half precision is computed in float32.
        k: largest degree, 1 <= k <= n.
        algorithm: "auto" and "pivot" are the pivot algorithm, accurate to rounding for any x; "enumeration",
            "summation", "divide_and_conquer" and "divide_and_conquer_autograd" are the paper's, for study.
        series_order: p of the paper's approximate backward pass ("divide_and_conquer" only); by default
            max(1, round(k/5)).

    Returns:
        (..., k + 1) in the dtype of x; -inf where every product of j elements is zero.

    Example:
        >>> log_symmetric_polynomials(torch.tensor([1.0, 2.0, 3.0]).log(), 3).exp()
        tensor([ 1.0000,  6.0000, 11.0000,  6.0000])

    Explained in notebooks/03_subsets_to_polynomials.
    """
    check_floating_point("x", x)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"x must have at least one element in its last dimension, got shape {tuple(x.shape)}.")
    k = size_of_prediction(k, x.shape[-1], things="elements")
    check_choice("algorithm", algorithm, ALGORITHMS)
    check_series_order(series_order, algorithm)
    rows = widened(x.reshape(-1, x.shape[-1]))
    options = {} if series_order is None else {"series_order": series_order}
    log_sigma = ALGORITHMS[algorithm](rows, k, **options)
    return log_sigma.reshape(*x.shape[:-1], k + 1).to(x.dtype)


def without_label(x: Tensor, labels: Tensor) -> Tensor:
    """The columns of x other than the label, in their order: x (N, n) and labels (N,) to (N, n - 1).

    Example:
        >>> without_label(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([1]))
        tensor([[1., 3.]])
    """
    places = torch.arange(x.shape[1] - 1, device=x.device)
    return x.gather(1, places + (places >= labels[:, None]))

"""The largest terms of the sums over all k-subsets of the classes: numbers of chapter 4."""

import math

import pandas as pd
from torch import Tensor


def largest_term_table(scores: Tensor, *, k: int, tau: float) -> pd.DataFrame:
    """Returns the decimal exponent of the largest term of σ_1..σ_k, which is exp(x_[1] + ... + x_[j]) with x = s/(kτ).

    Args:
        scores: (n,) scores of one sample.

    Returns:
        Columns degree, exponent.
    """
    exponents = scores.double().topk(k).values.cumsum(0).div(k * tau * math.log(10))
    return pd.DataFrame({"degree": range(1, k + 1), "exponent": exponents})

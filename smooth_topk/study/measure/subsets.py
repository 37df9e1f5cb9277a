"""Sums over all k-subsets of the classes, subset by subset: numbers of chapters 3, 4 and 11."""

import math
from itertools import combinations

import pandas as pd
import torch
from torch import Tensor


def subset_table(scores: Tensor, label: int, *, k: int, tau: float, margin: float = 1.0) -> pd.DataFrame:
    """Returns the terms of eq. (9) for one sample: every k-subset of its classes with its share of the first sum.

    Returns:
        Columns subset (class numbers as text), share (sums to 1), with_label; the largest share first.
    """
    subsets = list(combinations(range(len(scores)), k))
    with_label = torch.tensor([label in subset for subset in subsets])
    mean = scores.double()[torch.tensor(subsets)].mean(1)
    share = torch.softmax((mean + margin * ~with_label) / tau, 0)
    names = ["{" + ", ".join(map(str, subset)) + "}" for subset in subsets]
    table = pd.DataFrame({"subset": names, "share": share.numpy(), "with_label": with_label.numpy()})
    return table.sort_values("share", ascending=False, ignore_index=True)


def largest_term_table(scores: Tensor, *, k: int, tau: float) -> pd.DataFrame:
    """Returns the decimal exponent of the largest term of σ_1..σ_k, which is exp(x_[1] + ... + x_[j]) with x = s/(kτ).

    Args:
        scores: (n,) scores of one sample.

    Returns:
        Columns degree, exponent.
    """
    exponents = scores.double().topk(k).values.cumsum(0).div(k * tau * math.log(10))
    return pd.DataFrame({"degree": range(1, k + 1), "exponent": exponents})

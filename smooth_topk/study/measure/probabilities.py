"""Softmax and top-k marginals (tau = 1/k, as in appendix C) of one sample and of several crops of one image."""

from collections.abc import Sequence

import pandas as pd
from torch import Tensor

from smooth_topk import topk_probabilities


def probability_table(scores: Tensor, names: Sequence[str], *, k: int) -> pd.DataFrame:
    """Returns softmax and top-k marginals of one sample's scores (n,): columns name, softmax, marginal."""
    marginals = topk_probabilities(scores, k, tau=1 / k)
    return pd.DataFrame({"name": list(names), "softmax": scores.softmax(-1), "marginal": marginals})


def crop_table(scores: Tensor, names: Sequence[str], *, k: int) -> pd.DataFrame:
    """Returns the probabilities of each crop and their mean, for the scores (crops, n) of one image.

    Returns:
        Columns name, softmax, marginal, crop ("crop 1", ..., "mean").
    """
    parts = [probability_table(row, names, k=k).assign(crop=f"crop {place}") for place, row in enumerate(scores, 1)]
    means = {"softmax": scores.softmax(-1).mean(0), "marginal": topk_probabilities(scores, k, tau=1 / k, crops=0)}
    mean = pd.DataFrame({"name": list(names), **means, "crop": "mean"})
    return pd.concat([*parts, mean], ignore_index=True)

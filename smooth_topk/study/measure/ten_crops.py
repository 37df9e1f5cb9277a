"""Ten crops of an image made into one answer (appendix C): scores (N, 10, C) in, accuracies with intervals out."""

import numpy as np
import pandas as pd
from torch import Tensor

from smooth_topk.study.training.evaluation import combined_crops

RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)  # percent
BASELINE = "ten crops, softmax averaged"


def crop_answers(scores: Tensor, k: int = 5) -> dict[str, Tensor]:
    """Returns the answers of `combined_crops`, (N, C) in float64, by what the tables call them."""
    answers = combined_crops(scores, k)
    return {
        "one crop": answers["central"],
        BASELINE: answers["softmax"],
        "ten crops, scores averaged": answers["scores"],
        f"ten crops, top-{k} marginals averaged": answers["marginals"],
    }


def compare_ten_crops(scores: Tensor, labels: Tensor, *, k: int = 5, seed: int = 0) -> pd.DataFrame:
    """Returns top-1 and top-5 accuracy of every way, and its difference from averaged softmax, with intervals.

    The intervals hold 95 % of 10,000 bootstrap resamples of the images. They are paired: one resample takes the same
    images for both ways, so that what is common to both cancels in the difference.

    Returns:
        Columns method, metric, accuracy, low, high, difference, difference_low, difference_high, images; shares.
    """
    answers = crop_answers(scores, k)
    resampled = resample_weights(len(labels), seed)
    rows = []
    for metric, size in (("top1", 1), ("top5", 5)):
        baseline = hits(answers[BASELINE], labels, size)
        for method, answer in answers.items():
            found = hits(answer, labels, size)
            values = {"accuracy": found, "difference": found - baseline}
            row = {"method": method, "metric": metric}
            for name, value in values.items():
                low, high = np.percentile(resampled @ value, INTERVAL)
                prefix = "" if name == "accuracy" else f"{name}_"
                row |= {name: value.mean(), f"{prefix}low": low, f"{prefix}high": high}
            rows.append({**row, "images": len(labels)})
    return pd.DataFrame(rows)


def hits(answers: Tensor, labels: Tensor, k: int) -> np.ndarray:
    """Whether each label is among the k classes ranked first, (N,) of 0 and 1."""
    true_answer = answers.gather(1, labels[:, None])
    return ((answers > true_answer).sum(1) < k).double().numpy()


def resample_weights(count: int, seed: int) -> np.ndarray:
    """Share of each sample in every bootstrap resample, (10,000, count)."""
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    return drawn / count

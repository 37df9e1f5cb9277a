"""The example of chapters 0 to 6: a photograph of a spider in its web, and the seven names that a network ranks first.

The scores are those of a trained network for one image of ImageNet (book/results/imagenet_scores.npz), rounded to three
decimals so that a reader can type them in. The label, *spider web*, has the fifth largest score.
"""

from typing import NamedTuple

from torch import Tensor

from smooth_topk.study.records.imagenet_scores import read_scores

PHOTOGRAPH = 64  # its row among the recorded scores
SHORT_NAMES = {
    "black and gold garden spider": "gold",
    "garden spider": "garden",
    "barn spider": "barn",
    "black widow": "widow",
    "spider web": "web",
    "ant": "ant",
    "rhinoceros beetle": "beetle",
}


class Example(NamedTuple):
    """One sample: its scores (n,) in float64, in descending order, the names of the classes, and the true class."""

    scores: Tensor
    names: list[str]
    label: int


def spider() -> Example:
    """Returns the seven largest scores of the photograph, with the short names of their classes.

    Example:
        >>> scores, names, label = spider()
        >>> names[label], scores[label].item()
        ('web', 5.8)
    """
    recorded = read_scores()
    assert recorded is not None, "imagenet_scores.npz is part of the project"
    scores, classes = recorded.scores[PHOTOGRAPH].topk(len(SHORT_NAMES))
    names = [SHORT_NAMES[recorded.class_names[index]] for index in classes]
    return Example(scores.round(decimals=3), names, classes.tolist().index(recorded.labels[PHOTOGRAPH].item()))

"""The drawings that come before the numbers: what they say of a noise level, and of scores that tie."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import FancyArrowPatch

from smooth_topk.study import figures


@pytest.fixture(autouse=True)
def clean_canvas():
    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.mark.parametrize(("noise_level", "moved", "stays"), [(0.5, "10%", "60% stay"), (1.0, "20%", "20% stay")])
def test_a_label_stays_or_moves_with_equal_shares_to_the_other_classes_of_its_group(noise_level, moved, stays):
    ax = figures.label_noise(["a", "b", "c", "d", "e"], ["x", "y", "z"], noise_level)
    texts = [text.get_text() for text in ax.texts]
    assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == texts.count(moved) == 4
    assert stays in texts


def test_scores_are_drawn_without_their_mean_with_the_best_answer_in_its_own_colour():
    scores = {"hard": [3.0, 0.0, 0.0], "L_{1,1}": [2.0, 1.0, 0.0]}
    truth, hard, smooth = figures.tie_of_scores([0.5, 0.3, 0.2], scores, k=1)
    heights = [
        [y for part in ax.collections for path in part.get_paths() for y in path.vertices[1:2, 1]]
        for ax in (hard, smooth)
    ]
    assert heights == [[2.0, -1.0, -1.0], [1.0, 0.0, -1.0]]
    assert [len(part.get_paths()) for part in truth.collections] == [1, 2]
    assert [line.get_ydata()[0] for line in hard.lines] == [2.0, 0.0]  # the k-th score and the axis
    assert len(truth.lines) == 1

"""The figures of the family: places, verdicts that can be read without colour, and panels that say what was not run."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch

from smooth_topk.study.figures import family
from smooth_topk.study.figures.style import use_style
from smooth_topk.study.measure.family_curves import family_curve_table
from smooth_topk.study.tables.family import TAU_COLUMNS

COLUMNS = ["setting", "loss", "mean", "low", "high", "seeds"]


@pytest.fixture(autouse=True)
def clean_canvas():
    mpl.use("Agg")
    with mpl.rc_context():
        use_style()
        yield
        plt.close("all")


@pytest.fixture
def differences():
    rows = [
        ("20,000 images", "top-5 entropy", 0.5, 0.2, 0.8, 5),
        ("20,000 images", "hard top-5", -9.0, -9.5, -8.5, 5),
        ("p = 0.8, superclasses", "top-5 entropy", 0.1, -0.2, 0.4, 5),
        ("p = 0.8, superclasses", "L_{5,1}", -0.6, -0.9, -0.3, 4),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def markers(ax):
    """Marker and place of every point that was drawn."""
    lines = [line for line in ax.lines if line.get_marker() not in ("", "None")]
    return {(line.get_marker(), *map(float, line.get_xydata()[0])) for line in lines}


def test_every_setting_has_a_panel_and_every_loss_its_row(differences):
    left, right = family.family_figure(differences).values()
    labels = [label.get_text() for label in left.get_yticklabels()]
    assert "cross-entropy" not in labels
    assert labels[-2:] == ["$L_{5,1}$", "$L_{5,0.1}$"]
    assert left.get_title(loc="left") == "20,000 images"
    assert right.get_title(loc="left") == "p = 0.8, superclasses"
    assert left.figure.get_supxlabel().endswith("4 to 5 seeds")
    entropy = float(labels.index("top-5 entropy"))
    assert ("^", 0.5, entropy) in markers(left)
    assert ("o", 0.1, entropy) in markers(right)
    assert ("v", -0.6, float(labels.index("$L_{5,1}$"))) in markers(right)


def test_what_lies_beyond_the_limit_stands_at_the_edge_with_its_number(differences):
    left = family.family_figure(differences)["20,000 images"]
    assert ("<", -4.0, 2.0) in markers(left)
    assert [text.get_text() for text in left.texts] == ["−9.0"]


def test_a_difference_without_an_interval_decides_nothing():
    assert family.verdict({"mean": 3.0, "low": float("nan"), "high": float("nan")}) == "cannot be told from it"


def test_pictures_without_runs_say_so():
    (ax,) = family.family_figure(pd.DataFrame(columns=COLUMNS)).values()
    assert ax.get_title(loc="left") == "not run"
    (ax,) = family.tau_figure(pd.DataFrame(columns=TAU_COLUMNS))
    assert ax.get_title(loc="left") == "not run"


def test_the_best_tau_lies_at_zero_and_every_k_has_its_line():
    rows = [
        (classes, k, tau, 50.0, -((tau - k) ** 2), 0, 0, 3) for classes in (20, 100) for k in (1, 3) for tau in (1, 3)
    ]
    left, right = family.tau_figure(pd.DataFrame(rows, columns=TAU_COLUMNS))
    assert [line.get_label() for line in right.lines[:2]] == ["k = 1", "k = 3"]
    assert left.lines[0].get_ydata().tolist() == [0, -4]
    assert left.lines[1].get_ydata().tolist() == [-4, 0]


def test_the_chosen_loss_is_drawn_in_front_and_the_kth_score_is_marked():
    curves = family_curve_table(torch.tensor([3.0, 1.0, 0.0, -1.0]), k=2, points=13)
    left, right = family.family_curves(curves, "topk_entropy")
    labels = [line.get_label() for line in left.lines if not line.get_label().startswith("_")]
    assert labels == ["cross-entropy", "top-k entropy"]
    assert list(left.lines[-1].get_xdata()) == [1.0, 1.0]
    assert len(right.lines) == curves["loss"].nunique() + 1


def test_a_loss_whose_package_is_missing_says_so():
    curves = family_curve_table(torch.tensor([3.0, 1.0, 0.0]), k=2, points=5)
    left, _ = family.family_curves(curves[curves["loss"] != "difftopk"], "difftopk")
    assert [text.get_text() for text in left.texts] == ["needs difftopk"]

"""The figures and the table of calibration: bars add up, points lie where the probabilities say, settings are named."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest

from smooth_topk.study.figures.calibration import calibration_bars, calibration_map, local_minima_curves
from smooth_topk.study.figures.style import use_style
from smooth_topk.study.tables.calibration import calibration_table


@pytest.fixture(autouse=True)
def clean_canvas():
    mpl.use("Agg")
    with mpl.rc_context():
        use_style()
        yield
        plt.close("all")


def row(loss, parameters, verdict, *, k=2, tau=None, margin=None, probabilities="0.1 0.5 0.15 0.25", right=10):
    return {
        "loss": loss, "parameters": parameters, "k": k, "tau": tau, "margin": margin, "probabilities": probabilities,
        "verdict": verdict, "starts": 10, "starts_right": right,
    }  # fmt: skip


@pytest.fixture
def measured():
    rows = [
        row("smooth", "k=2, tau=0.1, margin=1", "right", tau=0.1, margin=1.0, right=6),
        row("smooth", "k=2, tau=1, margin=1", "right", tau=1.0, margin=1.0),
        row("smooth", "k=3, tau=0.1, margin=1", "right", k=3, tau=0.1, margin=1.0, right=8),
        row("smooth", "k=2, tau=0.1, margin=0", "right", tau=0.1, margin=0.0),
        row("hard", "k=2, margin=1", "tie", margin=1.0, right=0),
        row("hard", "k=3, margin=1", "right", k=3, margin=1.0, right=5),
        row("difftopk", "k=2, inverse_temperature=2, top1_share=0.5", "wrong", right=0),
        row("cross_entropy", "k=2", "right"),
    ]
    return pd.DataFrame(rows)


def test_the_table_counts_verdicts_per_loss_and_setting_and_pools_k_and_tau(measured):
    table = calibration_table(measured).set_index(["loss", "setting"])
    assert table.index.tolist() == [
        ("cross-entropy", ""),
        ("hard top-k hinge", "margin = 1"),
        ("difftopk", "P₁ = 0.5"),
        ("smooth top-k, L_{k,τ}", "margin = 1"),
        ("smooth top-k, L_{k,τ}", "margin = 0"),
    ]
    hard = table.loc[("hard top-k hinge", "margin = 1")]
    assert hard[["problems", "right", "tie", "wrong"]].tolist() == [2, 1, 1, 0]
    assert hard["starts right"] == pytest.approx(0.25)
    assert hard["known"] == "no"
    assert table.loc[("smooth top-k, L_{k,τ}", "margin = 1"), "starts right"] == pytest.approx(0.8)


def test_the_bars_of_every_loss_add_up_to_all_distributions(measured):
    ax = calibration_bars(measured)
    ends = {}
    for patch in ax.patches:
        place = round(patch.get_y() + patch.get_height() / 2)
        ends[place] = max(ends.get(place, 0), patch.get_x() + patch.get_width())
    assert ends == pytest.approx(dict.fromkeys(range(5), 100.0))
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[-1] == "cross-entropy"
    assert r"smooth top-k, $L_{k,\tau}$, margin = 0" in labels


def test_a_point_lies_at_the_kth_probability_and_the_sum_beyond(measured):
    ax = calibration_map(measured, "hard")
    points = {item.get_label(): item.get_offsets().tolist() for item in ax.collections}
    assert points["right"] == [pytest.approx([0.1, 0.15])]
    (tie,) = (offsets for label, offsets in points.items() if label.startswith("a tie"))
    assert tie == [pytest.approx([0.25, 0.25])]


def test_a_loss_that_was_not_measured_is_refused_with_those_that_were(measured):
    with pytest.raises(ValueError, match="no rows of 'topk_entropy'; it has cross_entropy, difftopk, hard, smooth"):
        calibration_map(measured, "topk_entropy")


def test_the_curves_show_the_share_of_starts_that_end_right(measured):
    ax = local_minima_curves(measured)
    curves = {line.get_label(): line for line in ax.lines}
    assert curves["margin 1"].get_xdata().tolist() == [0.1, 1.0]
    assert curves["margin 1"].get_ydata().tolist() == pytest.approx([70, 100])
    assert curves["margin 0"].get_ydata().tolist() == pytest.approx([100])

"""Figures and tables of chapters 3 to 6: what is drawn and counted is what the mathematics says."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from smooth_topk import smooth_topk_loss
from smooth_topk.study import figures, measure
from smooth_topk.study.figures.polynomials import polynomial_text
from smooth_topk.study.measure.exact import exact_loss

ROUNDING = 1e-12  # float64, a few hundred operations
NUMBERS = [1, 2, 1, 3, 2, 1, 4, 2]


@pytest.fixture(autouse=True)
def clean_canvas():
    mpl.use("Agg")
    yield
    plt.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_the_grid_of_the_summation_algorithm_ends_with_the_polynomials():
    ax = figures.summation_grid(NUMBERS, 3)
    assert texts(ax)[-6:-1] != texts(figures.summation_grid(NUMBERS, 3, step=4))[-6:-1]
    assert {"402", "108", "16"} <= set(texts(ax))


def test_the_root_of_the_tree_holds_the_polynomials():
    assert "1 + 16X + 108X²\n+ 402X³ + …" in texts(figures.product_tree(NUMBERS, 3))
    assert len(texts(figures.product_tree(NUMBERS, 3, levels=0))) == len(NUMBERS)


def test_an_odd_level_of_the_tree_is_padded_by_one():
    assert texts(figures.product_tree(NUMBERS[:7], 3)).count("1") == 1


def test_a_term_with_coefficient_one_is_written_without_it():
    assert polynomial_text([1, 1, 12]) == ["1", "X", "12X²"]


@pytest.mark.parametrize("tau", [10.0, 0.1, 1e-4])
def test_the_exact_loss_is_that_of_the_package_in_float64(tau):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 12, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 5, 11])
    losses, gradients = exact_loss(scores.detach(), labels, k=3, tau=tau)
    found = smooth_topk_loss(scores, labels, k=3, tau=tau, reduction="none")
    assert (found - losses).abs().max() < ROUNDING
    assert (torch.autograd.grad(found.sum(), scores)[0] - gradients).abs().max() < ROUNDING


def test_the_error_table_tells_a_wrong_loss_from_a_right_one():
    def off(scores, labels, *, k, tau):
        return 1.5 * smooth_topk_loss(scores, labels, k=k, tau=tau, reduction="none")

    def lost(scores, labels, *, k, tau):
        return off(scores, labels, k=k, tau=tau) * torch.nan

    table = measure.error_table({"off": off, "lost": lost}, *measure.random_scores(2, 10), taus=[1.0], k=3)
    table = table.set_index("algorithm")
    assert table.loc["off", ["loss_error", "gradient_error"]].tolist() == pytest.approx([0.5, 0.5], rel=1e-5)
    assert np.isinf(table.loc["lost", "gradient_error"])


def test_error_maps_share_one_colour_scale():
    table = pd.DataFrame({"algorithm": ["a", "a", "b", "b"], "tau": [1, 2] * 2, "scale": 1.0, "error": [0, 1, 2, 3]})
    axes = figures.error_maps(table)
    assert [ax.get_title(loc="left") or ax.get_title() for ax in axes] == ["a", "b"]
    assert axes[0].collections[0].norm.vmax == axes[1].collections[0].norm.vmax == 1.0


def test_error_curves_mark_what_is_not_finite():
    table = pd.DataFrame({"algorithm": "pivot", "tau": [0.1, 1.0], "error": [np.inf, 1e-3]})
    curve, crosses = figures.error_curves(table, x="tau").lines
    assert curve.get_xdata().tolist() == [1.0]
    assert crosses.get_xdata().tolist() == [0.1]


def test_crosses_stand_above_all_curves():
    errors = [np.inf, 1e-3, 1.0, np.inf]
    table = pd.DataFrame({"algorithm": ["a", "a", "b", "b"], "tau": [1.0, 2.0] * 2, "error": errors})
    ax = figures.error_curves(table, x="tau")
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    lowest = min(line.get_ydata()[0] for line in crosses)  # as a share of the height of the axes
    largest = ax.transAxes.inverted().transform(ax.transData.transform((1.0, 1.0)))[1]
    assert len(crosses) == 2
    assert lowest > largest + 0.02


def test_a_name_that_is_no_algorithm_has_a_colour_of_the_book():
    table = pd.DataFrame({"method": ["x", "y"], "tau": 1.0, "error": 1e-3})
    colours = [line.get_color() for line in figures.error_curves(table, x="tau", curves="method").lines]
    assert len(set(colours)) == 2
    assert not any(colour.startswith("C") for colour in colours)


def test_the_stepper_shows_the_columns_that_are_filled_and_how_the_last_one_was_made():
    tail, joined = torch.tensor([1.0, 0.503]), torch.tensor([1.0, 1.503])
    names, distance = ["a", "b", "c"], [0.0, -1.0, -2.0]
    above, below = figures.pivot_steps(names, distance, [(tail, None), (joined, torch.ones(1))], step=1)
    assert len(below.patches) == 4
    assert texts(below)[-1].endswith("1 × 0.503 + 1  =  1.5")
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["tail", "joins now"]

"""The figures: what is drawn is what the table holds, and colours and markers keep their meaning."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex

from smooth_topk.study import figures, measure
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.figures import style
from smooth_topk.study.figures.style import use_style

DRAWN_EXACTLY = 1e-9  # percent of a double
READABLE_LUMA = (0.1, 0.58)  # beyond 0.58 a contrast of 3 to 1 is lost on white, and on black after inversion


@pytest.fixture(autouse=True)
def clean_canvas():
    mpl.use("Agg")
    with mpl.rc_context():
        use_style()
        yield
        plt.close("all")


def run(accuracy, **config):
    config = RunConfig(**config)
    return {"run_id": config.run_id, **config.to_dict(), "train_images": 500, "test_top5": accuracy}


def line(ax, label):
    """The points of the curve with that label, error bars or not."""
    for container in ax.containers:
        if container.get_label() == label:
            return container.lines[0]
    return next(drawn for drawn in ax.lines if drawn.get_label() == label)


def test_the_noise_figure_draws_the_mean_over_seeds_and_the_papers_values():
    runs = pd.DataFrame([run(0.5, noise_level=0.2), run(0.6, noise_level=0.2, seed=1)])
    ax = figures.noise_figure(runs)
    assert line(ax, "CE, ours (2 seeds)").get_ydata() == pytest.approx([55.0], abs=DRAWN_EXACTLY)
    assert line(ax, "CE, paper").get_ydata()[0] == 94.34


def test_the_papers_markers_are_hollow_and_ours_are_filled():
    ax = figures.noise_figure(pd.DataFrame([run(0.5, loss="smooth")]))
    assert line(ax, "$L_{5,1}$, paper").get_markerfacecolor() == "white"
    assert to_hex(line(ax, "$L_{5,1}$, ours (1 seed)").get_markerfacecolor()) == style.BLUE


def test_beside_the_paper_our_runs_have_a_panel_of_their_own():
    left, right = figures.noise_beside_paper(pd.DataFrame([run(0.5, noise_level=0.2) | {"train_images": 250}]))
    assert line(left, "CE, paper").get_ydata()[0] == 94.34
    assert line(right, "CE, ours (1 seed)").get_ydata() == pytest.approx([50.0], abs=DRAWN_EXACTLY)
    assert "250 images" in right.get_title(loc="left")
    assert len(left.containers) == 2
    assert len(right.containers) == 1


def test_beside_the_paper_nothing_of_ours_is_called_not_run():
    _, right = figures.noise_beside_paper(pd.DataFrame([run(0.5)]).iloc[:0])
    assert right.get_title(loc="left") == "ours: not run"


def test_the_noise_figure_refuses_to_average_different_settings():
    runs = pd.DataFrame([run(0.5, epochs=1), run(0.6, epochs=2)])
    with pytest.raises(ValueError, match="epochs cannot be averaged"):
        figures.noise_figure(runs)


def test_the_small_data_figure_has_a_point_for_each_size():
    rows = [run(0.5, train_size=0.5) | {"train_images": 250}, run(0.7)]
    ax = figures.small_data_figure(pd.DataFrame(rows))
    assert line(ax, "CE, ours (1 seed)").get_xdata().tolist() == [250, 500]
    assert ax.get_xscale() == "log"


def test_training_curves_are_errors_in_the_colour_of_their_tau():
    runs = pd.DataFrame([run(0, loss="smooth", tau=0.1), run(0, loss="hard"), run(0)])
    epochs = pd.DataFrame({"run_id": runs["run_id"].repeat(2), "epoch": [0, 1] * 3, "train_top5": [0.1, 0.8] * 3})
    ax = figures.training_curves_by_tau(epochs, runs)
    labels = [drawn.get_label() for drawn in ax.lines]
    assert labels == ["τ = 0", "τ = 0.1", "random"]  # cross-entropy has no tau and is not drawn
    assert line(ax, "τ = 0.1").get_ydata() == pytest.approx([0.9, 0.2])
    assert line(ax, "τ = 0.1").get_color() == style.tau_colour(0.1)
    assert line(ax, "random").get_ydata()[0] == pytest.approx(0.95)


def test_gradient_sparsity_is_in_percent_with_the_hard_loss_as_a_line():
    ax = figures.gradient_sparsity(pd.DataFrame({"tau": [0.0, 0.1, 1.0], "share": [0.02, 0.5, 1.0]}))
    assert line(ax, "smooth loss").get_ydata().tolist() == [50, 100]
    assert line(ax, "hard loss (τ = 0)").get_ydata()[0] == 2


def test_the_speed_figure_leaves_out_times_that_other_processes_disturbed():
    rows = [("cross_entropy", 10, 1.0, True), ("pivot", 10, 9.0, False), ("pivot", 100, 2.0, True)]
    times = pd.DataFrame(rows, columns=["algorithm", "n", "seconds", "quiet"])
    left, _ = figures.speed_figure(times)
    assert line(left, "pivot").get_xdata().tolist() == [100]
    left, _ = figures.speed_figure(times.assign(quiet=False))
    assert line(left, "pivot").get_xdata().tolist() == [10, 100]


def test_the_stability_figure_shows_both_errors_of_one_precision():
    rows = [("pivot", "float32", 0.1, 1e-7, 2e-7), ("summation", "float32", 0.1, np.inf, np.inf)]
    rows.append(("pivot", "float64", 0.1, 1e-16, 1e-16))
    columns = ["algorithm", "dtype", "tau", "error", "gradient_error"]
    left, right = figures.stability_figure(pd.DataFrame(rows, columns=columns))
    assert line(left, "pivot").get_ydata().tolist() == [1e-7]
    assert line(right, "pivot").get_ydata().tolist() == [2e-7]
    assert [drawn.get_marker() for drawn in left.lines].count("x") == 1
    (legend,) = left.get_figure().legends
    assert len(legend.get_texts()) == 2
    assert left.get_legend() is right.get_legend() is None


def test_the_speed_figure_draws_medians_and_ratios_on_log_scales():
    times = pd.DataFrame(
        [("pivot", 10, 1.0), ("pivot", 10, 3.0), ("pivot", 10, 2.0), ("summation", 10, 8.0)],
        columns=["algorithm", "n", "seconds"],
    )
    left, right = figures.speed_figure(times, baseline="pivot")
    assert line(left, "pivot").get_ydata().tolist() == [2.0]
    assert [drawn.get_ydata().tolist() for drawn in right.lines] == [[1.0], [4.0]]
    assert left.get_xscale() == left.get_yscale() == right.get_yscale() == "log"
    with pytest.raises(ValueError, match="baseline must be one of"):
        figures.speed_figure(times, baseline="none")


def test_the_error_map_crosses_out_what_is_not_finite():
    table = pd.DataFrame({"tau": [1, 0.1, 1, 0.1], "scale": [1, 1, 10, 10], "error": [0.0, 1e-7, np.nan, np.inf]})
    (ax,) = figures.error_maps(table.assign(algorithm="pivot"), scale=(1e-16, 1.0))
    assert len(ax.patches) == 2
    values = ax.collections[0].get_array()
    assert values.min() == 1e-16  # an exact result is drawn at the end of the log scale
    assert values.mask.sum() == 2


def test_loss_curves_show_the_values_of_the_losses():
    others = torch.linspace(-1, 1, 9)
    table = measure.loss_curve_table(others, torch.linspace(-5, 5, 51), k=2, taus=[1e-4])
    hard, smooth = (table[table["loss"] == loss]["value"].to_numpy() for loss in ("hard", "smooth"))
    assert np.abs(hard - smooth).max() < 1e-3  # the limit of Proposition 2, tau log of a binomial away
    ax = figures.loss_curves(table)
    assert line(ax, "hard").get_ydata() == pytest.approx(hard)
    assert line(ax, "cross-entropy").get_linestyle() == "--"


def test_several_taus_take_the_colours_of_the_map():
    ax = figures.loss_curves(measure.loss_curve_table(torch.zeros(9), torch.linspace(-5, 5, 51), k=2, taus=[0.1, 1.0]))
    assert line(ax, "smooth, τ = 0.1").get_color() == style.tau_colour(0.1)
    assert style.tau_colour(0.1) != style.tau_colour(1.0)


@pytest.mark.parametrize("tau", [10.0**power for power in range(-4, 3)])
def test_the_colour_of_every_tau_can_be_read_on_white_and_inverted_on_a_dark_page(tau):
    luma = float(np.array(style.tau_colour(tau)[:3]) @ style.LUMA)
    assert READABLE_LUMA[0] < luma < READABLE_LUMA[1]


@pytest.mark.parametrize(("loss", "kind"), [("CE", "cross_entropy"), ("L_{5,1}", "smooth"), ("l_5", "hard")])
def test_the_papers_names_look_like_the_losses_they_name(loss, kind):
    assert style.look_of_loss(loss) == style.look_of_loss(kind)


def test_an_unknown_loss_has_no_look():
    with pytest.raises(ValueError, match="got 'focal'"):
        style.look_of_loss("focal")


def test_a_figure_is_drawn_into_the_axes_it_is_given():
    _, ax = plt.subplots()
    assert figures.gradient_sparsity(pd.DataFrame({"tau": [1.0], "share": [1.0]}), ax=ax) is ax

"""Tables and figures of the study chapters beyond the paper's own: differences, early stopping, curves."""

import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch

from smooth_topk.study import figures, tables
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.figures.style import tau_colour
from smooth_topk.study.tables.cells import mean_and_std

SMOOTH = {"loss": "smooth", "tau": 0.2}


@pytest.fixture(autouse=True)
def clean_canvas():
    mpl.use("Agg")
    yield
    plt.close("all")


def run(best, last=None, **config):
    config = RunConfig(**config)
    results = {"test_top5": best, "last_test_top5": best if last is None else last, "best_epoch": 1}
    return {"run_id": config.run_id, **config.to_dict(), "status": "finished", "train_images": 100, **results}


def epochs_of(runs, count=3):
    rows = [
        {"run_id": run_id, "epoch": epoch, "tau": 1.0, "train_top1": 0.1 * epoch, "validation_top5": 0.2 * epoch}
        for run_id in runs["run_id"]
        for epoch in range(count)
    ]
    return pd.DataFrame(rows)


def test_the_gain_is_taken_seed_by_seed():
    rows = [run(0.5, seed=0), run(0.7, seed=1), run(0.6, seed=0, **SMOOTH), run(0.9, seed=1, **SMOOTH)]
    table = tables.gain_table(pd.DataFrame(rows))
    assert (
        table.loc[0.0, "ours, 2 seeds: L_{5,0.2} − CE"] == "+15.0 (−48.5 to +78.5)"
    )  # 12.706 · 7.07 / √2 on each side
    assert table.loc[1.0, "paper: L_{5,1} − CE"] == "+5.23"
    assert table.loc[0.8, "ours, 2 seeds: L_{5,0.2} − CE"] == "not run"


def test_a_seed_that_only_one_loss_has_does_not_enter_the_gain():
    given = pd.DataFrame([run(0.5, seed=0), run(0.6, seed=1, **SMOOTH)])
    assert tables.differences_by_seed(given, by="train_images").empty
    assert tables.gain_table(given, by="train_images").empty


def test_the_interval_is_that_of_students_t():
    mean, low, high = tables.t_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (mean, round(low, 3), round(high, 3)) == (3.0, 1.037, 4.963)  # 2.776 · 1.581 / √5
    assert all(math.isnan(end) for end in tables.t_interval([1.0])[1:])
    many = [float(seed % 2) for seed in range(32)]
    half = tables.resolvable(many) * math.sqrt(32) / pd.Series(many).std()
    assert half == pytest.approx(2.0395, abs=1e-3)  # the quantile for 31 degrees of freedom


def test_the_drop_is_counted_from_the_accuracy_without_noise_on_both_scales():
    rows = [run(0.9), run(0.8, noise_level=0.8), run(0.6, noise_level=0.8, noise_grouping="index_blocks")]
    table = tables.drop_table(pd.DataFrame(rows))
    assert table.loc[0.8, "points"].tolist() == ["−19.5", "−10.0", "−30.0"]
    assert table.loc[0.8, "log-odds"].tolist() == ["−1.73", "−0.81", "−1.79"]
    assert table.loc[0.4, ("points", "ours, superclasses")] == "not run"
    with pytest.raises(ValueError, match="got scale='odds'"):
        tables.falls(pd.DataFrame(rows), scale="odds")


def test_early_stopping_shows_what_the_last_epoch_lost():
    table = tables.early_stopping_table(pd.DataFrame([run(0.6, 0.5, noise_level=0.8)]))
    row = table.loc[("0.8", "CE")]
    assert row["epoch kept"] == "2 of 8"
    assert row["gained by stopping"] == "+10.00"


def test_a_search_shows_its_best_pair_and_the_papers():
    trials = [
        run(0.5),
        run(0.4, noise_level=0.8),
        run(0.6, learning_rate=0.4),
        run(0.5, learning_rate=0.4, noise_level=0.8),
    ]
    table = tables.search_table(pd.DataFrame(trials), metric="test_top5")
    assert table.loc[("CE", "chosen")].to_dict() == {
        "rate": "0.4",
        "decay": "1e-4",
        "p = 0": "60.0",
        "p = 0.8": "50.0",
    }
    assert table.loc[("CE", "the paper's"), "p = 0.8"] == "40.0"


def test_the_best_decay_of_a_loss_is_that_of_validation_images():
    rows = [run(0.5, weight_decay=1e-4), run(0.4, weight_decay=1e-3), run(0.7, weight_decay=1e-4, **SMOOTH)]
    runs = pd.DataFrame(rows).assign(validation_top5=[0.5, 0.6, 0.7])
    assert tables.with_best_decay(runs)["test_top5"].tolist() == [0.4, 0.7]


def test_decays_with_different_seeds_are_compared_by_the_seeds_that_all_have():
    rows = [run(0.5, weight_decay=1e-4), run(0.4, weight_decay=1e-3), run(0.3, weight_decay=1e-3, seed=1)]
    runs = pd.DataFrame(rows).assign(validation_top5=[0.5, 0.6, 0.1])
    assert tables.with_best_decay(runs)["test_top5"].tolist() == [0.4, 0.3]


def test_losses_of_different_rates_have_rows_of_their_own():
    table = tables.loss_table(pd.DataFrame([run(0.5), run(0.6, learning_rate=0.2)]), {"test_top5": "top-5"})
    assert table["top-5"].to_dict() == {
        ("CE", "0.1", "1e-4"): "50.00",
        ("CE", "0.2", "1e-4"): "60.00",
    }


@pytest.mark.parametrize("table", [tables.gain_table, tables.drop_table, tables.early_stopping_table])
def test_a_comparison_of_no_runs_says_not_run(table):
    empty = pd.DataFrame([run(0.5)]).iloc[:0]
    assert repr(tables.show(table(empty))) == "Ours: not run."


def test_a_cell_of_runs_that_diverged_says_so():
    diverged = run(None, **SMOOTH) | {"status": "diverged"}
    assert mean_and_std(pd.DataFrame([diverged]), "test_top5") == "1 diverged"


def test_noise_curves_draw_the_nearest_level_that_was_run():
    runs = pd.DataFrame([run(0.5, noise_level=0.8), run(0.5, noise_level=0.8, **SMOOTH), run(0.5)])
    left, right = figures.noise_curves(epochs_of(runs), runs, noise_level=0.7)
    assert (left.get_title(loc="left") or left.get_title()).startswith("p = 0.8, superclasses")
    curve = next(line for line in right.lines if line.get_label() == "CE")
    assert curve.get_xdata().tolist() == [1, 2, 3]
    assert curve.get_ydata() == pytest.approx([0, 20, 40])


def test_two_smooth_losses_do_not_look_alike():
    runs = pd.DataFrame([run(0.5, **SMOOTH), run(0.6, loss="smooth", tau=1.0)])
    ax = figures.noise_figure(runs, paper=False)
    looks = {(c.lines[0].get_color(), c.lines[0].get_marker()) for c in ax.containers}
    assert len(looks) == 2


def test_a_figure_without_runs_says_not_run():
    empty = pd.DataFrame([run(0.5)]).iloc[:0]
    for ax in (figures.noise_figure(empty), figures.small_data_figure(empty), figures.noise_curves(
        epochs_of(empty), empty, noise_level=0.8)[1]):  # fmt: skip
        assert ax.get_legend().get_texts()[-1].get_text() == "ours: not run"


def test_an_annealed_run_changes_its_colour_with_its_tau():
    runs = pd.DataFrame([run(0.5, loss="smooth", tau=1.0, tau_final=0.01, epochs=3)])
    epochs = epochs_of(runs).assign(tau=[1.0, 0.1, 0.01])
    ax = figures.annealing_curves(epochs, runs)
    assert [line.get_color() for line in ax.lines[:2]] == [tau_colour(1.0), tau_colour(0.1)]
    assert ax.get_legend().get_texts()[0].get_text() == r"$L_{5,1\to 0.01}$"


def test_the_regions_name_the_class_that_is_left_out():
    weights = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5.0]], dtype=torch.float64)
    inputs = torch.tensor([[1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]], dtype=torch.float64)
    ax = figures.left_out_regions(weights, inputs, torch.tensor([0, 1]), points=21)
    assert {text.get_text() for text in ax.texts} == {"all but 0", "all but 1"}
    right = next(text for text in ax.texts if text.get_text() == "all but 1")
    assert right.get_position()[0] > 0


def test_the_suspected_causes_of_a_failing_temperature_have_columns_of_their_own():
    given = [
        run(0.1, seed=0, loss="hard"),
        run(0.2, seed=0, loss="smooth", tau=0.01),
        run(0.3, seed=1, loss="smooth", tau=0.01),
        run(0.4, seed=0, loss="smooth", tau=0.01, learning_rate=1.6),
        run(0.5, seed=0, loss="switched_topk", tau=0.01),
    ]
    table = tables.small_temperature_table(pd.DataFrame(given))
    assert table.columns.name == "test top-5, last epoch (%), 1 to 2 seeds"
    assert table.loc["rate 0.1, 8 epochs"].tolist() == ["10.00", "25.00 (7.07)"]
    assert table.loc["rate 1.6, 8 epochs"].tolist() == ["not run", "40.00"]
    assert table.loc["rate 0.1, 8 epochs, with the switch"].tolist() == ["not run", "50.00"]

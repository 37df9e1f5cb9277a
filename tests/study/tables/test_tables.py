"""The tables: the paper's numbers are the paper's, ours are means over seeds only, and nothing is blank."""

import pandas as pd
import pytest

from smooth_topk.study import tables
from smooth_topk.study.experiments import paper_runs
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.tables.cells import mean_and_std

PRINTED_ROWS = {1: 24, 2: 10, 3: 8, 4: 8, 5: 24, 6: 14, 7: 2, 8: 2, 9: 24}


def run(accuracy, status="finished", **config):
    config = RunConfig(**config)
    results = {f"{part}_top{k}": accuracy for part in ("test", "last_test", "validation") for k in (1, 5)}
    return {"run_id": config.run_id, **config.to_dict(), "status": status, "train_images": 100, **results}


def runs(*rows):
    return pd.DataFrame(rows, columns=list(run(0.5)))


def no_blank_cell(table):
    return bool(table.map(lambda cell: isinstance(cell, str) and cell.strip() != "").all(axis=None))


@pytest.mark.parametrize(("number", "count"), PRINTED_ROWS.items())
def test_every_number_of_the_papers_table_is_there(number, count):
    table = tables.paper_table(number)
    assert len(table) == count
    assert table.notna().all(axis=None)


def test_table_1_is_table_9_without_its_standard_deviations():
    pd.testing.assert_frame_equal(tables.paper_table(1), tables.paper_table(9).drop(columns=["std", "seeds"]))


def test_the_papers_headline_numbers_are_those_of_its_text():
    table = tables.paper_table(9).set_index(["noise_level", "metric", "loss"])["mean"]
    assert table[0.8, "top1", "L_{5,1}"] == 55.85
    assert table[0.8, "top1", "CE"] == 35.53
    assert table[1.0, "top5", "L_{5,1}"] - table[1.0, "top5", "CE"] > 5  # "an improvement of over 5 %"


def test_a_table_that_the_paper_does_not_have_is_refused():
    with pytest.raises(ValueError, match="Tables 1 to 9, got number=10"):
        tables.paper_table(10)


def test_the_mean_over_seeds_comes_with_its_sample_deviation():
    assert tables.mean_and_std(runs(run(0.5, seed=0), run(0.52, seed=1)), "test_top5") == "51.00 (1.41)"
    assert tables.mean_and_std(runs(run(0.5)), "test_top5") == "50.00"
    assert tables.mean_and_std(runs(), "test_top5") == "not run"


def test_a_heading_counts_the_seeds_of_each_setting():
    assert tables.seeds_text(runs(run(0.5, seed=0), run(0.52, seed=1))) == "2 seeds"
    assert tables.seeds_text(runs(run(0.5, seed=0), run(0.5, seed=1), run(0.5, loss="smooth"))) == "1 to 2 seeds"
    assert tables.seeds_text(runs(run(0.5, status="diverged"))) == "not run"


def test_runs_of_different_settings_are_never_averaged():
    with pytest.raises(ValueError, match="different learning_rate cannot be averaged"):
        mean_and_std(runs(run(0.5, learning_rate=0.1), run(0.6, learning_rate=0.2)), "test_top5")


def test_a_tau_that_cross_entropy_does_not_use_does_not_part_its_runs():
    cell = tables.mean_and_std(runs(run(0.5, tau=1.0), run(0.52, tau=0.1, seed=1)), "test_top5")
    assert cell == "51.00 (1.41)"


def test_the_noise_table_has_ours_beside_the_papers_and_says_what_was_not_run():
    table = tables.noise_table(runs(run(0.6, noise_level=0.4), run(0.7, noise_level=0.4, loss="smooth", tau=0.2)))
    row = table.loc[0.4]
    assert row["paper, 3 seeds", "CE"] == "83.04 (0.38)"
    assert row["ours, 1 seed", "CE"] == "60.00"
    assert row["ours, 1 seed", "L_{5,0.2}"] == "70.00"
    assert table.loc[0.8]["ours, 1 seed", "CE"] == "not run"
    assert table.columns.names[0] == "top-5 accuracy (%)"
    assert no_blank_cell(table)


def test_top_1_has_a_noise_table_of_its_own():
    table = tables.noise_table(runs(run(0.6, noise_level=0.4)), metric="top1")
    assert table.loc[0.4, ("paper, 3 seeds", "CE")].startswith("61.18 (")
    assert table.columns.names[0] == "top-1 accuracy (%)"


def test_the_noise_table_keeps_the_groupings_apart_but_shares_the_runs_without_noise():
    given = runs(run(0.6, noise_level=0.4, noise_grouping="index_blocks"), run(0.9))
    superclass, blocks = (tables.noise_table(given, grouping=g) for g in ("superclass", "index_blocks"))
    cell = ("ours, 1 seed", "CE")
    assert (superclass.loc[0.4, cell], blocks.loc[0.4, cell]) == ("not run", "60.00")
    assert superclass.loc[0.0, cell] == blocks.loc[0.0, cell] == "90.00"


def test_a_diverged_run_does_not_enter_a_mean():
    table = tables.noise_table(runs(run(0.6), run(0.01, status="diverged", seed=1)))
    assert table.loc[0.0, ("ours, 1 seed", "CE")] == "60.00, 1 diverged"


def test_the_small_data_table_names_both_data_sets():
    table = tables.small_data_table(runs(run(0.6, dataset="cifar100", train_size=0.25)))
    assert table.loc["25 %", ("paper, ImageNet, ten crops", "CE")] == "82.62"
    assert table.loc["25 %", ("ours, CIFAR-100 images, 1 seed", "CE")] == "60.00"
    assert no_blank_cell(table)


def test_the_small_data_table_takes_numbers_of_images():
    table = tables.small_data_table(runs(run(0.6, train_size=2000)))
    assert table.loc["2,000 images"].iloc[0] == "not in the paper"
    assert no_blank_cell(table)


def on_imagenet(size, accuracy, marginals, **config):
    row = run(accuracy, dataset="imagenet", model="resnet18", train_size=size, ten_crop=True, **config)
    return row | {"ten_crop_marginals_top5": marginals, "ten_crop_softmax_top5": 0.99}


def test_runs_on_imagenet_stand_in_the_rows_of_the_papers_shares():
    given = [on_imagenet(size, 0.6, None) for size in paper_runs.IMAGENET_SIZES]
    table = tables.small_data_table(
        pd.DataFrame(given).assign(train_size=pd.Series(paper_runs.IMAGENET_SIZES, dtype=object))
    )
    assert table.index.tolist() == ["100 %", "50 %", "25 %", "10 %", "5 %"]
    assert (table[("ours, ImageNet, central crop, 1 seed", "CE")] == "60.00").all()
    assert no_blank_cell(table)


def test_table_2_shows_the_marginals_of_ten_crops_where_they_are_recorded():
    ours = [on_imagenet(64_000, 0.6, 0.65), on_imagenet(64_000, 0.7, 0.75, loss="smooth", tau=0.1)]
    table = tables.small_data_table(pd.DataFrame(ours))
    heading = "ours, ImageNet, ten crops, 1 seed"
    assert table.loc["5 %", (heading, "CE")] == "65.00"
    assert table.loc["5 %", (heading, "L_{5,0.1}")] == "75.00"


def test_table_2_says_where_it_shows_the_central_crop():
    ours = [on_imagenet(64_000, 0.6, 0.65), on_imagenet(128_000, 0.7, None)]
    table = tables.small_data_table(pd.DataFrame(ours))
    heading = "ours, ImageNet, ten crops where recorded, else central crop, 1 seed"
    assert table.loc[["5 %", "10 %"], (heading, "CE")].tolist() == ["65.00", "70.00"]


def test_the_temperature_table_puts_the_hard_loss_at_tau_0():
    rows = runs(run(0.1, loss="hard"), run(0.9, loss="smooth", tau=0.1))
    epochs = pd.DataFrame({"run_id": rows["run_id"].repeat(2), "epoch": [0, 1, 0, 1], "train_top5": [0, 0.11, 0, 0.95]})
    table = tables.temperature_table(rows, epochs)
    assert table.loc["0", ("training top-5 (%)", "ours, 1 seed")] == "11.00"
    assert table.loc["0.1", ("test top-5 (%)", "ours, 1 seed")] == "90.00"
    assert table.loc["0.1", ("test top-5 (%)", "paper, 1 seed")] == "91.70"
    assert table.loc["100", ("test top-5 (%)", "ours, 1 seed")] == "not run"
    assert no_blank_cell(table)


NO_EPOCHS = pd.DataFrame(columns=["run_id", "epoch", "validation_top1", "validation_top5"])


def test_cross_entropy_is_margin_0_of_table_7_but_not_of_table_8():
    given = runs(run(0.4))
    assert tables.margin_table(given, NO_EPOCHS, k=1).loc["0"].tolist() == ["71.03", "40.00"]
    assert tables.margin_table(given, NO_EPOCHS, k=5).loc["0"].tolist() == ["89.12", "not run"]
    with pytest.raises(ValueError, match="got k=3"):
        tables.margin_table(given, NO_EPOCHS, k=3)


def test_table_7_takes_the_best_top_1_of_all_epochs_though_the_run_chose_its_epoch_by_top_5():
    given = runs(run(0.4, loss="smooth", k=1, margin=1.0), run(0.3, loss="smooth", k=1, margin=0.0))
    first = given.loc[0, "run_id"]
    rows = {
        "run_id": first,
        "epoch": [0, 1, 2],
        "validation_top1": [0.2, 0.45, 0.4],
        "validation_top5": [0.5, 0.6, 0.7],
    }
    table = tables.margin_table(given, pd.DataFrame(rows), k=1)
    assert table.loc["1"].iloc[-1] == "45.00"
    assert table.loc["0"].iloc[-1] == "30.00"  # no epochs are recorded: its own chosen epoch


def test_margins_that_the_paper_does_not_have_get_rows():
    given = runs(run(0.4, loss="smooth", tau=0.1, margin=4.0))
    assert tables.margin_table(given, NO_EPOCHS, k=5).loc["4"].tolist() == ["not in the paper", "40.00"]


def test_the_speed_table_shows_medians_beside_the_papers_in_milliseconds():
    times = pd.DataFrame({"algorithm": "pivot", "direction": "forward", "n": 1000, "seconds": [0.001, 0.002, 0.9]})
    table = tables.speed_table(times, "forward")
    assert table.loc[("paper, Titan Xp", "DC"), "n = 1,000"] == "18"
    assert table.loc[("ours", "pivot"), "n = 1,000"] == "2.00"
    assert table.loc[("ours", "summation"), "n = 1,000"] == "not run"
    assert no_blank_cell(table)
    with pytest.raises(ValueError, match="direction='both'"):
        tables.speed_table(times, "both")


def test_the_stability_table_shows_overflow_and_error():
    measured = pd.DataFrame(
        [("pivot", "float32", 0.1, True, 3e-7), ("summation", "float32", 0.1, False, float("nan"))],
        columns=["algorithm", "dtype", "tau", "stable", "error"],
    )
    table = tables.stability_table(measured)
    assert table.loc[("paper", "SA", "float32"), ["τ = 1", "τ = 0.1"]].tolist() == ["✓", "✗"]
    assert table.loc[("ours", "pivot", "float32"), "τ = 0.1"] == "✓ 3e-7"
    assert table.loc[("ours", "summation", "float32"), "τ = 0.1"] == "✗"
    assert no_blank_cell(table)


@pytest.mark.parametrize("name", ["noise_table", "small_data_table"])
def test_a_table_of_no_runs_says_not_run_in_every_cell_of_ours_and_is_shown_as_one_line(name):
    table = getattr(tables, name)(runs())
    ours = table.loc[:, [column for column in table if column[0].startswith("ours")]]
    assert ours.shape[1] > 0
    assert (ours == "not run").all(axis=None)
    assert repr(tables.show(table)) == "Ours: not run."
    assert "<table" not in tables.show(table)._repr_html_()


def test_a_shown_table_typesets_losses_and_sets_apart_what_was_not_run():
    html = tables.show(tables.noise_table(runs(run(0.6)))).to_html()
    assert "<i>L</i><sub>5,1</sub>" in html
    assert "font-style: italic" in html
    assert "text-align: right" in html
    assert html == tables.show(tables.noise_table(runs(run(0.6)))).to_html()  # the same table, the same bytes


def test_any_table_can_be_shown_and_its_text_is_escaped():
    assert "a &lt; b" in tables.show(pd.DataFrame({"a < b": [1.0]})).to_html()


def test_two_tables_on_one_page_do_not_share_their_styles():
    first, second = (tables.show(tables.noise_table(given)).uuid for given in (runs(run(0.5)), runs(run(0.6))))
    assert first != second


def test_a_loss_that_was_not_run_keeps_its_column():
    table = tables.noise_table(runs(run(0.6, loss="smooth", tau=0.2)))
    assert list(table["ours, 1 seed"]) == ["CE", "L_{5,0.2}"]
    assert (table["ours, 1 seed"]["CE"] == "not run").all()


def test_lines_break_in_tables_of_sentences_only():
    numbers, words = pd.DataFrame({"ours": ["52.20 (0.63), 2 seeds"]}), pd.DataFrame({"ours": ["yes, " * 20]})
    assert 'class="sentences"' in tables.show(words).to_html()
    assert "sentences" not in tables.show(numbers).to_html()

"""The tables: the paper's numbers are the paper's, ours are means over seeds only, and nothing is blank."""

import pandas as pd
import pytest

from smooth_topk.study import tables
from smooth_topk.study.run_config import RunConfig

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


def test_the_mean_over_seeds_comes_with_its_sample_deviation_and_count():
    assert tables.mean_and_std(runs(run(0.5, seed=0), run(0.52, seed=1)), "test_top5") == "51.00 (1.41), 2 seeds"
    assert tables.mean_and_std(runs(run(0.5)), "test_top5") == "50.00, 1 seed"
    assert tables.mean_and_std(runs(), "test_top5") == "not run"


def test_runs_of_different_settings_are_never_averaged():
    with pytest.raises(ValueError, match="different learning_rate cannot be averaged"):
        tables.mean_and_std(runs(run(0.5, learning_rate=0.1), run(0.6, learning_rate=0.2)), "test_top5")


def test_a_tau_that_cross_entropy_does_not_use_does_not_part_its_runs():
    cell = tables.mean_and_std(runs(run(0.5, tau=1.0), run(0.52, tau=0.1, seed=1)), "test_top5")
    assert cell.endswith("2 seeds")


def test_the_noise_table_has_ours_beside_the_papers_and_says_what_was_not_run():
    table = tables.noise_table(runs(run(0.6, noise_level=0.4), run(0.7, noise_level=0.4, loss="smooth", tau=0.2)))
    top5 = table["top-5 accuracy (%)"].loc[0.4]
    assert top5["paper", "CE"] == "83.04 (0.38)"
    assert top5["ours", "CE"] == "60.00, 1 seed"
    assert top5["ours", "L_{5,0.2}"] == "70.00, 1 seed"
    assert table["top-5 accuracy (%)"].loc[0.8]["ours", "CE"] == "not run"
    assert no_blank_cell(table)


def test_the_noise_table_keeps_the_groupings_apart_but_shares_the_runs_without_noise():
    given = runs(run(0.6, noise_level=0.4, noise_grouping="index_blocks"), run(0.9))
    superclass, blocks = (tables.noise_table(given, grouping=g) for g in ("superclass", "index_blocks"))
    cell = ("top-5 accuracy (%)", "ours", "CE")
    assert (superclass.loc[0.4, cell], blocks.loc[0.4, cell]) == ("not run", "60.00, 1 seed")
    assert superclass.loc[0.0, cell] == blocks.loc[0.0, cell] == "90.00, 1 seed"


def test_a_diverged_run_does_not_enter_a_mean():
    table = tables.noise_table(runs(run(0.6), run(0.01, status="diverged", seed=1)))
    assert table.loc[0.0, ("top-5 accuracy (%)", "ours", "CE")] == "60.00, 1 seed, 1 diverged"


def test_the_small_data_table_names_both_data_sets():
    table = tables.small_data_table(runs(run(0.6, dataset="cifar100", train_size=0.25)))
    assert table.loc["25 %", ("top-5 accuracy (%)", "paper, ImageNet", "CE")] == "82.62"
    assert table.loc["25 %", ("top-5 accuracy (%)", "ours, cifar100", "CE")] == "60.00, 1 seed"
    assert no_blank_cell(table)


def test_the_small_data_table_takes_numbers_of_images():
    table = tables.small_data_table(runs(run(0.6, train_size=2000)))
    assert table.loc["2,000 images"].iloc[0] == "not in the paper"
    assert no_blank_cell(table)


def test_the_temperature_table_puts_the_hard_loss_at_tau_0():
    rows = runs(run(0.1, loss="hard"), run(0.9, loss="smooth", tau=0.1))
    epochs = pd.DataFrame({"run_id": rows["run_id"].repeat(2), "epoch": [0, 1, 0, 1], "train_top5": [0, 0.11, 0, 0.95]})
    table = tables.temperature_table(rows, epochs)
    assert table.loc["0", ("training accuracy (%)", "ours")] == "11.00, 1 seed"
    assert table.loc["0.1", ("test accuracy (%)", "ours")] == "90.00, 1 seed"
    assert table.loc["0.1", ("test accuracy (%)", "paper")] == "91.70"
    assert table.loc["100", ("test accuracy (%)", "ours")] == "not run"
    assert no_blank_cell(table)


def test_cross_entropy_is_margin_0_of_table_7_but_not_of_table_8():
    given = runs(run(0.4))
    assert tables.margin_table(given, k=1).loc["0"].tolist() == ["71.03", "40.00, 1 seed"]
    assert tables.margin_table(given, k=5).loc["0"].tolist() == ["89.12", "not run"]
    with pytest.raises(ValueError, match="got k=3"):
        tables.margin_table(given, k=3)


def test_the_speed_table_shows_medians_beside_the_papers_seconds():
    times = pd.DataFrame({"algorithm": "pivot", "direction": "forward", "n": 1000, "seconds": [0.001, 0.002, 0.9]})
    table = tables.speed_table(times, "forward")
    assert table.loc[("paper, Titan Xp", "DC"), "n = 1,000"] == "0.018"
    assert table.loc[("ours", "pivot"), "n = 1,000"] == "0.002"
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
    assert table.loc[("ours", "pivot", "float32"), "τ = 0.1"] == "✓ (3e-07)"
    assert table.loc[("ours", "summation", "float32"), "τ = 0.1"] == "✗"
    assert no_blank_cell(table)


@pytest.mark.parametrize("name", ["noise_table", "small_data_table"])
def test_a_table_of_no_runs_says_not_run_in_every_cell_of_ours(name):
    table = getattr(tables, name)(runs())
    ours = table.loc[:, [column for column in table if column[1].startswith("ours")]]
    assert ours.shape[1] > 0
    assert (ours == "not run").all(axis=None)


def test_a_shown_table_typesets_losses_and_sets_apart_what_was_not_run():
    html = tables.show(tables.noise_table(runs(run(0.6)))).to_html()
    assert "<i>L</i><sub>5,1</sub>" in html
    assert "font-style: italic" in html
    assert html == tables.show(tables.noise_table(runs(run(0.6)))).to_html()  # the same table, the same bytes


def test_any_table_can_be_shown_and_its_text_is_escaped():
    assert "a &lt; b" in tables.show(pd.DataFrame({"a < b": [1.0]})).to_html()


def test_two_tables_on_one_page_do_not_share_their_styles():
    first, second = (tables.show(tables.noise_table(given)).uuid for given in (runs(), runs(run(0.6))))
    assert first != second


def test_a_loss_that_was_not_run_keeps_its_column():
    table = tables.noise_table(runs(run(0.6, loss="smooth", tau=0.2)))
    assert list(table["top-5 accuracy (%)"]["ours"]) == ["CE", "L_{5,0.2}"]
    assert (table["top-5 accuracy (%)"]["ours"]["CE"] == "not run").all()


def test_lines_break_in_tables_of_sentences_only():
    numbers, words = pd.DataFrame({"ours": ["52.20 (0.63), 2 seeds"]}), pd.DataFrame({"ours": ["yes, " * 20]})
    assert 'class="sentences"' in tables.show(words).to_html()
    assert "sentences" not in tables.show(numbers).to_html()

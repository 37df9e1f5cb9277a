"""The findings in short: the words fit the numbers, and the README shows the same table as the book."""

from pathlib import Path

import pandas as pd
import pytest

from smooth_topk.study import configs, evidence, sparsity, tables
from smooth_topk.study.tables import findings
from smooth_topk.study.tables.costs import cost_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "book" / "results"


def recorded(grid) -> pd.DataFrame:
    return evidence.recorded_runs(grid, RESULTS)


@pytest.fixture(scope="module")
def noise() -> pd.DataFrame:
    return recorded(configs.table_1_noise("laptop"))


def test_everything_was_run():
    assert not (tables.findings_table(RESULTS) == tables.NOT_RUN).any(axis=None)


def test_without_records_nothing_is_claimed(tmp_path):
    assert set(tables.findings_table(tmp_path)["ours, at this scale"]) == {tables.NOT_RUN}


@pytest.mark.parametrize("grouping", ["superclass", "index_blocks"])
def test_the_smooth_loss_leads_with_noise_and_without(noise, grouping):
    assert (findings.gains(tables.of_grouping(noise, grouping)) > 1).all()


def test_only_cross_entropy_needs_early_stopping(noise):
    gained = findings.gained_by_stopping(noise)[0.6:]
    assert (gained["cross_entropy"] > 1).all()
    assert (gained["smooth"] < 0.5).all()


def test_the_superclasses_are_nearer_to_the_papers_table_at_every_level(noise):
    printed = tables.paper_table(9).query("metric == 'top5' and loss == 'CE'").set_index("noise_level")["mean"]
    away = {
        grouping: (findings.falls_of_cross_entropy(noise, grouping) - (printed - printed[0.0])).abs()[0.2:]
        for grouping in ("superclass", "index_blocks")
    }
    assert (away["superclass"] < away["index_blocks"]).all()


def test_small_temperatures_fail_and_a_tenth_is_best():
    top5 = findings.by_temperature(recorded(configs.figure_2_temperature("laptop")))
    assert top5.idxmax() == tables.paper_table(6).query("split == 'test'").set_index("tau")["mean"].idxmax() == 0.1
    assert top5[[0.0, 0.001]].max() < 20 < top5[0.01] < 40 < top5[[0.1, 1.0, 10.0, 100.0]].min()


def test_cross_entropy_leads_where_nothing_is_learned_by_heart():
    brief = recorded(configs.noise_without_memorising())
    for grouping in ("superclass", "index_blocks"):
        assert findings.gains(brief[brief["noise_grouping"] == grouping])[0.8] < -1
    assert evidence.epochs_of(brief, RESULTS)["train_top1"].max() < 0.2


def test_derivatives_are_sparse_where_training_fails():
    shares = sparsity.read_sparsity(RESULTS).set_index("tau")["share"]
    assert shares.is_monotonic_increasing
    assert shares[0.0] == 0.02  # two classes of 100: the true one and the k-th best of the others
    assert shares[0.0001] < 0.1 < shares[0.001] < 0.6 < shares[0.01] == 1


def test_a_falling_temperature_is_not_ahead():
    falling, fixed = findings.annealed(recorded(configs.temperature_annealing("laptop")))
    assert fixed - 1 < falling < fixed


def test_the_smooth_loss_is_behind_with_few_images_and_ahead_with_many():
    found = findings.gains(recorded(configs.table_2_small_data("laptop")), "train_images")
    assert (found.loc[:12_000] < 0).all()
    assert (found.loc[20_000:] > 0).all()


@pytest.mark.parametrize(
    ("experiment", "metric"),
    [(configs.table_7_margin_top1, "validation_top1"), (configs.table_8_margin_top5, "validation_top5")],
)
def test_the_margin_is_worth_no_more_than_the_spread_of_the_seeds(experiment, metric):
    mean, spread = findings.worth_of_margin(recorded(experiment("laptop")), metric)
    assert abs(mean) < spread


def test_the_readme_has_the_table_and_the_hours():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for claim, row in tables.findings_table(RESULTS).iterrows():
        assert f"| {' | '.join([claim, *row])} |" in readme
    assert f"{cost_table('paper').loc['all', 'all runs']:,.0f} hours" in readme

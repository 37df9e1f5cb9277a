"""The tables of the family on made-up runs: pairing, the choice of tau, who wins which metric, what is missing."""

import math

import pandas as pd
import pytest

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.runs import typed_runs
from smooth_topk.study.tables import family, show

FEATURES = {"dataset": "cifar100_features", "model": "head", "train_size": 20_000, "epochs": 12}
NOT_RUN = "not run"


def run(top5=0.5, *, images=20_000, num_classes=100, results=(), status="finished", **fields):
    config = RunConfig(**FEATURES | fields)
    row = {"run_id": config.run_id, **config.to_dict(), "status": status, "train_images": images}
    return row | {"num_classes": num_classes, "test_top5": top5} | dict(results)


def runs_of(rows):
    """The rows with the types of `read_runs`: a size is an integer or a share."""
    table = pd.DataFrame(rows)
    return typed_runs(table.assign(train_size=pd.Series([row["train_size"] for row in rows], dtype=object)))


@pytest.fixture
def nothing():
    return typed_runs(pd.DataFrame(columns=["run_id", *RunConfig().to_dict(), "status"]))


@pytest.fixture
def comparison():
    """Two seeds of cross-entropy and two other losses without noise, one of them under noise too."""
    rows = []
    for seed, (plain, entropy, smooth) in enumerate([(0.80, 0.81, 0.82), (0.70, 0.73, 0.70)]):
        rows += [run(plain, seed=seed), run(entropy, seed=seed, loss="topk_entropy", learning_rate=0.2)]
        rows += [run(smooth, seed=seed, loss="smooth", tau=0.1)]
        noise = {"noise_level": 0.8, "noise_grouping": "index_blocks", "seed": seed}
        rows += [run(plain - 0.3, **noise), run(entropy - 0.2, loss="topk_entropy", **noise)]
        rows += [run(plain - 0.1, images=2200, train_size=0.05, seed=seed)]
    return runs_of(rows)


def test_differences_are_taken_seed_by_seed_within_a_setting(comparison):
    found = family.family_differences(comparison).set_index(["setting", "loss"])
    assert found.index.tolist() == [
        ("20,000 images", "top-5 entropy"),
        ("20,000 images", "L_{5,0.1}"),
        ("p = 0.8, index blocks", "top-5 entropy"),
    ]
    clean = found.loc[("20,000 images", "top-5 entropy")]
    assert clean["mean"] == pytest.approx(2.0)  # +1 and +3 points
    assert clean["high"] == pytest.approx(2.0 + 12.706, abs=1e-3)  # 12.706 · √2 / √2
    assert found.loc[("p = 0.8, index blocks", "top-5 entropy"), "mean"] == pytest.approx(12.0)
    assert found["seeds"].tolist() == [2, 2, 2]


def test_settings_without_noise_come_first_by_size_then_noise_by_grouping_and_level():
    levels = [(0.4, "index_blocks"), (0.8, "superclass"), (0.4, "superclass")]
    settings = [{"noise_level": level, "noise_grouping": group} for level, group in levels]
    settings += [{"images": 45_000, "train_size": None}, {"images": 2_200, "train_size": 0.05}]
    rows = [run(loss=loss, **fields) for fields in settings for loss in ("cross_entropy", "hard")]
    assert family.family_differences(runs_of(rows))["setting"].tolist() == [
        "2,200 images",
        "45,000 images",
        "p = 0.4, superclasses",
        "p = 0.8, superclasses",
        "p = 0.4, index blocks",
    ]


def test_runs_with_two_rates_of_one_loss_are_refused_and_diverged_ones_do_not_count(comparison):
    again = runs_of([run(0.5, loss="topk_entropy", learning_rate=0.8)])
    with pytest.raises(ValueError, match="learning_rate cannot be averaged"):
        family.family_differences(pd.concat([comparison, again]))
    lost = runs_of([run(math.nan, loss="hard", status="diverged")])
    assert "hard top-5" not in set(family.family_differences(pd.concat([comparison, lost]))["loss"])


def test_the_table_has_every_loss_with_its_cost_and_says_what_was_not_run(comparison):
    cost = pd.DataFrame({"loss": ["cross-entropy", "L_{5,0.1}"], "ratio": [1.0, 1.26], "memory_ratio": [1.0, 0.5]})
    table = family.family_table(comparison, cost)
    assert table.index.tolist() == list(family.NAMES.values())
    assert table.columns.name == "20,000 images, 2 seeds"
    assert table.loc["L_{5,0.1}", ["top-5 (%)", "time / CE", "memory / CE"]].tolist() == ["76.00 (8.49)", "1.3", "0.5"]
    assert table.loc["top-5 entropy", ["top-10 (%)", "time / CE"]].tolist() == [NOT_RUN, NOT_RUN]
    assert table.loc["difftopk"].tolist() == [NOT_RUN] * 6


@pytest.fixture
def trained():
    """Two seeds of k = 1 and 5 at two temperatures: tau = 1 is the best for k = 1, tau = 0.1 a little for k = 5."""
    validation = {(1, 0.1): (0.50, 0.52), (1, 1.0): (0.601, 0.619), (5, 0.1): (0.80, 0.83), (5, 1.0): (0.81, 0.81)}
    rows = []
    for (k, tau), values in validation.items():
        for seed, value in enumerate(values):
            results = {f"validation_top{k}": value, "test_top1": 0.6 if k == 1 else 0.62, "test_top5": 0.7 + k / 100}
            fields = {"loss": "smooth", "k": k, "tau": tau, "chosen_by": f"top{k}", "seed": seed}
            rows.append(run(results=results, **fields))
    runs = runs_of(rows)
    return family.with_own_validation(runs, pd.DataFrame(columns=["run_id"]))


def test_the_best_tau_is_chosen_by_validation_top_k_and_near_ones_are_named(trained):
    table = family.best_tau_table(trained)
    assert table.loc[1, "100 classes"] == "1"
    assert table.loc[5, "100 classes"] == "0.1 (1)"
    assert table.loc[3, "100 classes"] == NOT_RUN
    assert table.loc[20, "20 classes"] == "k is too large"
    found = family.tau_differences(trained).set_index(["k", "tau"])
    assert found.loc[(1, 0.1), "mean"] == pytest.approx(-10.0)  # -10.1 and -9.9
    assert found.loc[(1, 0.1), "high"] < 0 < found.loc[(5, 1.0), "high"]


def test_the_best_epoch_counts_where_epochs_record_the_metric(trained):
    epochs = pd.DataFrame({"run_id": [trained["run_id"].iloc[0]] * 2, "validation_top1": [0.3, 0.9]})
    again = family.with_own_validation(trained.drop(columns="best_validation"), epochs.assign(validation_top5=0.0))
    assert again["best_validation"].iloc[0] == 0.9


def test_every_k_is_held_against_the_others_by_its_own_metric(trained):
    table = family.k_against_metric_table(trained)
    assert table.index.tolist()[:3] == [(1, "1"), (3, NOT_RUN), (5, "0.1")]
    assert table.loc[(1, "1"), "by its own metric"] == "not best: −2.0 (−2.0 to −2.0) against k = 5"
    assert table.loc[(5, "0.1"), "by its own metric"] == "best: +4.0 (+4.0 to +4.0) against k = 1"
    assert table.loc[(5, "0.1"), "top-5 (%)"] == "75.00 (0.00)"


def test_many_classes_stand_beside_the_best_possible_accuracy():
    constructed = {"dataset": "constructed_1000", "model": "linear", "train_size": None}
    rows = [run(0.60, seed=seed, **constructed) for seed in (0, 1)]
    rows += [run(0.61 + 0.01 * seed, seed=seed, loss="smooth", tau=1.0, **constructed) for seed in (0, 1)]
    best = {"constructed_1000": {1: 0.58, 3: 0.8, 5: 0.9, 10: 0.96}}
    table = family.many_classes_table(runs_of(rows), best)
    thousand = table.loc["1,000 constructed classes"]
    assert thousand.loc["best possible", "top-5 (%)"] == "90.00"
    assert thousand.loc["ours: L_{5,1}", "top-5 − CE"].startswith("+1.5 (")
    assert thousand.loc["ours: L_{5,0.1}", "top-5 (%)"] == NOT_RUN
    assert table.loc[("10,000 constructed classes", "ours: CE"), "top-1 (%)"] == NOT_RUN


def test_without_runs_every_table_is_one_line(nothing):
    own = family.with_own_validation(nothing, pd.DataFrame(columns=["run_id"]))
    best = {"constructed_1000": dict.fromkeys((1, 3, 5, 10), 0.5)}
    found = [
        family.family_table(nothing, pd.DataFrame()),
        family.best_tau_table(own),
        family.k_against_metric_table(own),
        family.many_classes_table(nothing, best),
    ]
    assert [str(show(table)) for table in found] == ["Ours: not run."] * 4
    assert family.family_differences(nothing).empty

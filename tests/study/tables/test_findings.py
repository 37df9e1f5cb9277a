"""The findings: the words of chapters and README fit the recorded numbers, and README shows the same table."""

from pathlib import Path

import pandas as pd
import pytest

from smooth_topk.study import tables
from smooth_topk.study.experiments import further_runs, registry
from smooth_topk.study.records import evidence
from smooth_topk.study.records.gradient_sparsity import read_sparsity
from smooth_topk.study.tables import findings

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "book" / "results"
GROUPINGS = ("superclass", "index_blocks")
RECORDS = findings.Records(RESULTS)


def recorded(grid) -> pd.DataFrame:
    return evidence.published(grid, RESULTS)


@pytest.fixture(scope="module", params=["tuned", "papers_pair"])
def on_features(request) -> tuple[str, pd.DataFrame]:
    return request.param, RECORDS.noise(request.param)


@pytest.fixture(scope="module")
def tuned() -> pd.DataFrame:
    return RECORDS.noise("tuned")


@pytest.fixture(scope="module")
def papers_pair() -> pd.DataFrame:
    return RECORDS.noise("papers_pair")


@pytest.fixture(scope="module")
def images() -> pd.DataFrame:
    return RECORDS.noise("images")


def test_everything_that_has_words_was_run():
    assert not (tables.readme_table(RESULTS) == tables.NOT_RUN).any(axis=None)
    assert len(tables.claims(RESULTS)) == 8
    assert not tables.claims(RESULTS).isna().any(axis=None)


def test_without_records_nothing_is_claimed(tmp_path):
    assert tables.claims(tmp_path).empty
    assert set(tables.readme_table(tmp_path)["found here"]) == {tables.NOT_RUN}
    ours = tables.findings_table(tmp_path)[["ours on features", "ours on images"]]
    assert ours.map(lambda cell: tables.NOT_RUN in cell).all(axis=None)


def test_with_each_loss_tuned_the_lead_within_superclasses_is_small_and_begins_late(tuned):
    lead = findings.gains(tables.of_grouping(tuned, "superclass"))
    assert (lead[[0.0, 0.2]] < 0).all()
    assert (lead[[0.8, 1.0]] > 0.5).all()
    assert lead.max() < 1.5


def test_with_the_papers_rate_and_decay_the_lead_is_about_half_the_papers(papers_pair):
    lead = findings.gains(tables.of_grouping(papers_pair, "superclass"))
    printed = pd.Series(findings.paper_gain("top5"))
    assert abs(lead[0.0]) < 0.3
    assert (lead[0.2:] / printed[0.2:]).between(0.35, 0.6).all()


def test_tuned_losses_do_not_lead_in_top_1_and_the_papers_pair_does(tuned, papers_pair):
    top1 = [findings.gains(tables.of_grouping(runs, "superclass"), metric="test_top1") for runs in (tuned, papers_pair)]
    assert top1[0][0.8] < 0 < 10 < top1[1][0.8]


def test_stopping_early_gains_nothing_on_features(on_features):
    assert (findings.gained_by_stopping(on_features[1]).abs() < 0.1).all(axis=None)


def test_the_grouping_of_the_paper_is_open(on_features, images):
    assert set(findings.nearer_grouping(on_features[1], "log-odds")) == {"index_blocks"}
    assert set(findings.nearer_grouping(images, "points")) == {"superclass"}
    assert set(findings.nearer_grouping(images, "log-odds")) == {"index_blocks"}


def test_on_features_every_temperature_trains():
    top5 = findings.by_temperature(recorded(registry.figure_2_temperature("quick")))
    assert len(top5) == 7
    assert top5.between(88, 90).all()


def test_few_images_do_not_favour_the_smooth_loss_on_features():
    runs = recorded(registry.table_2_small_data("quick", seeds=findings.RECORDED_SEEDS))
    assert (findings.gains(runs, "train_images", "L_{5,0.1}") < 0).all()


@pytest.mark.parametrize(("k", "different"), [(1, [4.0]), (5, [])])
def test_margins_differ_from_none_by_what_the_words_say(k, different):
    found = tables.intervals(tables.differences_by_margin(RECORDS.margins(k, "quick")), ["margin"])
    assert found["margin"].tolist() == [0.25, 1.0, 4.0]
    assert found.loc[found["low"] * found["high"] > 0, "margin"].tolist() == different
    assert (found["mean"].abs() < 0.5).all()


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_on_images_the_smooth_loss_leads_with_noise_and_without(images, grouping):
    assert (findings.gains(tables.of_grouping(images, grouping)) > 1).all()


def test_on_images_only_cross_entropy_needs_early_stopping(images):
    gained = findings.gained_by_stopping(images)[0.6:]
    assert (gained["cross_entropy"] > 1).all()
    assert (gained["smooth"] < 0.5).all()


def test_small_temperatures_fail_and_a_tenth_is_best():
    top5 = findings.by_temperature(recorded(registry.figure_2_temperature("laptop")))
    assert top5.idxmax() == tables.paper_table(6).query("split == 'test'").set_index("tau")["mean"].idxmax() == 0.1
    assert top5[[0.0, 0.001]].max() < 20 < top5[0.01] < 40 < top5[[0.1, 1.0, 10.0, 100.0]].min()


def test_cross_entropy_leads_where_nothing_is_learned_by_heart():
    brief = recorded(registry.noise_without_memorising())
    for grouping in ("superclass", "index_blocks"):
        assert findings.gains(brief[brief["noise_grouping"] == grouping])[0.8] < -1
    assert evidence.epochs_of(brief, RESULTS)["train_top1"].max() < 0.2


def test_derivatives_are_sparse_where_training_fails():
    shares = read_sparsity(RESULTS).set_index("tau")["share"]
    assert shares.is_monotonic_increasing
    assert shares[0.0] == 0.02  # two classes of 100: the true one and the k-th best of the others
    assert shares[0.0001] < 0.1 < shares[0.001] < 0.6 < shares[0.01] == 1


def test_a_falling_temperature_is_not_ahead():
    falling, fixed = findings.annealed(recorded(registry.temperature_annealing("laptop")))
    assert fixed - 1 < falling < fixed


def test_the_smooth_loss_is_behind_with_few_images_and_ahead_with_many():
    found = findings.gains(recorded(registry.table_2_small_data("laptop")), "train_images")
    assert (found.loc[:12_000] < 0).all()
    assert (found.loc[20_000:] > 0).all()


def test_the_pairs_of_the_family_are_the_best_of_their_recorded_trials():
    trials = (*further_runs.family_search(), *further_runs.family_wider_search())
    found = recorded(trials).set_index("run_id")["validation_top5"]
    for name, (loss, _) in further_runs.FAMILY_LOSSES.items():
        own = [run for run in trials if all(getattr(run, key) == value for key, value in loss.items())]
        judged: dict[tuple[float, float], float] = {}
        assert len(own) == 20, name  # ten pairs at two noise levels for every loss
        for run in own:
            pair = run.learning_rate, run.weight_decay
            judged[pair] = judged.get(pair, 0.0) + float(found[run.run_id])
        assert max(judged, key=judged.__getitem__) == further_runs.FAMILY_CHOSEN[name], name


def test_no_dropped_trial_of_the_family_would_have_changed_its_pair():
    chosen = recorded((*further_runs.family_search(), *further_runs.family_wider_search()))
    dropped = recorded(further_runs.family_trials_left_behind())
    assert dropped.groupby("loss").size().to_dict() == {"generalised_cross_entropy": 6, "hard": 6}
    keys = ["loss", "learning_rate", "weight_decay"]
    for loss, part in dropped.groupby("loss"):
        best = chosen[chosen["loss"] == loss].groupby(keys)["validation_top5"].mean().max()
        assert part.groupby(keys)["validation_top5"].mean().max() < best, loss


def test_every_chosen_rate_and_decay_of_the_family_but_one_lies_inside_what_was_tried():
    trials = (*further_runs.family_search(), *further_runs.family_wider_search())
    at_an_end = set()
    for name, (loss, _) in further_runs.FAMILY_LOSSES.items():
        own = [run for run in trials if all(getattr(run, key) == value for key, value in loss.items())]
        for chosen, tried in zip(
            further_runs.FAMILY_CHOSEN[name],
            ({run.learning_rate for run in own}, {run.weight_decay for run in own}),
            strict=True,
        ):
            if chosen in (min(tried), max(tried)):
                at_an_end.add(name)
    assert at_an_end == {"hard top-5"}  # its smaller rate, as chapter 15 says

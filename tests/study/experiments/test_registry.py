"""The identity of a run, and the paper's experiments as data."""

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from smooth_topk.study.experiments import further_runs, registry
from smooth_topk.study.experiments.expected_cost import expected_seconds
from smooth_topk.study.experiments.profiles import PROFILES
from smooth_topk.study.experiments.protocol import COMPARISONS
from smooth_topk.study.experiments.registry import EXPERIMENTS
from smooth_topk.study.experiments.run_config import LOSS_FIELDS, LOSS_OPTIONS, RunConfig
from smooth_topk.study.losses import FAMILY
from smooth_topk.study.records.published import published_runs

BASE = RunConfig(dataset="cifar100", loss="smooth", noise_level=0.4, schedule="steps", milestones=(3, 5))
OTHER_VALUES = {
    "dataset": "synthetic",
    "train_size": 1_000,
    "noise_level": 0.5,
    "noise_grouping": "index_blocks",
    "validation_labels": "noisy",
    "model": "densenet40_12",
    "loss": "hard",
    "k": 3,
    "tau": 0.1,
    "margin": 0.0,
    "tau_final": 0.01,
    "epochs": 9,
    "batch_size": 32,
    "learning_rate": 0.2,
    "momentum": 0.8,
    "nesterov": False,
    "weight_decay": 0.0,
    "schedule": "cosine",
    "milestones": (3,),
    "augment": False,
    "ten_crop": True,
    "precision": "bf16-mixed",
    "seed": 1,
    "chosen_by": "top1",
    "classes": 20,
    "cycles": 2,
    "loss_options": {"label_smoothing": 0.2},
    "split_seed": 1,
    "imbalance": 10.0,
}
# The paper's day and a half on two cards is a round figure, and so is an estimate made from it.
ROUND_FIGURE = 0.1


def test_the_run_id_of_a_known_run_never_changes():
    """Another id would orphan every recorded result."""
    assert RunConfig().run_id == "6beca3d39b5b"
    assert RunConfig(dataset="cifar100", loss="smooth", noise_level=0.4).run_id == "d1f02597646a"


@pytest.mark.parametrize("name", [field.name for field in fields(RunConfig)])
def test_every_field_that_matters_changes_the_run_id(name):
    base = BASE
    if name == "schedule":
        base = replace(BASE, milestones=())
    if name == "cycles":
        base = replace(BASE, milestones=(), schedule="one_cycle")
    if name == "ten_crop":
        base = replace(BASE, dataset="imagenet", noise_grouping="index_blocks")
    if name == "loss_options":
        base = replace(BASE, loss="label_smoothing", tau_final=None)
    assert replace(base, **{name: OTHER_VALUES[name]}).run_id != base.run_id


def test_the_parameters_of_a_loss_are_part_of_the_run_unless_they_are_its_defaults():
    run = RunConfig(loss="label_smoothing", loss_options={"label_smoothing": 0.2})
    assert RunConfig.from_dict(run.to_dict()) == run
    assert replace(run, loss_options={"label_smoothing": 0.1}).run_id == RunConfig(loss="label_smoothing").run_id
    with pytest.raises(ValueError, match="label_smoothing"):
        RunConfig(loss="generalised_cross_entropy", loss_options={"label_smoothing": 0.2})


@pytest.mark.parametrize(
    ("base", "unused"),
    [
        ({"loss": "cross_entropy"}, {"k": 3, "tau": 0.1, "margin": 0.0, "tau_final": 0.01}),
        ({"loss": "hard"}, {"tau": 0.1, "tau_final": 0.01}),
        ({"noise_level": 0.0}, {"noise_grouping": "index_blocks", "validation_labels": "noisy"}),
        ({"train_size": None}, {"train_size": 1.0}),
        ({"loss": "smooth", "tau": 0.5}, {"tau_final": 0.5}),
        ({"learning_rate": 1.0}, {"learning_rate": 1}),
    ],
)
def test_a_field_that_cannot_matter_leaves_the_run_id_alone(base, unused):
    assert RunConfig(**(base | unused)).run_id == RunConfig(**base).run_id


def test_a_run_survives_the_way_through_json():
    config = replace(BASE, tau_final=0.1, train_size=0.25)
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert hash(RunConfig.from_dict(config.to_dict())) == hash(config)


def test_an_unknown_field_is_named():
    with pytest.raises(ValueError, match="no field temperature"):
        RunConfig.from_dict({"temperature": 1.0})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dataset", "mnist"),
        ("model", "vgg"),
        ("loss", "l2"),
        ("schedule", "linear"),
        ("precision", "8-true"),
        ("train_size", 0),
        ("train_size", 1.5),
        ("train_size", "all"),
        ("train_size", True),
        ("noise_level", 1.1),
        ("noise_level", float("nan")),
        ("tau", 0.0),
        ("tau", "1"),
        ("tau", 10**400),
        ("tau_final", -1.0),
        ("margin", -0.5),
        ("k", 0),
        ("k", 5.0),
        ("epochs", 0),
        ("batch_size", 0),
        ("batch_size", 2**63),
        ("classes", 2**63),
        ("train_size", 2**63),
        ("learning_rate", 0.0),
        ("learning_rate", float("inf")),
        ("momentum", 1.0),
        ("weight_decay", -1e-4),
        ("seed", -1),
        ("seed", 2**32),
        ("augment", 1),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_value(name, value):
    with pytest.raises(ValueError, match=rf"{name}.*{value!r}"):
        RunConfig(**{name: value})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"schedule": "steps", "milestones": (5, 3)}, "milestones must be increasing epochs"),
        ({"schedule": "steps", "milestones": (0, 3)}, "milestones must be increasing epochs"),
        ({"schedule": "steps", "milestones": (1.5,)}, "milestones must be epochs"),
        ({"schedule": "cosine", "milestones": (3,)}, "milestones need schedule='steps'"),
        ({"momentum": 0.0}, "nesterov=True needs a momentum"),
        ({"ten_crop": True}, "ten_crop=True needs images larger"),
        ({"dataset": "imagenet", "noise_level": 0.2}, "ImageNet has no superclasses"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        RunConfig(**values)


def test_describe_names_what_differs_between_runs_of_a_table():
    assert replace(BASE, train_size=0.05).describe() == (
        "cifar100 (5 %, noise 0.4 superclass) small L_{5,1} 8 epochs seed 0"
    )
    assert RunConfig(loss="hard", margin=0.0).loss_name == "l_5 margin 0"


def test_table_1_is_6_levels_by_2_losses_by_2_groupings_by_3_seeds():
    runs = registry.table_1_noise()
    assert len(set(runs)) == 6 * 2 * 2 * 3
    assert len({run.run_id for run in runs}) == 6 * 2 * 2 * 3 - 2 * 3  # without noise the grouping does not matter
    assert {(run.epochs, run.batch_size, run.milestones, run.tau) for run in runs} == {(300, 64, (150, 225), 1.0)}
    assert {run.model for run in registry.table_1_noise(model="densenet40_40")} == {"densenet40_40"}


def test_table_2_has_the_rates_and_decays_of_section_5_2():
    runs = registry.table_2_small_data()
    settings = {(run.loss, run.learning_rate, run.weight_decay) for run in runs}
    assert settings == {("cross_entropy", 0.1, 1e-4), ("smooth", 1.0, 2.5e-5)}
    assert [run.train_size for run in runs[::2]] == [64_000, 128_000, 320_000, 640_000, None]
    assert all(run.ten_crop and run.milestones == (30, 60, 90) and run.batch_size == 256 for run in runs)


def test_figure_2_changes_the_temperature_and_nothing_else():
    runs = registry.figure_2_temperature()
    assert [run.tau for run in runs if run.loss == "smooth"] == [1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0]
    assert [run.loss for run in runs].count("hard") == 1
    assert len({replace(run, loss="smooth", tau=1.0) for run in runs}) == 1
    assert {run.model for run in runs} == {"densenet40_12"}


@pytest.mark.parametrize("profile", PROFILES)
def test_annealing_goes_between_two_runs_of_figure_2(profile):
    runs = registry.temperature_annealing(profile)
    falling = [run for run in runs if run.tau_final is not None]
    fixed = [run for run in runs if run.tau_final is None]
    assert {run.run_id for run in fixed} <= {run.run_id for run in registry.figure_2_temperature(profile)}
    assert {(run.tau, run.tau_final) for run in falling} == {(fixed[0].tau, fixed[-1].tau)}
    assert fixed[0].tau > fixed[-1].tau


def test_the_search_tries_rates_and_decays_one_at_a_time_and_holds_those_of_the_table():
    runs = registry.noise_search("laptop")
    for loss in {run.loss_name for run in runs}:
        tried = [run for run in runs if run.loss_name == loss]
        assert len({(run.learning_rate, run.weight_decay) for run in tried}) == 5
        assert len({replace(run, learning_rate=0.1, weight_decay=0.0) for run in tried}) == 1
        assert {run.learning_rate for run in registry.table_1_noise("laptop") if run.loss_name == loss} <= {
            run.learning_rate for run in tried
        }
    assert {run.run_id for run in registry.noise_search("paper")} <= {run.run_id for run in registry.table_1_noise()}


def test_the_regime_without_memorising_takes_as_many_steps():
    table = {run for run in registry.table_1_noise("laptop") if run.noise_level == 0.8}
    runs = registry.noise_without_memorising()
    assert {replace(run, train_size=run.train_size // 4, epochs=4 * run.epochs) for run in runs} == table


def test_the_margin_tables_change_the_margin_and_nothing_else():
    for runs, k, tau in ((registry.table_7_margin_top1(), 1, 1.0), (registry.table_8_margin_top5(), 5, 0.1)):
        assert [run.margin for run in runs] == [0.0, 1.0]
        assert {(run.k, run.tau, run.ten_crop) for run in runs} == {(k, tau, False)}
        assert replace(runs[0], margin=1.0) == runs[1]


@pytest.mark.parametrize("name", [name for name, experiment in EXPERIMENTS.items() if experiment.in_paper])
def test_smoke_is_synthetic_quick_has_features_and_laptop_has_images(name):
    runs = EXPERIMENTS[name].runs
    datasets = {profile: {run.dataset for run in runs(profile)} for profile in PROFILES}
    assert datasets["smoke"] == {"synthetic"}
    assert datasets["quick"] == {"cifar100_features"}
    assert datasets["laptop"] == {"cifar100"}
    with pytest.raises(ValueError, match="'huge'"):
        runs("huge")


def test_the_quick_study_is_expected_to_train_for_less_than_five_minutes_on_two_cores():
    runs = {run.run_id: run for chapter in registry.runs_by_chapter("quick").values() for run in chapter}
    assert 60 < sum(expected_seconds(run) for run in runs.values()) / 2 < 270


def test_every_recorded_run_is_found_again_by_its_experiment():
    """One more row is recorded: a single epoch of DenseNet 40-12, which shows that the engine trains it."""
    recorded = set(published_runs()["run_id"])
    known = [run for experiment in EXPERIMENTS.values() for profile in PROFILES for run in experiment.runs(profile)]
    with_more_seeds = [
        run
        for table in (registry.table_1_noise, registry.table_2_small_data, registry.figure_2_temperature,
                      registry.table_7_margin_top1, registry.table_8_margin_top5)
        for run in table("quick", seeds=range(5))
    ]  # fmt: skip
    more = [*registry.margin_against_decay(seeds=range(5)), *registry.family_comparison()]
    accuracy = dict(zip(published_runs()["run_id"], published_runs()["validation_top5"].fillna(0.0), strict=True))
    compared = [run for comparison in COMPARISONS.values() for run in comparison.runs(accuracy)]
    found = {run.run_id for run in [*known, *with_more_seeds, *more, *compared]}
    assert recorded - found <= {"45e73a706b7b"}


def test_the_search_on_features_gives_every_loss_as_many_trials_and_tries_the_papers_pair():
    trials = registry.feature_search()
    by_loss = {name: [run for run in trials if run.loss_name == name] for name in ("CE", "L_{5,1}", "L_{5,0.1}")}
    assert {len(runs) for runs in by_loss.values()} == {2 * 26}
    for runs in by_loss.values():
        assert sum((run.learning_rate, run.weight_decay) == (0.1, 1e-4) for run in runs) == 2


def test_the_parameters_of_every_loss_are_fields_or_options_of_a_configuration():
    for name, loss in FAMILY.items():
        assert set(LOSS_FIELDS[name]) - {"tau_final"} | set(LOSS_OPTIONS[name]) == set(loss.hyper_parameters)
        assert RunConfig(loss=name, loss_options=LOSS_OPTIONS[name]).run_id == RunConfig(loss=name).run_id


def test_every_loss_of_the_family_has_six_trials_per_noise_level():
    trials = registry.family_search()
    assert len({run.run_id for run in trials}) == 6 * 2 * len(further_runs.FAMILY_LOSSES)


def test_twice_the_margin_comes_with_half_the_decay():
    first, second = registry.margin_against_decay(seeds=[0])[:2]
    assert (second.margin, second.weight_decay) == (2 * first.margin, first.weight_decay / 2)
    assert replace(second, margin=first.margin, weight_decay=first.weight_decay) == first


def test_the_cost_of_full_imagenet_is_the_papers_day_and_a_half_on_two_cards():
    run = registry.table_2_small_data()[-1]
    assert expected_seconds(run, "gpu") / 3600 == pytest.approx(1.5 * 24 * 2, rel=ROUND_FIGURE)
    with pytest.raises(ValueError, match="'tpu'"):
        expected_seconds(run, "tpu")


def test_every_experiment_has_the_runs_under_which_its_results_were_published():
    """run_ids.json: by experiment and profile, how many runs, and a digest of their ids in order."""
    expected = json.loads(Path(__file__).with_name("run_ids.json").read_text())
    for name, profiles in expected.items():
        for profile, digest in profiles.items():
            size, _, seeds = profile.partition(", ")
            function = getattr(registry, name, None) if seeds else EXPERIMENTS[name].runs
            if name == "margin_against_decay" and seeds:
                runs = function(seeds=range(5))
            else:
                runs = function(size, seeds=range(5)) if seeds else function(size)
            ids = [run.run_id for run in runs]
            assert f"{len(ids)} {hashlib.sha256(' '.join(ids).encode()).hexdigest()[:12]}" == digest, (name, profile)

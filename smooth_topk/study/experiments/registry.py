"""The registry of experiments: what the paper trained, and what we add, as data from seconds to GPU weeks.

An experiment knows its title, where it is in the paper, its chapter, and its runs in every profile of `profiles.py`.
Chapters, cost pages, the results page, the dry run and the tests all read EXPERIMENTS.
"""

from collections.abc import Callable
from dataclasses import dataclass

from smooth_topk.study.experiments.further_runs import (
    annealing_of_a_trained_network,
    decays_under_index_blocks,
    family_comparison,
    family_search,
    family_trials_left_behind,
    family_wider_search,
    feature_search,
    k_and_tau,
    larger_decays_on_images,
    many_classes,
    many_classes_left_behind,
    many_classes_search,
    margin_against_decay,
    noise_with_the_papers_pair,
    noise_without_memorising,
    noisy_validation,
    small_data_on_images,
    small_temperatures_on_images,
    trials_left_behind,
)
from smooth_topk.study.experiments.paper_runs import (
    figure_2_temperature,
    noise_search,
    table_1_noise,
    table_2_small_data,
    table_7_margin_top1,
    table_8_margin_top5,
    temperature_annealing,
)
from smooth_topk.study.experiments.run_config import RunConfig


@dataclass(frozen=True)
class Experiment:
    """One question that trainings answer.

    Attributes:
        title: what it varies, for tables of contents and costs.
        paper: its tables and figures in the paper, or "not in the paper".
        chapter: the notebook that shows it.
        runs: function (profile) -> the runs; where two experiments share a run, it has one run_id.
    """

    title: str
    paper: str
    chapter: str
    runs: Callable[[str], tuple[RunConfig, ...]]

    @property
    def in_paper(self) -> bool:
        return self.paper != "not in the paper"


def _only(profile: str, runs: Callable[[], tuple[RunConfig, ...]]) -> Callable[[str], tuple[RunConfig, ...]]:
    """Returns the function of an experiment that one profile alone has."""
    return lambda asked: runs() if asked == profile else ()


TEMPERATURE, NOISE, SMALL_DATA, MARGIN, FAMILY = (
    "08_temperature_study",
    "09_noisy_labels_study",
    "10_small_data_study",
    "12_margin_study",
    "15_the_family",
)
EXPERIMENTS = {
    "figure_2_temperature": Experiment("The temperature", "Figure 2(a) and Table 6", TEMPERATURE, figure_2_temperature),
    "temperature_annealing": Experiment("A falling temperature", "appendix D.1.3", TEMPERATURE, temperature_annealing),
    "table_1_noise": Experiment("Noisy labels", "Tables 1 and 9", NOISE, table_1_noise),
    "noise_search": Experiment("Rates and decays under noise", "not in the paper", NOISE, noise_search),
    "noise_with_the_papers_pair": Experiment(
        "Noisy labels with the paper's rate and decay",
        "not in the paper",
        NOISE,
        _only("quick", noise_with_the_papers_pair),
    ),
    "noisy_validation": Experiment(
        "Noisy validation labels",
        "not in the paper",
        NOISE,
        _only("quick", noisy_validation),
    ),
    "table_2_small_data": Experiment("Small training sets", "Table 2", SMALL_DATA, table_2_small_data),
    "small_data_on_images": Experiment(
        "Small training sets of images, fitted",
        "not in the paper",
        SMALL_DATA,
        _only("laptop", small_data_on_images),
    ),
    "larger_decays_on_images": Experiment(
        "Larger decays with few images",
        "not in the paper",
        SMALL_DATA,
        _only("laptop", larger_decays_on_images),
    ),
    "feature_search": Experiment(
        "Rates and decays on features",
        "not in the paper",
        NOISE,
        _only("quick", feature_search),
    ),
    "trials_left_behind": Experiment(
        "Trials outside the final grid",
        "not in the paper",
        NOISE,
        _only("quick", trials_left_behind),
    ),
    "family_search": Experiment(
        "Rates and decays of the family of losses",
        "not in the paper",
        FAMILY,
        _only("quick", family_search),
    ),
    "family_wider_search": Experiment(
        "Rates and decays of the family beyond the first grid",
        "not in the paper",
        FAMILY,
        _only("quick", family_wider_search),
    ),
    "family_trials_left_behind": Experiment(
        "Trials of the family outside the final grid",
        "not in the paper",
        FAMILY,
        _only("quick", family_trials_left_behind),
    ),
    "family_comparison": Experiment(
        "The family of top-k losses",
        "not in the paper",
        FAMILY,
        _only("quick", family_comparison),
    ),
    "decays_under_index_blocks": Experiment(
        "Larger decays under the strongest noise",
        "not in the paper",
        FAMILY,
        _only("quick", decays_under_index_blocks),
    ),
    "many_classes": Experiment(
        "1,000 and 10,000 classes",
        "not in the paper",
        FAMILY,
        _only("quick", many_classes),
    ),
    "many_classes_left_behind": Experiment(
        "Trials for 1,000 classes outside the final grid",
        "not in the paper",
        FAMILY,
        _only("quick", many_classes_left_behind),
    ),
    "noise_without_memorising": Experiment(
        "Noisy labels that are not learned by heart",
        "not in the paper",
        NOISE,
        _only("laptop", noise_without_memorising),
    ),
    "small_temperatures_on_images": Experiment(
        "Why small temperatures fail",
        "not in the paper",
        TEMPERATURE,
        _only("laptop", small_temperatures_on_images),
    ),
    "annealing_of_a_trained_network": Experiment(
        "A falling temperature after training",
        "not in the paper",
        TEMPERATURE,
        lambda profile: annealing_of_a_trained_network(profile) if profile in ("quick", "laptop") else (),
    ),
    "k_and_tau": Experiment(
        "Every k, temperature and number of classes",
        "not in the paper",
        FAMILY,
        _only("quick", k_and_tau),
    ),
    "many_classes_search": Experiment(
        "Rates and decays for 1,000 classes",
        "not in the paper",
        FAMILY,
        _only("quick", many_classes_search),
    ),
    "margin_against_decay": Experiment(
        "Twice the margin, half the decay",
        "not in the paper",
        MARGIN,
        _only("quick", margin_against_decay),
    ),
    "table_7_margin_top1": Experiment("The margin, k = 1", "Table 7", MARGIN, table_7_margin_top1),
    "table_8_margin_top5": Experiment("The margin, k = 5", "Table 8", MARGIN, table_8_margin_top5),
}


def runs_by_chapter(profile: str = "paper") -> dict[str, list[RunConfig]]:
    """Returns the runs of the paper's experiments by the chapter that shows them, every run once.

    Example:
        >>> {name: len(runs) for name, runs in runs_by_chapter("paper").items()}
        {'08_temperature_study': 8, '09_noisy_labels_study': 66, '10_small_data_study': 10, '12_margin_study': 4}
    """
    chapters: dict[str, dict[str, RunConfig]] = {}
    for experiment in EXPERIMENTS.values():
        if experiment.in_paper:
            chapters.setdefault(experiment.chapter, {}).update({run.run_id: run for run in experiment.runs(profile)})
    return {name: list(runs.values()) for name, runs in chapters.items()}

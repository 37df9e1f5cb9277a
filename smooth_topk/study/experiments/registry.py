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
        return self.paper != OURS


def _ours(title: str, chapter: str, profile: str, runs: Callable[[], tuple[RunConfig, ...]]) -> Experiment:
    """Returns an experiment that is not in the paper and that one profile alone has."""
    return Experiment(title, OURS, chapter, lambda asked: runs() if asked == profile else ())


def _fine_tuned(profile: str) -> tuple[RunConfig, ...]:
    return annealing_of_a_trained_network(profile) if profile in ("quick", "laptop") else ()


OURS = "not in the paper"
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
    "noise_search": Experiment("Learning rates and weight decays under noise", OURS, NOISE, noise_search),
    "noise_with_the_papers_pair": _ours(
        "Noisy labels with the paper's hyper-parameters", NOISE, "quick", noise_with_the_papers_pair
    ),
    "noisy_validation": _ours("Noisy validation labels", NOISE, "quick", noisy_validation),
    "table_2_small_data": Experiment("Small training sets", "Table 2", SMALL_DATA, table_2_small_data),
    "small_data_on_images": _ours("Small training sets of images, fitted", SMALL_DATA, "laptop", small_data_on_images),
    "larger_decays_on_images": _ours(
        "Larger weight decays with few images", SMALL_DATA, "laptop", larger_decays_on_images
    ),
    "feature_search": _ours("Learning rates and weight decays on features", NOISE, "quick", feature_search),
    "trials_left_behind": _ours("Superseded trials on features", NOISE, "quick", trials_left_behind),
    "family_search": _ours("Search for the family of losses", FAMILY, "quick", family_search),
    "family_wider_search": _ours("Wider search for the family of losses", FAMILY, "quick", family_wider_search),
    "family_trials_left_behind": _ours("Superseded trials of the family", FAMILY, "quick", family_trials_left_behind),
    "family_comparison": _ours("The family of top-k losses", FAMILY, "quick", family_comparison),
    "decays_under_index_blocks": _ours(
        "Larger weight decays under the strongest noise", FAMILY, "quick", decays_under_index_blocks
    ),
    "many_classes": _ours("1,000 and 10,000 classes", FAMILY, "quick", many_classes),
    "many_classes_left_behind": _ours("Superseded trials for 1,000 classes", FAMILY, "quick", many_classes_left_behind),
    "noise_without_memorising": _ours("Noisy labels that are not memorised", NOISE, "laptop", noise_without_memorising),
    "small_temperatures_on_images": _ours(
        "Why small temperatures fail", TEMPERATURE, "laptop", small_temperatures_on_images
    ),
    "annealing_of_a_trained_network": Experiment(
        "A falling temperature after training", OURS, TEMPERATURE, _fine_tuned
    ),
    "k_and_tau": _ours("Every k, temperature and number of classes", FAMILY, "quick", k_and_tau),
    "many_classes_search": _ours("Search for 1,000 classes", FAMILY, "quick", many_classes_search),
    "margin_against_decay": _ours("Twice the margin, half the weight decay", MARGIN, "quick", margin_against_decay),
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

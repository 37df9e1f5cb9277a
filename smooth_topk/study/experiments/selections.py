"""Which trainings a command means: names of experiments, "all" or "one_night" in, runs by experiment out."""

from collections.abc import Iterable, Sequence

from smooth_topk.study.experiments.registry import EXPERIMENTS, figure_2_temperature, table_1_noise
from smooth_topk.study.experiments.run_config import RETIRED, RunConfig

NIGHT, ALL = "one_night", "all"
FAMILY_IN_QUICK = ("family_comparison", "quick")
NIGHT_LEVEL = 0.8  # the noise level of the selection: a large difference in the paper, and more wrong labels than right


def study_runs(profile: str, chapters: Iterable[str]) -> dict[str, list[RunConfig]]:
    """Returns by experiment the runs that a study of the profile trains for these chapters, each run once.

    Those of the paper's experiments; the other experiments are trained by name (`selected_runs`). The profile quick
    trains one seed, and the family of losses in one setting, which its readers compare with the published runs.
    """
    shown = set(chapters)
    return _each_once({name: trained(name, profile) for name, one in EXPERIMENTS.items() if one.chapter in shown})


def trained(name: str, profile: str, seeds: Sequence[int] | None = None) -> list[RunConfig]:
    """Returns the runs of an experiment that a study of the profile trains; `seeds` chooses among those it has.

    Example:
        >>> [len(trained("table_1_noise", profile)) for profile in ("smoke", "quick", "laptop", "paper")]
        [8, 24, 48, 72]
    """
    experiment = EXPERIMENTS[name]
    runs = list(experiment.runs(profile)) if experiment.in_paper or (name, profile) == FAMILY_IN_QUICK else []
    if seeds is None and profile == "quick":
        seeds = (0,)
    if name == "family_comparison":
        runs = [run for run in runs if (run.noise_level, run.noise_grouping) == (NIGHT_LEVEL, "superclass")]
    return [run for run in runs if run.loss not in RETIRED and (seeds is None or run.seed in seeds)]


def selected_runs(profile: str, names: Iterable[str]) -> dict[str, list[RunConfig]]:
    """Returns by experiment the runs that the names stand for, each run once.

    Args:
        profile: the size of the runs.
        names: experiments of the registry, "all" for those of the paper, or "one_night".

    Example:
        >>> {name: len(runs) for name, runs in selected_runs("paper", ["one_night"]).items()}
        {'figure_2_temperature': 7, 'table_1_noise': 2}
    """
    chosen: dict[str, Sequence[RunConfig]] = {}
    for name in names:
        if name == NIGHT:
            chosen |= _one_night(profile)
        elif name == ALL:
            chosen |= {known: one.runs(profile) for known, one in EXPERIMENTS.items() if one.in_paper}
        elif name in EXPERIMENTS:
            chosen[name] = EXPERIMENTS[name].runs(profile)
        else:
            raise ValueError(f"trainings must be {NIGHT}, {ALL} or one of {', '.join(EXPERIMENTS)}, got {name!r}.")
    return _each_once(chosen)


def _one_night(profile: str) -> dict[str, Sequence[RunConfig]]:
    """Figure 2, and both losses of Table 1 at one noise level with one seed."""
    noisy = [
        run
        for run in table_1_noise(profile, seeds=(0,))
        if (run.noise_level, run.noise_grouping) == (NIGHT_LEVEL, "superclass")
    ]
    return {"figure_2_temperature": figure_2_temperature(profile, seeds=(0,)), "table_1_noise": noisy}


def _each_once(experiments: dict[str, Sequence[RunConfig]]) -> dict[str, list[RunConfig]]:
    seen: set[str] = set()
    kept = {}
    for name, runs in experiments.items():
        new = {run.run_id: run for run in runs if run.run_id not in seen and run.loss not in RETIRED}
        seen |= set(new)
        if new:
            kept[name] = list(new.values())
    return kept

"""When more GPUs stop helping: the runs of a study in, its length on so many GPUs out.

With total work W and longest run d, G GPUs that never wait while a run is left need, whatever the order of the runs, at
least max(W/G, d) and at most W/G + (1 - 1/G) d (Graham, Bounds for certain multiprocessing anomalies, 1966). More than
W/d GPUs therefore cannot help. Between the two bounds the order decides; the runner takes the longest run first.
"""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from smooth_topk.study.experiments.expected_cost import expected_seconds, makespan
from smooth_topk.study.experiments.run_config import RunConfig


def scaling_table(
    chapters: Mapping[str, Sequence[RunConfig]],
    gpus: Iterable[int],
    *,
    device: str = "gpu",
    overhead: float = 0.0,
) -> pd.DataFrame:
    """The length of a study against the number of GPUs, one run per GPU, the longest runs first.

    Args:
        chapters: the runs of each chapter.
        gpus: numbers of GPUs.
        device: whose speed `expected_seconds` assumes.
        overhead: seconds that the runner adds to every run.

    Returns:
        Hours by number of GPUs: "together" (all runs in one grid), "one_by_one" (a chapter begins when the one before
        it has ended) and "least" (the lower bound of both); "efficiency" is the share of the GPUs' time in one grid
        that is work.
    """
    hours = {
        name: [(expected_seconds(run, device) + overhead) / 3600 for run in runs] for name, runs in chapters.items()
    }
    together = [duration for durations in hours.values() for duration in durations]
    rows = {}
    for count in gpus:
        length = makespan(together, count)
        rows[count] = {
            "together": length,
            "one_by_one": sum(makespan(durations, count) for durations in hours.values()),
            "least": max(sum(together) / count, max(together)),
            "efficiency": sum(together) / (count * length),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("gpus")


def useful_gpus(chapters: Mapping[str, Sequence[RunConfig]], *, device: str = "gpu") -> float:
    """Returns W/d, the total work over the longest run: more GPUs than this cannot shorten the study.

    Example:
        >>> from smooth_topk.study.experiments.registry import runs_by_chapter
        >>> round(useful_gpus(runs_by_chapter("paper")), 1)
        16.7
    """
    seconds = [expected_seconds(run, device) for runs in chapters.values() for run in runs]
    return sum(seconds) / max(seconds)

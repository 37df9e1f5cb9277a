"""What the study costs before it runs: hours by experiment, computed from the configurations."""

import pandas as pd

from smooth_topk.study.experiments import registry
from smooth_topk.study.experiments.expected_cost import expected_seconds


def expected_cost_table(profile: str = "paper", *, device: str = "gpu") -> pd.DataFrame:
    """The expected cost of every experiment, `expected_cost.ASSUMPTIONS[device]` given; a run counts once.

    Returns:
        By experiment, and for the total: data, network, runs, epochs per run, hours of the longest run, hours of all.
    """
    seen: set[str] = set()
    rows = {}
    for experiment in registry.EXPERIMENTS.values():
        runs = {run.run_id: run for run in experiment.runs(profile) if run.run_id not in seen}
        if not experiment.in_paper or not runs:
            continue
        seen |= set(runs)
        hours = [expected_seconds(run, device) / 3600 for run in runs.values()]
        first = next(iter(runs.values()))
        fixed = {"data": first.dataset, "network": first.model, "runs": len(runs), "epochs": first.epochs}
        title = f"{experiment.paper}: {experiment.title[0].lower()}{experiment.title[1:]}"
        rows[title] = {
            **fixed,
            "longest run": max(hours),
            "all runs": sum(hours),
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("experiment")
    whole = {"data": "", "network": "", "runs": table["runs"].sum(), "epochs": ""}
    whole |= {"longest run": table["longest run"].max(), "all runs": table["all runs"].sum()}
    return pd.concat([table, pd.DataFrame(whole, index=["all"])]).rename_axis("experiment")

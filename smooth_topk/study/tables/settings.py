"""The hyper-parameters of each loss beside one another: configurations in, a table out."""

from collections.abc import Mapping, Sequence

import pandas as pd

from smooth_topk.study.experiments.names import data_name, network_name
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.tables.cells import NOT_RUN, decay_text

COLUMNS = {
    "learning_rate": ("rate", "{:g}".format),
    "weight_decay": ("weight decay", decay_text),
    "batch_size": ("batch", "{:g}".format),
    "epochs": ("epochs", "{:g}".format),
}


def settings_table(experiments: Mapping[str, Sequence[RunConfig]]) -> pd.DataFrame:
    """Returns rate, weight decay, batch and epochs of every loss of every experiment, each loss once.

    Args:
        experiments: runs by the name of their experiment; the first run of a loss speaks for the others.
    """
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for name, runs in experiments.items():
        for run in runs:
            values = {heading: written(getattr(run, field)) for field, (heading, written) in COLUMNS.items()}
            rows.setdefault(
                (name, run.loss_name), {"data": data_name(run.dataset), "network": network_name(run.model)} | values
            )
    rows = rows or {("all", "all"): dict.fromkeys([heading for heading, _ in COLUMNS.values()], NOT_RUN)}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["experiment", "loss"])
    return table

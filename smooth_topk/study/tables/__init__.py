"""The tables of the paper with our values beside them: tidy tables in, a table to show out.

What was not run says "not run"; means come with their standard deviation and the number of seeds.
"""

from smooth_topk.study.tables.cells import NOT_RUN, mean_and_std
from smooth_topk.study.tables.comparisons import drop_table, early_stopping_table, gain_table, loss_table
from smooth_topk.study.tables.errors import error_table, errors_of, largest_relative_error
from smooth_topk.study.tables.paper import paper_facts, paper_table
from smooth_topk.study.tables.show import show
from smooth_topk.study.tables.speed import speed_table, stability_table
from smooth_topk.study.tables.training import margin_table, noise_table, size_name, small_data_table, temperature_table

__all__ = [
    "NOT_RUN",
    "drop_table",
    "early_stopping_table",
    "error_table",
    "errors_of",
    "gain_table",
    "largest_relative_error",
    "loss_table",
    "margin_table",
    "mean_and_std",
    "noise_table",
    "paper_facts",
    "paper_table",
    "show",
    "size_name",
    "small_data_table",
    "speed_table",
    "stability_table",
    "temperature_table",
]

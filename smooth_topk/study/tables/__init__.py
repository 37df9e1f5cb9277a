"""The tables of the paper with our values beside them: tidy tables in, a table to show out.

What was not run says "not run"; means come with their standard deviation and the number of seeds.
"""

from smooth_topk.study.tables.cells import NOT_RUN, mean_and_std
from smooth_topk.study.tables.comparisons import (
    drop_table,
    early_stopping_table,
    gain_table,
    loss_table,
    of_grouping,
)
from smooth_topk.study.tables.errors import error_table, errors_of, largest_relative_error
from smooth_topk.study.tables.findings import findings_table
from smooth_topk.study.tables.paper import paper_facts, paper_table
from smooth_topk.study.tables.settings import settings_table
from smooth_topk.study.tables.show import show
from smooth_topk.study.tables.speed import speed_table, stability_table
from smooth_topk.study.tables.speed_costs import cost_table, exponent_table, memory_table, training_step_table
from smooth_topk.study.tables.ten_crops import ten_crop_table
from smooth_topk.study.tables.training import margin_table, noise_table, size_name, small_data_table, temperature_table

__all__ = [
    "NOT_RUN",
    "cost_table",
    "drop_table",
    "early_stopping_table",
    "error_table",
    "errors_of",
    "exponent_table",
    "findings_table",
    "gain_table",
    "largest_relative_error",
    "loss_table",
    "margin_table",
    "mean_and_std",
    "memory_table",
    "noise_table",
    "of_grouping",
    "paper_facts",
    "paper_table",
    "settings_table",
    "show",
    "size_name",
    "small_data_table",
    "speed_table",
    "stability_table",
    "temperature_table",
    "ten_crop_table",
    "training_step_table",
]

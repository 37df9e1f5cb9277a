"""The tables of the paper with our values next to them: tidy tables in, a table to show out.

What was not run says "not run"; means come with their standard deviation, and the heading names the number of seeds.
"""

from smooth_topk.study.records.paper import paper_facts, paper_table
from smooth_topk.study.tables.accuracy import (
    margin_table,
    noise_table,
    size_name,
    small_data_table,
    temperature_table,
    with_best_validation,
)
from smooth_topk.study.tables.calibration import calibration_table
from smooth_topk.study.tables.cells import NOT_RUN, mean_and_std, of_grouping, seeds_text
from smooth_topk.study.tables.comparisons import (
    GROUPING_NAMES,
    drop_table,
    early_stopping_table,
    falls,
    gain_table,
    loss_table,
    search_table,
    setting_name,
    small_temperature_table,
    with_best_decay,
)
from smooth_topk.study.tables.differences import (
    differences_by_margin,
    differences_by_seed,
    interval_text,
    intervals,
    resolvable,
    t_interval,
)
from smooth_topk.study.tables.family import (
    best_tau_table,
    family_differences,
    family_table,
    k_against_metric_table,
    many_classes_table,
    tau_differences,
    with_own_validation,
)
from smooth_topk.study.tables.findings import claims, findings_table, readme_table
from smooth_topk.study.tables.further_findings import further_table, small_temperature
from smooth_topk.study.tables.names import algorithm_name
from smooth_topk.study.tables.settings import settings_table
from smooth_topk.study.tables.show import show
from smooth_topk.study.tables.speed import speed_table, stability_table
from smooth_topk.study.tables.speed_in_short import speed_in_short
from smooth_topk.study.tables.speed_ratios import cost_table

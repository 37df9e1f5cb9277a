"""One function per figure: tidy table in, Axes out. What a colour means is in `style`."""

from smooth_topk.study.figures.bounds import (
    correction_band,
    correction_bounds,
    counterexample,
    counterexample_figure,
    gap_figure,
    gap_table,
    hard_margins,
    prediction_bound,
)
from smooth_topk.study.figures.derivatives import derivative_bars, derivative_map, derivative_table, derivatives
from smooth_topk.study.figures.errors import error_curves, error_map, error_maps, largest_terms, stability_figure
from smooth_topk.study.figures.losses import (
    error_by_k,
    loss_curve_table,
    loss_curves,
    margin_curves,
    score_bars,
    training_accuracy,
)
from smooth_topk.study.figures.margin import left_out_regions
from smooth_topk.study.figures.pictures import class_pictures
from smooth_topk.study.figures.pivot import correction_curve, head_and_tail, tail_derivatives, tail_table
from smooth_topk.study.figures.polynomials import (
    operation_counts,
    product_tree,
    subset_shares,
    subset_table,
    summation_grid,
)
from smooth_topk.study.figures.probabilities import (
    crop_bars,
    crop_table,
    membership_bars,
    probability_bars,
    probability_table,
)
from smooth_topk.study.figures.speed import k_sweep_figure, memory_figure, speed_figure
from smooth_topk.study.figures.style import look_of_loss, new_axes, show_tau_scale, tau_colour
from smooth_topk.study.figures.training import (
    annealing_curves,
    gradient_sparsity,
    noise_beside_paper,
    noise_curves,
    noise_figure,
    small_data_figure,
    training_curves_by_tau,
)

__all__ = [
    "annealing_curves",
    "class_pictures",
    "correction_band",
    "correction_bounds",
    "correction_curve",
    "counterexample",
    "counterexample_figure",
    "crop_bars",
    "crop_table",
    "derivative_bars",
    "derivative_map",
    "derivative_table",
    "derivatives",
    "error_by_k",
    "error_curves",
    "error_map",
    "error_maps",
    "gap_figure",
    "gap_table",
    "gradient_sparsity",
    "hard_margins",
    "head_and_tail",
    "k_sweep_figure",
    "largest_terms",
    "left_out_regions",
    "look_of_loss",
    "loss_curve_table",
    "loss_curves",
    "margin_curves",
    "membership_bars",
    "memory_figure",
    "new_axes",
    "noise_beside_paper",
    "noise_curves",
    "noise_figure",
    "operation_counts",
    "prediction_bound",
    "probability_bars",
    "probability_table",
    "product_tree",
    "score_bars",
    "show_tau_scale",
    "small_data_figure",
    "speed_figure",
    "stability_figure",
    "subset_shares",
    "subset_table",
    "summation_grid",
    "tail_derivatives",
    "tail_table",
    "tau_colour",
    "training_accuracy",
    "training_curves_by_tau",
]

"""One function per figure: tidy table in, Axes out. What a colour means is in `style`."""

from smooth_topk.study.figures.errors import error_curves, error_map, error_maps
from smooth_topk.study.figures.losses import loss_curve_table, loss_curves
from smooth_topk.study.figures.pivot import correction_curve, head_and_tail, tail_derivatives
from smooth_topk.study.figures.polynomials import (
    operation_counts,
    product_tree,
    subset_shares,
    subset_table,
    summation_grid,
)
from smooth_topk.study.figures.probabilities import probability_bars
from smooth_topk.study.figures.speed import speed_figure
from smooth_topk.study.figures.style import look_of_loss, new_axes, show_tau_scale, tau_colour
from smooth_topk.study.figures.training import (
    gradient_sparsity,
    noise_figure,
    small_data_figure,
    training_curves_by_tau,
)

__all__ = [
    "correction_curve",
    "error_curves",
    "error_map",
    "error_maps",
    "gradient_sparsity",
    "head_and_tail",
    "look_of_loss",
    "loss_curve_table",
    "loss_curves",
    "new_axes",
    "noise_figure",
    "operation_counts",
    "probability_bars",
    "product_tree",
    "show_tau_scale",
    "small_data_figure",
    "speed_figure",
    "subset_shares",
    "subset_table",
    "summation_grid",
    "tail_derivatives",
    "tau_colour",
    "training_curves_by_tau",
]

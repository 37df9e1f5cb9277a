"""One function per figure: tidy table in, Axes out. What a colour means is in `style`."""

from smooth_topk.study.figures.losses import loss_curve_table, loss_curves
from smooth_topk.study.figures.polynomials import error_map
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
    "error_map",
    "gradient_sparsity",
    "look_of_loss",
    "loss_curve_table",
    "loss_curves",
    "new_axes",
    "noise_figure",
    "probability_bars",
    "show_tau_scale",
    "small_data_figure",
    "speed_figure",
    "tau_colour",
    "training_curves_by_tau",
]

"""One function per figure: tidy table in, Axes out. What a colour means is in `style`."""

from smooth_topk.study.figures.accuracy import (
    annealing_curves,
    gradient_sparsity,
    noise_beside_paper,
    noise_curves,
    noise_figure,
    small_data_figure,
    training_curves_by_tau,
)
from smooth_topk.study.figures.calibration import calibration_bars, calibration_map, local_minima_curves
from smooth_topk.study.figures.derivatives import derivative_bars
from smooth_topk.study.figures.differences import (
    claims_figure,
    difference_figure,
    noise_differences,
    noise_summary,
)
from smooth_topk.study.figures.drawings import label_noise, tie_of_scores
from smooth_topk.study.figures.error_maps import error_curves, error_maps, stability_figure
from smooth_topk.study.figures.family import family_curves, family_figure, tau_figure
from smooth_topk.study.figures.losses import loss_curves
from smooth_topk.study.figures.margin import left_out_regions
from smooth_topk.study.figures.pivot import pivot_steps
from smooth_topk.study.figures.polynomials import product_tree, summation_grid
from smooth_topk.study.figures.probabilities import plausible_names
from smooth_topk.study.figures.speed import speed_figure
from smooth_topk.study.figures.style import look_of_loss, new_axes, new_panels, shared_legend
from smooth_topk.study.figures.training_gradients import training_gradients

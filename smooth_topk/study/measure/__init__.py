"""Numbers that are computed here and not trained: what the losses are, what they cost and how exact they are.

Scores, labels and functions under test go in, tidy tables come out, which chapters hand to `figures` and `tables`.
`python scripts/benchmark.py` records those of appendix B.3 (Tables 3 to 5), and chapter 7 shows them. The names below
need no training; `training_step`, `step_times` and `sparsity` do, so that each of these
modules is imported by itself.
"""

from smooth_topk.study.measure.contenders import find_contenders, find_peers
from smooth_topk.study.measure.errors import (
    accuracy_grid,
    error_table,
    largest_relative_error,
    measure_stability,
    random_scores,
    worst_errors,
)
from smooth_topk.study.measure.exponents import fit_exponents
from smooth_topk.study.measure.gradients import derivative_table, derivatives, nonzero_shares
from smooth_topk.study.measure.loss_curves import loss_curve_table
from smooth_topk.study.measure.memory import peak_bytes
from smooth_topk.study.measure.speed import (
    Settings,
    measure_backward,
    measure_cases,
    measure_forward,
    measure_k_sweep,
    measure_loss,
    measure_memory,
    measure_peers,
)

"""What the losses cost and how exact they are: functions under test in, tidy tables out (appendix C.2, Tables 3 to 5).

`python scripts/benchmark.py` runs the sections and records them; notebooks/07_speed shows them.
"""

from smooth_topk.study.benchmarks.contenders import compiler_missing, find_contenders, find_peers
from smooth_topk.study.benchmarks.costs import (
    Settings,
    measure_backward,
    measure_forward,
    measure_k_sweep,
    measure_loss,
    measure_memory,
    measure_peers,
)
from smooth_topk.study.benchmarks.memory import peak_bytes
from smooth_topk.study.benchmarks.runner import measure_runner
from smooth_topk.study.benchmarks.scaling import fit_exponents
from smooth_topk.study.benchmarks.stability import accuracy_grid, measure_stability, worst_errors
from smooth_topk.study.benchmarks.timing import Timing, interleave
from smooth_topk.study.benchmarks.training_step import measure_training_step

__all__ = [
    "Settings",
    "Timing",
    "accuracy_grid",
    "compiler_missing",
    "find_contenders",
    "find_peers",
    "fit_exponents",
    "interleave",
    "measure_backward",
    "measure_forward",
    "measure_k_sweep",
    "measure_loss",
    "measure_memory",
    "measure_peers",
    "measure_runner",
    "measure_stability",
    "measure_training_step",
    "peak_bytes",
    "worst_errors",
]

"""What every loss of the family costs beside cross-entropy, in time and in memory: settings in, a tidy table out."""

import pandas as pd
import torch

from smooth_topk.study.experiments.further_runs import FAMILY_LOSSES
from smooth_topk.study.experiments.run_config import RETIRED, RunConfig
from smooth_topk.study.measure.family_curves import is_installed
from smooth_topk.study.measure.memory import peak_bytes
from smooth_topk.study.measure.speed import BASELINE, BOTH, Settings, problem
from smooth_topk.study.training.schedules import loss_at

BATCH, CLASSES = 128, 100  # of the comparison on features


def measure_family(settings: Settings) -> pd.DataFrame:
    """Forward and backward pass of the comparison's losses on one batch, taking turns, and the peak of their memory.

    Returns:
        One row per loss of FAMILY_LOSSES that can be computed here: loss, the columns of a timing, ratio (time over
        that of cross-entropy in the same rounds), peak_bytes and memory_ratio.
    """
    torch.set_num_threads(1)  # as in the trainings of the comparison
    scores, labels = problem(settings, BATCH, CLASSES)
    calls, names = {}, {}
    for name, (fields, _) in FAMILY_LOSSES.items():
        config = RunConfig(**fields)
        key = BASELINE if config.loss == "cross_entropy" else name
        if config.loss not in RETIRED and is_installed(config.loss):
            calls[key], names[key] = _call(config, scores, labels), name
    timed = settings.time(calls)
    peaks = {key: peak_bytes(call, settings.device) for key, call in settings.track(list(calls.items()))}
    fixed = {"direction": BOTH, "n": CLASSES, "batch": BATCH, "k": RunConfig.k, "threads": 1}
    rows = []
    for key, columns in timed.items():
        memory = {"peak_bytes": peaks[key], "memory_ratio": peaks[key] / peaks[BASELINE]}
        rows.append({"loss": names[key], **fixed, **columns, **memory})
    return pd.DataFrame(rows)


def _call(config: RunConfig, scores: torch.Tensor, labels: torch.Tensor):
    loss = loss_at(config, 0)
    return lambda: torch.autograd.grad(loss(scores, labels), scores)

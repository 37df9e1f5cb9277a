"""The study of the paper: everything that is not the losses themselves. Needs the extra `study`.

`from smooth_topk.study import RunConfig, fit, read_runs, run_grid` imports what it names and nothing else.

Its subpackages, in the order the data flows. A subpackage imports only those before it, which scripts/test.sh checks
with the contracts of pyproject.toml; `tables` and `figures` never reach `training` or `grid`, so that drawing what was
recorded needs no training code.

    losses        the family of other top-k losses, behind one registry
    experiments   one run as data, the paper's experiments as a registry, the protocol, the profiles, the expected cost
    records       one JSON file per run, the published CSV files, paths and locks, the machine
    data          built-in features and images, CIFAR-100, ImageNet, augmentation, batches
    training      one run: models, schedules, the loop, evaluation, checkpoints
    grid          many runs: local processes, or a Ray cluster
    measure       numbers that no training gives: losses, bounds, errors, time, memory, sparsity, ten crops
    tables        the paper's tables with ours next to them
    figures       tidy table in, Axes out
    chapters      what notebooks call: the start of a chapter, sliders, the explorer, the runs of a chapter
    book          the command lines: running the chapters, building the book and its pages, the benchmark
"""

import importlib
from typing import Any

WHERE = {"RunConfig": "experiments.run_config", "fit": "training.fit", "run_grid": "grid", "read_runs": "records.runs"}
WHERE |= {"read_epochs": "records.runs", "published_runs": "records.published"}
__all__ = list(WHERE)


def __getattr__(name: str) -> Any:
    if name not in WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{WHERE[name]}"), name)

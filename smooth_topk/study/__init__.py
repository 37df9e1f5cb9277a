"""The study of the paper: everything that is not the losses themselves. Needs the extra `study`.

Its rooms, in the order the data flows. A room imports only rooms that stand before it, which scripts/test.sh checks
with the contracts of pyproject.toml; `tables` and `figures` never reach `training` or `grid`, so that drawing what was
recorded needs no training code.

    experiments   one run as data, the paper's experiments as a registry, the profiles, the cost expected of them
    records       runs.csv and epochs.csv, files, locks and paths, the machine, what the paper's tables say
    data          built-in features and images, CIFAR-100, ImageNet, augmentation, batches
    losses        the family of other top-k losses, behind one registry
    training      one run: models, schedules, the loop, evaluation, checkpoints
    grid          many runs: local workers, or a Ray cluster
    measure       numbers that no training gives: losses, bounds, errors, time, memory, sparsity, ten crops
    tables        the paper's tables with ours beside them
    figures       tidy table in, Axes out
    chapters      what notebooks call: the start of a chapter, sliders, the explorer, the runs of a chapter
    book          the command lines: running the chapters, building the book and its pages, the benchmark

`records` stands before `data` and `training` because every room that writes results needs its files, locks and paths.
"""

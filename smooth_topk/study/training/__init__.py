"""One run: a `RunConfig` goes in, a row of runs.csv and the rows of epochs.csv come out.

`fit` starts or resumes a run and records it, `loop` trains it epoch by epoch, `evaluation` counts its hits,
`checkpoints` saves what a killed run needs to go on with the same numbers. The networks are in `models`, rates and
temperatures in `schedules`.
"""

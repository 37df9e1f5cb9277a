"""One run: from a `RunConfig` to its record.

`fit` starts or resumes a run and records it, `loop` trains it epoch by epoch, `evaluation` counts its hits,
`checkpoints` saves what a killed run needs to continue with the same numbers. The networks are in `models`, learning
rates and temperatures in `schedules`.
"""

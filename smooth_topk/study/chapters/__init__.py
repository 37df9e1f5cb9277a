"""What the notebooks call beside measure, tables and figures: the start of a chapter, its runs, and what moves in it.

`notebook` prints where the outputs of a chapter come from, `trainings` runs what is not recorded yet, `controls` puts
sliders above a figure, and `tau_explorer` is the explorer that the book shows too.
"""

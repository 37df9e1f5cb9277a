"""What the notebooks call beside measure, tables and figures: the start of a chapter, its runs, and what moves in it.

`notebook` prints where the outputs of a chapter come from, `trainings` runs what is not recorded yet, `controls` puts
sliders above a figure, and `tau_explorer` and `training_demo` are figures that compute in the browser, in the book too.
"""

"""What was run, on disk: every file that the study reads back is written and read here.

Rows go in, whole files come out: a file is written beside its place and moved there in one step, under a lock, so that
a reader never sees half of it. `runs` keeps runs.csv and epochs.csv, `evidence` says which recorded runs a chapter
shows, `paper` reads the numbers that the paper prints, `paths` knows where everything is.
"""

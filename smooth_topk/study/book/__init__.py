"""The command lines: `scripts/NAME.py` call the `main` of a module of this subpackage.

`run_study` trains the missing runs of the chapters and executes them, `plan` reads their parameters, and `cost` says
what the runs cost. `build` makes the static book of the executed chapters. `benchmark` measures and records, `pairing`
writes the notebooks from their sources.
"""

"""The command lines: `scripts/NAME.py` call the `main` of a module of this room.

`run_study` plans the chapters of a profile and executes them, each in its own process. `build` makes the static book of
the executed chapters, with the pages that are written from recorded numbers. `benchmark` measures and records,
`pairing` writes the notebooks from their sources.
"""

"""What was run, on disk: one JSON file per run, the published CSV files, and the numbers that the paper prints.

`runs` reads and writes records, `published` the CSV files of book/results, `evidence` says which runs a chapter shows,
`paths` knows where everything is, `machine` what a row says about where it was computed.
"""

"""Adds recorded runs to the published CSV files of book/results: python scripts/publish.py FOLDER..."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from smooth_topk.study.records.published import publish


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of records, such as runs/laptop/records")
    parser.add_argument("--replace", action="store_true", help="runs that were trained again replace published ones")
    parser.add_argument("--no-epochs", action="store_true", help="publish the rows of runs.csv alone")
    options = parser.parse_args()
    try:
        new, known = publish(options.folders, replace=options.replace, epochs=not options.no_epochs)
    except ValueError as refusal:
        print(f"!! {refusal} Nothing was published.", file=sys.stderr)
        return 2
    print(f"{new} runs published; {known} others were published before.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

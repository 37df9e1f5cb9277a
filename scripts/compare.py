"""Trains the comparisons of book/protocol.md, stage by stage: python scripts/compare.py images"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from smooth_topk.study.experiments.protocol import COMPARISONS, Comparison
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid import run_grid
from smooth_topk.study.records.published import published_runs
from smooth_topk.study.records.runs import read_runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("comparison", choices=COMPARISONS)
    parser.add_argument("--settings", nargs="+", help="some of its settings, in the order in which they are trained")
    parser.add_argument("--runs", type=Path, default=Path("runs/protocol"), help="where records and checkpoints go")
    parser.add_argument("--workers", type=int, help="processes at a time (default: cores or GPUs)")
    parser.add_argument("--dry-run", action="store_true", help="say what is recorded and what is missing")
    options = parser.parse_args()
    comparison = COMPARISONS[options.comparison]
    for setting in options.settings or comparison.settings:
        if setting not in comparison.settings:
            parser.error(f"{options.comparison} has the settings {', '.join(comparison.settings)}, got {setting!r}.")
        part = comparison.restricted(setting)
        while missing := missing_runs(part, options.runs):
            known = len(part.runs(accuracies(options.runs))) - len(missing)
            print(f"{setting}: {known} runs recorded, {len(missing)} to train now", flush=True)
            if options.dry_run:
                break
            folders = {"records_folder": options.runs / "records", "checkpoints_folder": options.runs / "checkpoints"}
            records = run_grid(missing, **folders, workers=options.workers)
            if (records["status"] == "failed").any():
                return 1
    return 0


def missing_runs(comparison: Comparison, folder: Path) -> list[RunConfig]:
    """Returns the runs that are known so far and not recorded."""
    known = accuracies(folder)
    return [run for run in comparison.runs(known) if run.run_id not in known]


def accuracies(runs: Path) -> dict[str, float]:
    """Returns the validation top-5 of every published and recorded run by its id; 0 where it diverged."""
    found: dict[str, float] = {}
    for table in (published_runs(), read_runs(runs / "records")):
        found |= dict(zip(table["run_id"], table["validation_top5"].fillna(0.0), strict=True))
    return found


if __name__ == "__main__":
    sys.exit(main())

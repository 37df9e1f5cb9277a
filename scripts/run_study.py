"""Runs the chapters with a profile and builds the book: python scripts/run_study.py --help"""

import os
import signal
import sys
from pathlib import Path


def stop(*_: object) -> None:
    print("\n!! Stopped before anything was started.", file=sys.stderr, flush=True)
    os._exit(130)  # without a traceback out of some half-imported module


if __name__ == "__main__":
    signal.signal(signal.SIGINT, stop)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from smooth_topk.study.book.run_study import main

    sys.exit(main())

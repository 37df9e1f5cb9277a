"""Runs the chapters with a profile and builds the book: python scripts/run_study.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from start import start

if __name__ == "__main__":
    start("smooth_topk.study.book.run_study")

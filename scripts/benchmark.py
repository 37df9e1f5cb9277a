"""Measures what the losses cost and how exact they are: python scripts/benchmark.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from start import start

if __name__ == "__main__":
    start("smooth_topk.study.book.benchmark")

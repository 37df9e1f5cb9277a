"""Times the book's figures that move, in Chromium: python scripts/measure_live_figures.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from start import start

if __name__ == "__main__":
    start("smooth_topk.study.book.live_figures")

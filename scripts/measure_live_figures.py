"""Times the book's figures that move, in Chromium: python scripts/measure_live_figures.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from smooth_topk.study.book.live_figures import main

if __name__ == "__main__":
    sys.exit(main())

"""Writes the .ipynb twins of the chapters: python scripts/sync_notebooks.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from smooth_topk.study.book.pairing import main

if __name__ == "__main__":
    sys.exit(main())

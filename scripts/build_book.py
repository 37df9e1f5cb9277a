"""Builds the static book from executed notebooks: python scripts/build_book.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from smooth_topk.study.book.build import main

if __name__ == "__main__":
    sys.exit(main())

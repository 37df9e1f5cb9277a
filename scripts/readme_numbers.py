"""Writes the numbers of README and of the book's first page: python scripts/readme_numbers.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from start import start

if __name__ == "__main__":
    start("smooth_topk.study.book.numbers")

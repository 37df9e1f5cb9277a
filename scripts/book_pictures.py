"""Draws the pictures of the README from the recorded results: python scripts/book_pictures.py"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from start import start

if __name__ == "__main__":
    start("smooth_topk.study.book.pictures")

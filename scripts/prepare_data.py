"""Prepares the data of the study: python scripts/prepare_data.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from start import start

if __name__ == "__main__":
    start("smooth_topk.study.data.prepare")

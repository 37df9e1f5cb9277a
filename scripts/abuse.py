"""Disturbs a small grid of trainings at random and compares its records: python scripts/abuse.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from start import start

if __name__ == "__main__":
    start("smooth_topk.study.grid.abuse")

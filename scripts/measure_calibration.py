"""Measures which losses are top-k calibrated: python scripts/measure_calibration.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from start import start

if __name__ == "__main__":
    start("smooth_topk.study.measure.calibration")

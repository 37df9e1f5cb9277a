"""Measures which losses are top-k calibrated: python scripts/measure_calibration.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from smooth_topk.study.measure.calibration import main

if __name__ == "__main__":
    sys.exit(main())

"""Prepares the data of the study: python scripts/prepare_data.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from smooth_topk.study.data.prepare import main

if __name__ == "__main__":
    sys.exit(main())

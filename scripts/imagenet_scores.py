"""Records a trained network's scores of ImageNet images: python scripts/imagenet_scores.py --help"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from start import start

if __name__ == "__main__":
    start("smooth_topk.study.measure.score_imagenet")

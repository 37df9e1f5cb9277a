"""One frozen RunConfig; the paper's experiments written down as data."""

from smooth_topk.study.run_config import RunConfig

__all__ = ["RunConfig"]

"""Starts a command of the package; the scripts of this folder call it."""

import importlib
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def start(module: str) -> None:
    """Ends this process with the exit code of the function `main` of the module."""
    for number in (signal.SIGINT, signal.SIGTERM):  # during imports, which take seconds: no traceback
        signal.signal(number, lambda number, _: os._exit(128 + number))
    main = importlib.import_module(module).main
    from smooth_topk.study.records.endings import ended_in_order

    sys.exit(ended_in_order(main))

"""Starts a command of the package; every script of this folder calls it."""

import importlib
import os
import signal
import sys
from pathlib import Path


def stop(number: int, _: object) -> None:
    print("\n!! Stopped before anything was started.", file=sys.stderr, flush=True)
    os._exit(128 + number)  # without a traceback out of some half-imported module


def start(module: str) -> None:
    """Ends this process with the exit code of the function `main` of the module."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        os.getcwd()
    except FileNotFoundError:  # torch would give another reason
        print("!! The folder that this command was started in is gone: go to another one.", file=sys.stderr)
        sys.exit(2)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main = importlib.import_module(module).main
    from smooth_topk.study.records.endings import ended_in_order

    for number in (signal.SIGINT, signal.SIGTERM):  # what a signal does while Python ends, after the command
        signal.signal(number, signal.SIG_DFL)
    sys.exit(ended_in_order(main))

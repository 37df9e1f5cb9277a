"""Processes that end in order: forked from a server, deaf to Ctrl-C, and gone when the process that started them is.

The server has imported the package and used no thread, so that a process starts in milliseconds.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

SECONDS_TO_STOP = 120  # for a step and a checkpoint, or for a kernel to end
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["smooth_topk.study.training.fit", "lightning_fabric", "numba"])  # seconds each


def start(function: Callable, *arguments: Any, log: Path) -> ForkServerProcess:
    """Calls a function of the package in a process of its own, whose output goes to a log file."""
    process = context.Process(target=_call, args=(log, function, arguments))
    with _no_main_module():
        process.start()
    return process


def stop(running: Iterable[ForkServerProcess]) -> None:
    """Sends SIGTERM, which lets a training write its checkpoint; kills what has not ended after two minutes."""
    running, deadline = list(running), time.monotonic() + SECONDS_TO_STOP
    for process in running:
        process.terminate()
    for process in running:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()


def cause(code: int | None) -> str:
    """Returns how a process ended, in words.

    Example:
        >>> cause(-9), cause(3)
        ('was killed by SIGKILL', 'ended with exit code 3')
    """
    return f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"


def _call(log: Path, function: Callable, arguments: tuple) -> None:
    os.setsid()  # Ctrl-C in a terminal reaches the first process alone, which then stops the others in order
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    with open(log, "a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    function(*arguments)


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """New processes import no script: one that calls `run_grid` needs no `if __name__ == "__main__"`."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main

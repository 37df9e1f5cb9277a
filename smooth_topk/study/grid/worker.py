"""A worker process of the local grid: one run per line on standard input as JSON, events as JSON on standard output.

The line `null` ends it. The end of standard input stops it at once, with a checkpoint: a grid that is killed leaves no
worker behind.
"""

import json
import logging
import os
import queue
import signal
import sys
import threading
import traceback

import torch

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.files import LockHeldError
from smooth_topk.study.training.fit import fit
from smooth_topk.study.training.loop import OutOfMemoryError

EXPECTED = (OSError, ValueError, OutOfMemoryError)  # their message says all; others come with their traceback


def main() -> None:
    """Trains the runs that arrive until no more can come."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    # Events have a channel of their own: whatever a library prints goes to the log.
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    orders: queue.Queue = queue.Queue()
    threading.Thread(target=_receive, args=(orders,), daemon=True).start()
    while (order := orders.get()) is not None:
        _train(order, lambda **event: print(json.dumps(event), file=events))


def _receive(orders: queue.Queue) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        orders.put(order)
        if order is None:
            return
    os.kill(os.getpid(), signal.SIGTERM)  # input ended without null: the grid is gone or wants to stop


def _train(order: dict, send) -> None:
    config = RunConfig.from_dict(order.pop("config"))
    try:
        fit(config, progress=False, on_epoch=lambda row: send(event="epoch", epoch=row["epoch"] + 1), **order)
    except KeyboardInterrupt as stopped:
        logging.warning("%s", stopped)
        sys.exit(128 + signal.SIGTERM)
    except LockHeldError:
        send(event="held")
    except EXPECTED as error:
        send(event="failed", message=str(error))
    except Exception as error:
        send(event="failed", message=f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    else:
        send(event="done")


if __name__ == "__main__":
    main()

"""Executes one chapter in a process of its own: a job in, an executed notebook and events out.

Started by chapter_queue.py, which writes the job to standard input as one line of JSON and reads one line of JSON per
event from standard output: {"cell": 3, "cells": 20} when a cell begins, {"failure": "...", "source": "..."} at the end
of a chapter that did not succeed. These are pipes and not files, because a disk may be full.

The end of standard input asks the chapter to stop: the study was stopped, or killed. The kernel then gets what Ctrl-C
would send it, so that the trainings of the cell write their checkpoints, on this machine and on a cluster.

The notebook grows in `partial/` and moves to `notebooks/` in one step when its last cell is done, so that what is in
`notebooks/` is always whole.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, papermill_engines
from papermill.exceptions import PapermillExecutionError

from smooth_topk.study.records.files import write_whole

SECONDS_TO_STOP = 150  # for a cell to end after the interrupt; the grids give their trainings 120
DIED = (
    "The kernel died in cell {cell} of {cells}. The usual cause is too little memory: close other programs, or run "
    "fewer chapters at a time, for example with --workers 1."
)


class Supervisor:
    """The line to the study that started this process: events out, the request to stop in."""

    def __init__(self) -> None:
        # Events have a channel of their own: whatever the kernel or a library prints goes to the log.
        self.events = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self.job: dict[str, Any] = json.loads(sys.stdin.readline())
        self.asked_to_stop = False
        self.client: Client | None = None
        self.place = {"cell": 0, "cells": 0}
        threading.Thread(target=self._await_the_end_of_input, daemon=True).start()

    def send(self, **event: Any) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            print(json.dumps(event), file=self.events)

    def begin_cell(self, cell: int, cells: int) -> None:
        """Called before every cell; raises KeyboardInterrupt when the chapter has to stop."""
        if self.asked_to_stop:
            raise KeyboardInterrupt
        self.place = {"cell": cell, "cells": cells}
        self.send(**self.place)

    def _await_the_end_of_input(self) -> None:
        while os.read(0, 4096):  # not sys.stdin: Python must be able to end while this thread waits
            pass
        self.asked_to_stop = True
        deadline = time.monotonic() + SECONDS_TO_STOP
        interrupted = False
        while time.monotonic() < deadline:
            # A kernel that is between two cells ignores an interrupt, and a second one would cut off a checkpoint.
            if not interrupted and self.client is not None and self.client.cell_is_running.is_set():
                self.client.signal_kernel(signal.SIGINT)
                interrupted = True
            time.sleep(0.1)
        if self.client is not None:
            self.client.signal_kernel(signal.SIGKILL)
        os._exit(1)


class Client(PapermillNotebookClient):
    """papermill's client, which also knows whether the kernel is executing a cell."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cell_is_running = threading.Event()

    def process_message(self, msg: dict, cell: nbformat.NotebookNode, cell_index: int) -> nbformat.NotebookNode | None:
        if msg["msg_type"] == "execute_input":
            self.cell_is_running.set()
        return super().process_message(msg, cell, cell_index)

    def signal_kernel(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError, AttributeError):  # it has ended, or has not begun
            os.kill(self.km.provisioner.pid, number)


class SupervisedEngine(Engine):
    """papermill's own engine with a client that can be interrupted, and an event to the study before every cell."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, kernel_name: str, *, supervisor: Supervisor, log_output: bool, start_timeout: int, **_: Any
    ) -> None:
        logger = logging.getLogger("papermill")
        client = Client(
            nb_man, kernel_name=kernel_name, log=logger, log_output=log_output, startup_timeout=start_timeout
        )
        supervisor.client = client
        start, total = nb_man.cell_start, len(nb_man.nb.cells)

        def cell_start(cell: nbformat.NotebookNode, cell_index: int | None = None, **more: Any) -> None:
            client.cell_is_running.clear()
            supervisor.begin_cell((cell_index or 0) + 1, total)
            start(cell, cell_index=cell_index, **more)

        nb_man.cell_start = cell_start
        client.execute()


def run(supervisor: Supervisor) -> int:
    """Executes the chapter of the job and returns the exit code.

    The job is a dict with source, partial and output (paths), parameters, and metadata for the notebook.
    """
    job, started = supervisor.job, time.monotonic()
    try:
        papermill.execute_notebook(
            jupytext.read(job["source"]),
            job["partial"],
            parameters=job["parameters"],
            engine_name="supervised",
            supervisor=supervisor,
            kernel_name="python3",
            language="python",
            cwd=str(Path(job["source"]).parent),
            progress_bar=False,
            log_output=True,
            start_timeout=180,
        )
        finish(job, time.monotonic() - started)
        return 0
    except (PapermillExecutionError, KeyboardInterrupt, DeadKernelError) as error:
        if supervisor.asked_to_stop:
            supervisor.send(failure="stopped", source="")
        elif isinstance(error, DeadKernelError):
            supervisor.send(failure=DIED.format(**supervisor.place), source="")
        elif isinstance(error, PapermillExecutionError):
            supervisor.send(failure=f"{error.ename}: {error.evalue}", source=error.source)
        logging.error("%s", error)
    except OSError as error:  # a full disk or a folder that cannot be written to
        supervisor.send(failure=str(error), source="")
        logging.exception("The notebook could not be written.")
    return 1


def finish(job: dict, seconds: float) -> None:
    """Moves the executed notebook to its place, with where it was made instead of papermill's own notes."""
    partial = Path(job["partial"])
    notebook = nbformat.read(partial, as_version=4)
    for holder in [notebook, *notebook.cells]:
        holder.metadata.pop("papermill", None)
        holder.metadata.pop("execution", None)
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    notebook.metadata["smooth_topk"] = {**job["metadata"], "date": now, "seconds": round(seconds, 1)}
    write_whole(Path(job["output"]), nbformat.writes(notebook).encode())
    partial.unlink()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    papermill_engines.register("supervised", SupervisedEngine)
    sys.exit(run(Supervisor()))

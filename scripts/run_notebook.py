"""Executes one chapter in its own process: a job file in, an executed notebook or a failure file out.

Started by run_study.py. The notebook grows in `partial/` and moves to `notebooks/` in one step when its last cell is
done, so that what lies in `notebooks/` is always whole.
"""

import json
import logging
import os
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import jupytext
import nbformat
import papermill
from papermill.engines import NBClientEngine, papermill_engines


class CountingEngine(NBClientEngine):
    """papermill's own engine, which also writes `cell of cells` to a file as it goes."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, progress_file=None, **options):
        start, total = nb_man.cell_start, len(nb_man.nb.cells)

        def cell_start(cell, cell_index=None, **more):
            write_whole(Path(progress_file), f"{(cell_index or 0) + 1} of {total}")
            return start(cell, cell_index=cell_index, **more)

        nb_man.cell_start = cell_start
        return super().execute_managed_notebook(nb_man, kernel_name, **options)


def run(job):
    """Executes the job's chapter and returns the exit code.

    Args:
        job: dict with source, partial, output, progress, failure (paths), parameters, and metadata for the notebook.
    """
    started = time.monotonic()
    notebook = jupytext.read(job["source"])
    try:
        papermill.execute_notebook(
            notebook,
            job["partial"],
            parameters=job["parameters"],
            engine_name="counting",
            progress_file=job["progress"],
            kernel_name="python3",
            language="python",
            cwd=str(Path(job["source"]).parent),
            progress_bar=False,
            log_output=True,
            start_timeout=180,
        )
    except papermill.exceptions.PapermillExecutionError as error:
        failure = {"cell": error.cell_index, "source": error.source, "error": f"{error.ename}: {error.evalue}"}
        write_whole(Path(job["failure"]), json.dumps(failure))
        logging.error("%s", error)
        return 1
    finish(job, time.monotonic() - started)
    return 0


def finish(job, seconds):
    """Moves the executed notebook to its place, with where it was made instead of papermill's own notes."""
    partial = Path(job["partial"])
    notebook = nbformat.read(partial, as_version=4)
    for holder in [notebook, *notebook.cells]:
        holder.metadata.pop("papermill", None)
        holder.metadata.pop("execution", None)
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    notebook.metadata["smooth_topk"] = {**job["metadata"], "date": now, "seconds": round(seconds, 1)}
    write_whole(Path(job["output"]), nbformat.writes(notebook))
    partial.unlink()


def write_whole(path, text):
    """Writes a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def end_with_parent():
    """A study that is killed leaves no notebook running: the kernel ends with this process, this with its parent."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    papermill_engines.register("counting", CountingEngine)
    sys.exit(run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))

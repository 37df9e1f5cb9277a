"""Trains what the chapters need, executes the chapters, and builds the book.

    python scripts/run_study.py                                   all chapters, profile quick
    python scripts/run_study.py 09 10 --profile laptop            two chapters on real data
    python scripts/run_study.py 09 -p 09.epochs=3                 one parameter changed
    python scripts/run_study.py --profile paper --dry-run         what is missing, and what it costs; needs no data
    python scripts/run_study.py --profile paper --dry-run --calibrate    the same, with steps timed on this device
    python scripts/run_study.py --profile paper --trainings one_night    trains these experiments, runs no chapter
    python scripts/run_study.py --profile paper --cluster ray:HOST:6379  trains on a Ray cluster

Everything goes to runs/PROFILE: records of finished runs, checkpoints of unfinished ones, executed notebooks, logs. A
finished run is not trained again. After Ctrl-C or a kill, the same command continues. A chapter whose parameters -p
changes trains its runs itself.

--trainings takes names of experiments, as --dry-run lists them, all (those of the paper), or one_night (Figure 2, and
Table 1 at one noise level with one seed).

Exit codes: 0 all is done, 1 a run or a chapter failed, 2 refused before anything started, 130 after Ctrl-C, 143 after
SIGTERM.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from multiprocessing import connection
from pathlib import Path

import nbformat
import torch

from smooth_topk.study.book import cost
from smooth_topk.study.book.plan import Chapter, chapters, make_plan, missing_data
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.experiments.selections import selected_runs, study_runs
from smooth_topk.study.grid import default_workers, run_grid
from smooth_topk.study.grid.processes import cause, start, stop
from smooth_topk.study.records.files import make_writable_folder, write_whole
from smooth_topk.study.records.machine import available_cores, describe_machine, machine_name
from smooth_topk.study.records.paths import (
    absolute,
    check_executor,
    data_folder_or_default,
    executor_setting,
    project_root,
    records_folder,
    runs_folder,
)

Experiments = Mapping[str, Sequence[RunConfig]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    options = read_options(arguments)
    try:
        return act(options)
    except (ValueError, FileNotFoundError, ConnectionError, ImportError) as refusal:
        print(f"!! {refusal}", file=sys.stderr)
        return 2


def read_options(arguments: Sequence[str] | None) -> Namespace:
    """Reads the command line; an impossible option ends the program with code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", help="chapters, whole names or beginnings (09); default: all")
    parser.add_argument("--profile", default="quick", help="smoke, quick (default), laptop or paper")
    parser.add_argument("-p", "--parameter", dest="parameters", action="append", default=[], metavar="NB.NAME=VALUE")
    parser.add_argument("--workers", type=int, help="runs, and chapters, at a time (default: GPUs or cores)")
    parser.add_argument("--cluster", metavar="ray[:ADDRESS]", help="where the trainings go (default: this machine)")
    parser.add_argument("--runs", metavar="FOLDER", help="where results go (default: runs/ in the project)")
    parser.add_argument("--no-book", action="store_true", help="do not build the book at the end")
    parser.add_argument("--dry-run", action="store_true", help="show parameters, runs, cost and missing data")
    parser.add_argument("--calibrate", action="store_true", help="with --dry-run: time training steps on this device")
    parser.add_argument("--trainings", nargs="+", metavar="NAME", help="train these experiments, run no chapter")
    options = parser.parse_args(arguments)
    if options.workers is not None and options.workers < 1:
        parser.error(f"--workers must be at least 1, got {options.workers}.")
    if options.calibrate and not options.dry_run:
        parser.error("--calibrate goes with --dry-run.")
    if options.trainings and (options.notebooks or options.parameters):
        parser.error(f"--trainings runs no chapter, got {options.notebooks or options.parameters}.")
    return options


def act(options: Namespace) -> int:
    """Does what the options ask for; raises where it cannot start."""
    set_environment(options)
    plan = [] if options.trainings else make_plan(options.profile, options.notebooks, options.parameters)
    if options.trainings:
        experiments = selected_runs(options.profile, options.trainings)
    else:
        experiments = study_runs(options.profile, [chapter.name for chapter in plan])
    if options.dry_run:
        print(cost.dry_run(options.profile, plan, experiments, options.workers, options.calibrate))
        return 0
    for name, command in missing_data(run.dataset for runs in experiments.values() for run in runs).items():
        raise ValueError(f"The runs need {name}, which is not in {data_folder_or_default()}: run `{command}` first.")
    folder = make_writable_folder(runs_folder(options.profile))
    changed = {chapter.name for chapter in plan if chapter.trains_itself}
    if changed:
        unchanged = [chapter.name for chapter in plan if chapter.name not in changed]
        experiments = study_runs(options.profile, unchanged)
    failed = train(options.profile, experiments)
    if failed or not plan:
        return int(failed)
    if execute(plan, folder, options.workers):
        return 1
    return 0 if options.no_book else build_book(folder)


def set_environment(options: Namespace) -> None:
    """Sets the variables by which chapters and their workers find the same folders, explained in `records/paths.py`."""
    if options.runs is not None:
        os.environ["SMOOTH_TOPK_RUNS"] = str(absolute(options.runs))
    if options.workers:
        os.environ["SMOOTH_TOPK_WORKERS"] = str(options.workers)
    if options.cluster:
        os.environ["SMOOTH_TOPK_EXECUTOR"] = check_executor(options.cluster)
    kind, _, address = executor_setting().partition(":")
    if kind == "ray":
        from smooth_topk.study.grid.ray_cluster import check_address

        if address:
            check_address(address)
    os.environ["SMOOTH_TOPK_ROOT"] = str(project_root())
    os.environ["SMOOTH_TOPK_DATA"] = str(data_folder_or_default())  # absolute: a kernel has another current folder
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("SMOOTH_TOPK_FRAMES", "16" if options.profile == "smoke" else "230")  # per interactive figure


def train(profile: str, experiments: Experiments) -> bool:
    """Trains the runs that are not recorded in one pool, the longest first; returns whether any failed."""
    runs = list({run.run_id: run for part in experiments.values() for run in part}.values())
    if not runs:
        return False
    folder = records_folder(profile)
    print(f"== Profile {profile}: {cost.in_short(profile, runs, default_workers())}", flush=True)
    records = run_grid(runs, records_folder=folder, checkpoints_folder=runs_folder(profile) / "checkpoints")
    failed, found = int((records["status"] == "failed").sum()), records.attrs["recorded_before"]
    trained = len(records) - found - failed
    print(f"   {len(records)} runs: {found} found, {trained} trained, {failed} failed, in {folder}")
    return failed > 0


def execute(plan: Sequence[Chapter], folder: Path, workers: int | None) -> bool:
    """Executes the chapters, several at a time, then those that run alone; returns whether any failed."""
    at_a_time = workers or (1 if torch.cuda.is_available() else available_cores())
    together = [chapter for chapter in plan if not chapter.alone]
    print(f"== Executing {len(plan)} chapters, {at_a_time} at a time", flush=True)
    with tempfile.TemporaryDirectory(prefix=".executing-", dir=folder) as work:
        failed = execute_queue(together, folder, Path(work), at_a_time)
        failed += execute_queue([chapter for chapter in plan if chapter.alone], folder, Path(work), 1)
    if failed:
        print(f"\n!! {failed} of {len(plan)} chapters failed.", file=sys.stderr)
    return failed > 0


def execute_queue(waiting: Iterable[Chapter], folder: Path, work: Path, at_a_time: int) -> int:
    """Executes chapters in processes of their own, so many at a time; returns how many failed."""
    queue, failed = deque(waiting), 0
    running: dict = {}
    for name in ("notebooks", "logs", "failed"):
        (folder / name).mkdir(exist_ok=True)
    try:
        while queue or running:
            while queue and len(running) < at_a_time:
                chapter = queue.popleft()
                log = folder / "logs" / f"{chapter.name}.log"
                log.unlink(missing_ok=True)
                process = start(execute_chapter, chapter, folder, work, dict(os.environ), log=log)
                running[process] = chapter, time.monotonic()
            connection.wait([process.sentinel for process in running])
            for process in [process for process in running if process.exitcode is not None]:
                chapter, started = running.pop(process)
                failed += process.exitcode != 0
                report(chapter, process.exitcode, folder, work, time.monotonic() - started)
    finally:
        stop(running)
    return failed


def execute_chapter(chapter: Chapter, folder: Path, work: Path, environment: dict[str, str]) -> None:
    """Executes one chapter; the notebook appears in its place when its last cell is done."""
    import jupytext
    import papermill

    os.environ.clear()  # the server that processes are forked from may have an older one
    os.environ.update(environment)
    (folder / "notebooks" / f"{chapter.name}.ipynb").unlink(missing_ok=True)
    started = time.monotonic()
    partial = work / f"{chapter.name}.ipynb"
    papermill.execute_notebook(
        jupytext.read(chapter.source), partial, parameters=chapter.changed, kernel_name="python3", language="python",
        cwd=chapter.source.parent, progress_bar=False, log_output=True, start_timeout=180,
    )  # fmt: skip
    notebook = nbformat.read(partial, as_version=4)
    for holder in [notebook, *notebook.cells]:  # papermill's notes hold absolute paths
        holder.metadata.pop("papermill", None)
        holder.metadata.pop("execution", None)
    found = describe_machine()
    notebook.metadata["smooth_topk"] = {
        "profile": chapter.values["profile"],
        "machine": machine_name(),
        "versions": {"smooth_topk": found["package"], "torch": found["torch"], "python": found["python"]},
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 1),
    }
    write_whole(folder / "notebooks" / partial.name, nbformat.writes(notebook).encode())


def report(chapter: Chapter, code: int, folder: Path, work: Path, seconds: float) -> None:
    """Says how a chapter ended, and keeps the notebook of one that failed."""
    if code == 0:
        print(f"   {chapter.name} is done in {seconds:.0f} s", flush=True)
        return
    partial, kept = work / f"{chapter.name}.ipynb", folder / "failed" / f"{chapter.name}.ipynb"
    errors = []
    if partial.exists():
        cells = nbformat.read(partial, as_version=4).cells
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        errors = [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]
        shutil.move(partial, kept)
    reason = errors[0] if errors else f"its process {cause(code)}; with too little memory, take --workers 1"
    print(f"\n!! {chapter.name} failed after {seconds:.0f} s: {reason}\n   See {kept} and "
          f"{folder / 'logs' / chapter.name}.log", file=sys.stderr, flush=True)  # fmt: skip


def build_book(folder: Path) -> int:
    absent = [name for name in chapters() if not (folder / "notebooks" / f"{name}.ipynb").exists()]
    if absent:
        print(f"== The book is not built: {', '.join(absent)} did not run with this profile yet.")
        return 0
    from smooth_topk.study.book import build

    print("== Building the book", flush=True)
    return 1 if build.main(["--notebooks", str(folder / "notebooks")]) else 0

"""Runs the chapters with a profile and builds the book.

    python scripts/run_study.py                                   all chapters, profile quick
    python scripts/run_study.py 09 10 --profile laptop            two chapters on real data
    python scripts/run_study.py 09 -p 09.epochs=3                 one parameter changed
    python scripts/run_study.py --profile paper --dry-run         what is missing, what it costs; needs no data
    python scripts/run_study.py --profile paper --calibrate       the same, after timing training steps on this device
    python scripts/run_study.py --profile paper --trainings one_night    only trainings, in one grid; see below
    python scripts/run_study.py --profile paper --cluster ray     the runs of the study chapters on a Ray cluster

Executed notebooks, logs and the summary lie in runs/PROFILE. A study that failed or was stopped goes on with what is
missing: a chapter is run again only when its source, its parameters, the package or the recorded results changed. The
results that a study records itself do not count as changed.

--trainings takes names of experiments, as --dry-run lists them, all (those of the paper), or one_night (Figure 2, and
Table 1 at one noise level with one seed). It runs no chapter: these find their trainings recorded later.

Exit codes: 0 all is done, 1 failed (a chapter, or a file that could not be written), 2 refused before anything started;
after Ctrl-C 130, after SIGTERM 143, after a closed terminal 129, and 141 when nobody reads the output any more.
"""

import argparse
import contextlib
import csv
import io
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from smooth_topk.study.book.chapter_queue import CORES, GPU, Study
from smooth_topk.study.book.plain_text import seconds_in_words
from smooth_topk.study.book.plan import (
    Refusal,
    Task,
    chapters,
    executed,
    make_plan,
    missing_data,
    refuse_missing_data,
)
from smooth_topk.study.experiments.expected_cost import makespan
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.experiments.selections import runs_of_chapters, selected_runs
from smooth_topk.study.records.endings import as_sentence
from smooth_topk.study.records.files import LockHeldError, exclusive, make_folder, make_writable_folder, write_whole
from smooth_topk.study.records.paths import (
    absolute,
    check_executor,
    checkpoints_folder,
    data_folder_or_default,
    executor_setting,
    records_folder,
    runs_folder,
    workers_setting,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    options = read_options(arguments)
    try:
        return act(options)
    except (ValueError, LockHeldError, FileNotFoundError, ConnectionError, ImportError) as refusal:
        print(f"!! {refusal}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"!! {as_sentence(error)}", file=sys.stderr)
        return 1


def read_options(arguments: Sequence[str] | None) -> Namespace:
    """Reads the command line; an impossible option ends the program with code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", help="chapters, whole names or beginnings (09); default: all")
    parser.add_argument("--profile", default="quick", help="smoke, quick (default), laptop or paper")
    parser.add_argument("-p", "--parameter", dest="parameters", action="append", default=[], metavar="NB.NAME=VALUE")
    parser.add_argument(
        "--workers", type=int, default=1 if GPU else CORES, help="chapters at a time (default: cores, or 1 with a GPU)"
    )
    parser.add_argument("--cluster", metavar="ray[:ADDRESS]", help="where the study chapters' training runs go")
    parser.add_argument("--runs", metavar="FOLDER", help="where results go (default: runs/ in the project)")
    parser.add_argument("--again", action="store_true", help="run also what is done")
    parser.add_argument("--no-book", action="store_true", help="do not build the book at the end")
    parser.add_argument("--list", action="store_true", help="list the chapters and all their parameters, run nothing")
    parser.add_argument("--dry-run", action="store_true", help="show what would run, its cost and what data is missing")
    parser.add_argument("--calibrate", action="store_true", help="time training steps on this device, then --dry-run")
    parser.add_argument("--trainings", nargs="+", metavar="NAME", help="train these experiments, run no chapter")
    parser.add_argument(
        "--gpus", type=int, default=8, help="for --dry-run: the time on one and on so many (default: 8)"
    )
    options = parser.parse_args(arguments)
    for name in ("workers", "gpus"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}.")
    for name in ("cluster", "runs"):
        if getattr(options, name) == "":  # a variable of a shell that is not set
            parser.error(f"--{name} must not be empty, got ''.")
    if options.cluster and options.cluster.partition(":")[0] != "ray":
        parser.error(f"--cluster must be ray or ray:ADDRESS, got {options.cluster!r}.")
    return options


def act(options: Namespace) -> int:
    """Does what the options ask for; raises in a full sentence where it cannot."""
    if options.runs:
        os.environ["SMOOTH_TOPK_RUNS"] = str(absolute(options.runs))
    with unwritable_is_refused():  # a name that is too long, say
        refuse_what_is_no_folder(runs_folder(options.profile))
    workers_setting()
    kind, _, address = check_executor(options.cluster or executor_setting()).partition(":")
    if kind == "ray" and address:
        from smooth_topk.study.grid.cluster_address import check_address

        check_address(address)
    if options.trainings:
        return only_trainings(options)
    tasks = make_plan(options.profile, options.notebooks, options.parameters)
    missing = [task for task in tasks if options.again or not task.is_done]
    for task in tasks:
        if "damage" in task.executed:
            print(f"!! {task.executed['damage']}", file=sys.stderr)
    if options.list or options.dry_run or options.calibrate:
        return show_plan(tasks, missing, options)
    with unwritable_is_refused():
        refuse_missing_data(tasks)
        folder = make_writable_folder(runs_folder(options.profile))
    try:
        with exclusive(folder / "lock", wait=False):
            return run(folder, tasks, missing, options)
    except LockHeldError as held:
        raise Refusal(f"Another study is running in {folder}, {held.owner}: wait for it, or stop it.") from None


def refuse_what_is_no_folder(folder: Path) -> None:
    """Raises a Refusal where a file, or a link that leads nowhere, is in the way of a folder that is to be made."""
    existing = next(part for part in (folder, *folder.parents) if part.exists() or part.is_symlink())
    if not existing.is_dir():
        raise Refusal(f"{existing} is not a folder: choose another place for the results with --runs FOLDER.")


@contextlib.contextmanager
def unwritable_is_refused() -> Iterator[None]:
    """A folder that cannot be written to, before anything started, is a reason to refuse like any other."""
    try:
        yield
    except OSError as error:
        raise Refusal(as_sentence(error)) from None


def show_plan(tasks: list[Task], missing: list[Task], options: Namespace) -> int:
    for task in tasks:
        state = "to run" if task in missing else "done"
        expected = "time unknown" if task.seconds is None else f"about {seconds_in_words(task.seconds)}"
        print(f"{task.name:32} {state:7} {expected:16}{' alone' if task.alone else ''}")
        if options.list:
            for name, value in task.values.items():
                print(f"    {name} = {value!r}")
    costs = options.dry_run or options.calibrate  # whose table has the times
    total = "" if costs else f", {expected_time(missing, options.workers)}"
    print(f"{len(missing)} of {len(tasks)} chapters to run{total}.")
    if costs:
        show_costs(runs_of_chapters(options.profile, [task.name for task in tasks]), options)
    return 0


def show_costs(experiments: Mapping[str, Sequence[RunConfig]], options: Namespace) -> None:
    from smooth_topk.study.book.dry_run import calibrate, describe_experiments  # imports torch, so not for --list

    if options.calibrate:
        print(f"\n{calibrate(options.profile, experiments)}", flush=True)
    print(f"\n{describe_experiments(options.profile, experiments, options.gpus)}")
    if options.parameters:
        print("These numbers leave out what -p changes.")


def only_trainings(options: Namespace) -> int:
    """Trains what --trainings names in one grid, the longest runs first, or shows what it would cost."""
    for given, name in ((options.notebooks, "notebooks"), (options.parameters, "-p")):
        if given:
            raise Refusal(f"--trainings runs no chapter and goes without {name}, got {given!r}.")
    experiments = selected_runs(options.profile, options.trainings)
    if options.list or options.dry_run or options.calibrate:
        show_costs(experiments, options)
        return 0
    runs = [run for part in experiments.values() for run in part]
    for name, command in missing_data(run.dataset for run in runs).items():
        raise Refusal(f"The trainings need {name}, which is not in {data_folder_or_default()}: run `{command}` first.")
    with unwritable_is_refused():
        make_writable_folder(runs_folder(options.profile))
    from smooth_topk.study.grid import run_grid  # imports torch, so not for --list

    with cluster_for_all(options.cluster) as executor:
        records = run_grid(
            runs,
            records_folder=records_folder(options.profile),
            checkpoints_folder=checkpoints_folder(options.profile),
            executor=executor or executor_setting(),
        )
    failed = (records["status"] == "failed").sum()
    before = records.attrs["recorded_before"]
    print(f"{len(records)} runs: {before} recorded before, {len(records) - before - failed} trained now, "
          f"{failed} failed. They are in {records_folder(options.profile)}.")  # fmt: skip
    return 1 if failed else 0


def expected_time(tasks: Sequence[Task], workers: int) -> str:
    """The longest chapters first on the free worker, then the chapters that run alone."""
    known = [task for task in tasks if task.seconds is not None]
    together = makespan([task.seconds or 0.0 for task in known if not task.alone], workers)
    total = together + sum(task.seconds or 0.0 for task in known if task.alone)
    unknown = f" and {len(tasks) - len(known)} of unknown length" if len(known) < len(tasks) else ""
    return f"about {seconds_in_words(total)} with {workers} at a time{unknown}"


def run(folder: Path, tasks: list[Task], missing: list[Task], options: Namespace) -> int:
    """Runs the missing chapters, reports failures, writes the summary and builds the book."""
    for name in ("notebooks", "logs", "partial"):
        make_folder(folder / name)
    done = len(tasks) - len(missing)
    print(f"== Profile {options.profile}: {len(missing)} chapters to run, {done} done already, "
          f"{expected_time(missing, options.workers)}", flush=True)  # fmt: skip
    outcomes = []
    if missing:
        with cluster_for_all(options.cluster) as executor:
            outcomes = Study(folder, options.profile, options.workers, executor).execute(missing)
    failed = [outcome for outcome in outcomes if outcome["status"] != "done"]
    for outcome in failed:  # before anything is written: the reason may be a full disk
        print(f"\n!! {outcome['notebook']} failed: {outcome['error']}\n{outcome['cell']}\n   log: {outcome['log']}")
    if failed:
        print(f"\n!! {len(failed)} of {len(tasks)} chapters failed; the same command goes on with what is missing.")
    write_summary(folder, options.profile, outcomes)
    if failed:
        return 1
    return 0 if options.no_book else build_book(folder)


@contextlib.contextmanager
def cluster_for_all(cluster: str | None) -> Iterator[str | None]:
    """Yields where all chapters send their trainings: one cluster is started, or joined, for the whole study."""
    kind, _, address = (cluster or executor_setting()).partition(":")
    if kind != "ray":
        yield None
        return
    from smooth_topk.study.grid.ray_cluster import shared_cluster

    with shared_cluster(address or None) as found:
        yield f"ray:{found}"


def build_book(folder: Path) -> int:
    absent = [name for name in chapters() if not (folder / "notebooks" / f"{name}.ipynb").exists()]
    if absent:
        print(f"== The book is not built: {', '.join(absent)} did not run with this profile yet.")
        return 0
    from smooth_topk.study.book import build  # imports torch, so not for --list

    print("== Building the book", flush=True)
    return 1 if build.main(["--notebooks", str(folder / "notebooks")]) else 0


def write_summary(folder: Path, profile: str, outcomes: Sequence[dict]) -> None:
    """Writes one row per chapter: what ran now, and for the others what an earlier run left."""
    rows = {outcome["notebook"]: outcome for outcome in outcomes}
    text = io.StringIO()
    writer = csv.DictWriter(text, ["notebook", "status", "seconds", "error", "cell"], extrasaction="ignore")
    writer.writeheader()
    for name in chapters():
        earlier = executed(profile, name)
        kept = {"notebook": name, "status": "done" if "key" in earlier else "not run"}
        writer.writerow(rows.get(name, kept | {"seconds": earlier.get("seconds", "")}))
    write_whole(folder / "summary.csv", text.getvalue().encode())

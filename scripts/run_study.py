"""Runs the chapters with a profile and builds the book.

    python scripts/run_study.py                                   all chapters, profile quick
    python scripts/run_study.py 09 10 --profile laptop            two chapters on real data
    python scripts/run_study.py 09 -p 09.epochs=3                 one parameter changed
    python scripts/run_study.py --profile paper --cluster ray     the runs of the study chapters on a Ray cluster

Executed notebooks, logs and the summary lie in runs/PROFILE. A study that failed or was stopped goes on with what is
missing: a chapter is run again only when its source, its parameters, the package or the recorded results changed.
"""

import argparse
import contextlib
import csv
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from study_plan import Refusal, chapters, executed, make_plan, project_root, runs_folder

SCRIPTS = Path(__file__).resolve().parent
PACKAGES = ("torch", "torchvision", "numpy", "pandas", "matplotlib")
CORES = os.cpu_count() or 1
# With a GPU one chapter at a time: the trainings of a chapter already use every GPU there is.
GPU = Path("/dev/nvidia0").exists()
NOT_A_TERMINAL = 30  # seconds between progress lines that cannot be rewritten in place


def main(arguments=None):
    options = read_options(arguments)
    root = project_root()
    if options.runs:
        os.environ["SMOOTH_TOPK_RUNS"] = str(Path(options.runs).resolve())
    try:
        tasks = make_plan(root, options.profile, options.notebooks, options.parameters)
        missing = [task for task in tasks if options.again or not is_done(root, options.profile, task)]
        if options.list or options.dry_run:
            return show_plan(tasks, missing, options)
        with only_study(runs_folder(root, options.profile)) as folder:
            return run(root, folder, tasks, missing, options)
    except KeyboardInterrupt:
        print("\n!! Stopped; the same command goes on with what is missing.", file=sys.stderr)
        return 130
    except Refusal as refusal:
        print(f"!! {refusal}", file=sys.stderr)
        return 2


def read_options(arguments):
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
    parser.add_argument("--list", action="store_true", help="list the chapters and their parameters, run nothing")
    parser.add_argument("--dry-run", action="store_true", help="show what would run and the expected time, run nothing")
    options = parser.parse_args(arguments)
    if options.workers < 1:
        parser.error(f"--workers must be at least 1, got {options.workers}.")
    if options.cluster and options.cluster.split(":", 1)[0] != "ray":
        parser.error(f"--cluster must be ray or ray:ADDRESS, got {options.cluster!r}.")
    return options


def is_done(root, profile, task):
    return executed(root, profile, task.name).get("key") == task.key


def show_plan(tasks, missing, options):
    for task in tasks:
        state = "to run" if task in missing else "done"
        expected = "time unknown" if task.seconds is None else f"about {task.seconds:.0f} s"
        print(f"{task.name:32} {state:7} {expected:14}{' alone' if task.alone else ''}")
        if options.list:
            for name, value in task.parameters.items():
                print(f"    {name} = {value!r}")
    print(f"{len(missing)} of {len(tasks)} chapters to run, {expected_time(missing, options.workers)}.")
    return 0


def expected_time(tasks, workers):
    """Longest first on the free worker, then the chapters that run alone."""
    known = [task for task in tasks if task.seconds is not None]
    busy = [0.0] * workers
    for task in sorted((task for task in known if not task.alone), key=lambda task: -task.seconds):
        busy[busy.index(min(busy))] += task.seconds
    total = max(busy) + sum(task.seconds for task in known if task.alone)
    unknown = f" and {len(tasks) - len(known)} of unknown length" if len(known) < len(tasks) else ""
    return f"about {total / 60:.1f} minutes with {workers} at a time{unknown}"


@contextlib.contextmanager
def only_study(folder):
    """Keeps a second study out of the same folder; the lock ends with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refusal(f"Another study is running in {folder}: wait for it, or stop it.") from None
        yield folder


def run(root, folder, tasks, missing, options):
    for name in ("notebooks", "logs", "partial"):
        (folder / name).mkdir(exist_ok=True)
    done = len(tasks) - len(missing)
    print(f"== Profile {options.profile}: {len(missing)} chapters to run, {done} done already, "
          f"{expected_time(missing, options.workers)}", flush=True)  # fmt: skip
    outcomes = Study(root, folder, options).execute(missing) if missing else []
    write_summary(root, folder, options.profile, outcomes)
    failed = [outcome for outcome in outcomes if outcome["status"] != "done"]
    for outcome in failed:
        print(f"\n!! {outcome['notebook']} failed: {outcome['error']}\n{outcome['cell']}\n   log: {outcome['log']}")
    if failed:
        print(f"\n!! {len(failed)} of {len(tasks)} chapters failed; the same command goes on with what is missing.")
        return 1
    return 0 if options.no_book else build_book(root, folder)


def build_book(root, folder):
    absent = [name for name in chapters(root) if not (folder / "notebooks" / f"{name}.ipynb").exists()]
    if absent:
        print(f"== The book is not built: {', '.join(absent)} did not run with this profile yet.")
        return 0
    print("== Building the book", flush=True)
    return subprocess.call([sys.executable, root / "scripts" / "build_book.py", "--notebooks", folder / "notebooks"])


class Study:
    """The chapters of one study under way: a queue, one process a chapter, progress on the terminal."""

    def __init__(self, root, folder, options):
        from smooth_topk.study.notebook import machine_name  # imports torch, so not for --list

        self.folder, self.workers = folder, options.workers
        self.metadata = {
            "profile": options.profile,
            "machine": machine_name(),
            "versions": {"smooth_topk": version("smooth_topk"), **{name: version(name) for name in PACKAGES}},
        }
        self.environment = environment(root, folder, options)
        self.together = 1
        self.running, self.outcomes, self.shown = {}, [], time.monotonic()

    def execute(self, tasks):
        """Runs the tasks and returns one outcome each; whatever happens, no process stays behind."""
        queue = sorted(tasks, key=lambda task: (task.alone, -(task.seconds or 0), task.name))
        total = len(queue)
        self.together = max(1, min(self.workers, sum(not task.alone for task in queue)))
        try:
            while queue or self.running:
                while queue and self.has_room(queue[0]):
                    self.start(queue.pop(0))
                time.sleep(0.1)
                self.collect(total)
                self.show(total)
        finally:
            for _, process, _ in self.running.values():
                os.killpg(process.pid, signal.SIGTERM)
        return self.outcomes

    def has_room(self, task):
        alone = task.alone or any(other.alone for other, _, _ in self.running.values())
        return len(self.running) < (1 if alone else self.workers)

    def start(self, task):
        partial = self.folder / "partial" / task.name
        paths = {
            "source": task.source,
            "partial": partial.with_suffix(".ipynb"),
            "output": self.folder / "notebooks" / f"{task.name}.ipynb",
            "progress": partial.with_suffix(".progress"),
            "failure": partial.with_suffix(".failure"),
        }
        for name in ("partial", "progress", "failure", "output"):
            paths[name].unlink(missing_ok=True)
        job = {name: str(path) for name, path in paths.items()}
        job |= {"parameters": task.parameters, "metadata": {**self.metadata, "key": task.key}}
        partial.with_suffix(".job").write_text(json.dumps(job), encoding="utf-8")
        with open(self.folder / "logs" / f"{task.name}.log", "w", encoding="utf-8") as log:
            command = [sys.executable, SCRIPTS / "run_notebook.py", partial.with_suffix(".job")]
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=self.shared_cores(task), start_new_session=True
            )
        self.running[task.name] = task, process, time.monotonic()
        self.say(f"   started  {task.name}")

    def shared_cores(self, task):
        """The environment of a chapter: the trainings it starts side by side leave room for the other chapters."""
        if GPU:
            return self.environment
        cores = max(1, CORES // (1 if task.alone else self.together))
        return {"SMOOTH_TOPK_WORKERS": str(cores), **self.environment}

    def collect(self, total):
        for name, (_task, process, started) in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[name]
            outcome = self.judge(name, process.returncode, time.monotonic() - started)
            self.outcomes.append(outcome)
            self.say(f"   {outcome['status']:8} {name} in {outcome['seconds']:.0f} s ({len(self.outcomes)} of {total})")

    def judge(self, name, code, seconds):
        partial, log = self.folder / "partial" / name, self.folder / "logs" / f"{name}.log"
        outcome = {
            "notebook": name,
            "status": "done",
            "seconds": round(seconds, 1),
            "error": "",
            "cell": "",
            "log": log,
        }
        if code == 0 and (self.folder / "notebooks" / f"{name}.ipynb").exists():
            return outcome
        outcome |= {"status": "failed", "error": f"its process ended with code {code}"}
        if partial.with_suffix(".failure").exists():
            failure = json.loads(partial.with_suffix(".failure").read_text(encoding="utf-8"))
            outcome |= {"error": failure["error"], "cell": failure["source"]}
        return outcome

    def show(self, total):
        """One line: how many are done, and cell by cell where the others are."""
        if time.monotonic() - self.shown < (0.5 if sys.stdout.isatty() else NOT_A_TERMINAL) or not self.running:
            return
        self.shown = time.monotonic()
        places = []
        for name in self.running:
            with contextlib.suppress(OSError):
                place = (self.folder / "partial" / f"{name}.progress").read_text(encoding="utf-8")
                places.append(f"{name} cell {place}")
        line = f"   {len(self.outcomes)} of {total} done | {' | '.join(places)}"
        print(
            f"\r\033[K{line[:150]}" if sys.stdout.isatty() else line,
            end="" if sys.stdout.isatty() else "\n",
            flush=True,
        )

    def say(self, line):
        print(f"\r\033[K{line}" if sys.stdout.isatty() else line, flush=True)


def environment(root, folder, options):
    """What the notebooks find: one thread a process, where the project and its runs lie, where trainings go."""
    defaults = {"OMP_NUM_THREADS": "1", "JUPYTER_PREFER_ENV_PATH": "1"}
    fixed = {"SMOOTH_TOPK_ROOT": str(root), "SMOOTH_TOPK_RUNS": str(folder.parent)}
    if options.cluster:
        fixed["SMOOTH_TOPK_EXECUTOR"] = options.cluster
    return {**defaults, **os.environ, **fixed}


def write_summary(root, folder, profile, outcomes):
    """One row a chapter: what ran now, and for the others what an earlier run left."""
    from run_notebook import write_whole

    rows = {outcome["notebook"]: outcome for outcome in outcomes}
    text = io.StringIO()
    writer = csv.DictWriter(text, ["notebook", "status", "seconds", "error", "cell"], extrasaction="ignore")
    writer.writeheader()
    for name in chapters(root):
        earlier = executed(root, profile, name)
        kept = {"notebook": name, "status": "done" if earlier else "not run", "seconds": earlier.get("seconds", "")}
        writer.writerow(rows.get(name, kept))
    write_whole(folder / "summary.csv", text.getvalue())


if __name__ == "__main__":
    sys.exit(main())

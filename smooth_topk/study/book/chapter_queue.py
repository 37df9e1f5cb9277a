"""The chapters of one study under way: tasks in, one outcome per chapter out, progress on the terminal."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from smooth_topk.study.book.plan import Task, remember_results, results_key
from smooth_topk.study.records.endings import as_sentence
from smooth_topk.study.records.paths import data_folder_or_default, project_root

PACKAGES = ("torch", "torchvision", "numpy", "pandas", "matplotlib")
CORES = os.cpu_count() or 1
# With a GPU one chapter at a time: the trainings of a chapter already use every GPU there is.
GPU = Path("/dev/nvidia0").exists()
NOT_A_TERMINAL = 30  # seconds between progress lines that cannot be rewritten in place
SECONDS_TO_STOP = 180  # for the chapters to end; each gives its trainings time for a checkpoint


class Chapter:
    """A chapter under way: its process, and what it has told so far."""

    def __init__(self, task: Task, job: dict, log: Path, environment: dict[str, str]):
        self.task, self.log, self.started = task, log, time.monotonic()
        self.place, self.failure, self.unread = "", {"failure": "", "source": ""}, b""
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "smooth_topk.study.book.execute"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the study alone, which then stops its chapters in order
            )
        if self.process.stdin is None or self.process.stdout is None:  # never: both are pipes
            raise RuntimeError("A process was started without its pipes.")
        self.orders, self.events = self.process.stdin, self.process.stdout
        os.set_blocking(self.events.fileno(), False)
        with contextlib.suppress(BrokenPipeError):
            self.orders.write((json.dumps(job) + "\n").encode())
            self.orders.flush()

    def listen(self) -> None:
        """Takes in the events that have arrived."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.events.fileno(), 65536):
                self.unread += chunk
        *lines, self.unread = self.unread.split(b"\n")
        for event in map(json.loads, lines):
            if "cell" in event:
                self.place = f"{event['cell']} of {event['cells']}"
            else:
                self.failure = event

    def outcome(self, folder: Path) -> dict:
        """Returns how the chapter ended, as a row of the summary."""
        self.listen()
        self.orders.close()
        self.events.close()
        code, seconds = self.process.returncode, round(time.monotonic() - self.started, 1)
        outcome = {"notebook": self.task.name, "status": "done", "seconds": seconds, "error": "", "cell": ""}
        if code == 0 and (folder / "notebooks" / f"{self.task.name}.ipynb").exists():
            return outcome | {"log": self.log}
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        error = self.failure["failure"] or f"its process {ended}; the last lines of the log may say why"
        return outcome | {"status": "failed", "error": error, "cell": self.failure["source"], "log": self.log}


class Study:
    """A queue of chapters and the processes that execute them.

    Args:
        folder: where notebooks/, logs/ and partial/ are.
        profile: of the study.
        workers: chapters at a time.
        executor: where the chapters send their trainings; None leaves that to the environment.
    """

    def __init__(self, folder: Path, profile: str, workers: int, executor: str | None = None):
        from smooth_topk.study.records.machine import machine_name  # imports torch, so not for --list

        self.folder, self.profile, self.workers = folder, profile, workers
        self.metadata = {
            "profile": profile,
            "machine": machine_name(),
            "versions": {"smooth_topk": version("smooth_topk"), **{name: version(name) for name in PACKAGES}},
        }
        self.environment = environment(folder, profile, executor)
        self.results_key = results_key(profile)
        self.together = 1
        self.running: dict[str, Chapter] = {}
        self.outcomes: list[dict] = []
        self.shown = time.monotonic()

    def execute(self, tasks: Sequence[Task]) -> list[dict]:
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
            self.stop()
        return self.outcomes

    def has_room(self, task: Task) -> bool:
        alone = task.alone or any(chapter.task.alone for chapter in self.running.values())
        return len(self.running) < (1 if alone else self.workers)

    def start(self, task: Task) -> None:
        partial = self.folder / "partial" / f"{task.name}.ipynb"
        output = self.folder / "notebooks" / f"{task.name}.ipynb"
        job = {
            "source": str(task.source),
            "partial": str(partial),
            "output": str(output),
            "parameters": task.parameters,
            "metadata": {**self.metadata, "key": task.key},
        }
        log = self.folder / "logs" / f"{task.name}.log"
        try:
            for path in (partial, output):
                path.unlink(missing_ok=True)
            self.running[task.name] = Chapter(task, job, log, self.shared_cores(task))
        except OSError as error:  # the others may still succeed
            failure = {"status": "failed", "seconds": 0.0, "error": as_sentence(error), "cell": "", "log": log}
            self.outcomes.append({"notebook": task.name, **failure})
        else:
            self.say(f"   started  {task.name}")

    def shared_cores(self, task: Task) -> dict[str, str]:
        """The environment of a chapter: the trainings it starts side by side leave room for the other chapters."""
        if GPU:
            return self.environment
        cores = max(1, CORES // (1 if task.alone else self.together))
        return {"SMOOTH_TOPK_WORKERS": str(cores), **self.environment}

    def collect(self, total: int) -> None:
        for name, chapter in list(self.running.items()):
            chapter.listen()
            if chapter.process.poll() is None:
                continue
            del self.running[name]
            outcome = chapter.outcome(self.folder)
            self.outcomes.append(outcome)
            self.say(f"   {outcome['status']:8} {name} in {outcome['seconds']:.0f} s ({len(self.outcomes)} of {total})")
            with contextlib.suppress(OSError):  # a full disk: the chapters run again, which costs time only
                remember_results(self.profile, self.results_key)

    def stop(self) -> None:
        """Ends what still runs after an error or a signal: trainings write checkpoints; a second signal kills them."""
        if not self.running:
            return
        self.say("   stopping: trainings that are under way write a checkpoint; Ctrl-C again ends them at once")
        deadline = time.monotonic() + SECONDS_TO_STOP
        try:
            for chapter in self.running.values():
                chapter.orders.close()
            for chapter in self.running.values():
                chapter.process.wait(max(0.0, deadline - time.monotonic()))
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            for chapter in self.running.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(chapter.process.pid, signal.SIGKILL)
            raise

    def show(self, total: int) -> None:
        """Prints one line: how many chapters are done, and at which cell the others are."""
        if time.monotonic() - self.shown < (0.5 if sys.stdout.isatty() else NOT_A_TERMINAL) or not self.running:
            return
        self.shown = time.monotonic()
        places = [f"{name} cell {chapter.place}" for name, chapter in self.running.items() if chapter.place]
        line = f"   {len(self.outcomes)} of {total} done | {' | '.join(places)}"
        print(
            f"\r\033[K{line[:150]}" if sys.stdout.isatty() else line,
            end="" if sys.stdout.isatty() else "\n",
            flush=True,
        )

    def say(self, line: str) -> None:
        print(f"\r\033[K{line}" if sys.stdout.isatty() else line, flush=True)


def environment(folder: Path, profile: str, executor: str | None) -> dict[str, str]:
    """Returns what the notebooks find: one thread per process, and the settings that `records/paths.py` explains."""
    defaults = {"OMP_NUM_THREADS": "1", "JUPYTER_PREFER_ENV_PATH": "1"}
    fixed = {
        "SMOOTH_TOPK_ROOT": str(project_root()),
        "SMOOTH_TOPK_RUNS": str(folder.parent),
        "SMOOTH_TOPK_DATA": str(data_folder_or_default()),  # absolute: a kernel has another current folder
    }
    if executor:
        fixed["SMOOTH_TOPK_EXECUTOR"] = executor
    return {**defaults, **os.environ, **fixed}

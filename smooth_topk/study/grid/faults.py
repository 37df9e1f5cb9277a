"""Faults against a grid that is running: processes killed, stopped or doubled, disks filled.

Each fault is a method of `Faults` that makes it and returns what happened in words, or "" where it could not be made.
Whether the engine survived is for `abuse.py` to judge.
"""

import contextlib
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid import run_grid
from smooth_topk.study.grid.damage import cut_off, flip_a_bit
from smooth_topk.study.records.runs import read_runs

SMALL = RunConfig(dataset="cifar100_features", model="head", train_size=2_000, epochs=12, batch_size=100)
GRID = [
    RunConfig.from_dict(SMALL.to_dict() | changes)
    for changes in (
        {"seed": 0},
        {"seed": 1, "epochs": 18},
        {"loss": "smooth", "learning_rate": 0.4},
        {"loss": "smooth", "tau": 1.0, "tau_final": 0.1, "learning_rate": 0.4},
        {"loss": "hard", "schedule": "cosine"},
        {"noise_level": 0.8, "schedule": "steps", "milestones": [6]},
    )
]
WORKERS = 2
SECONDS_TO_STOP = 300  # for a driver and its workers; a busy machine is slow
DRIVER = "import sys; from smooth_topk.study.grid.faults import drive; sys.exit(drive(*sys.argv[1:]))"


class BrokenPromiseError(Exception):
    """The engine did not do after a fault what it promises."""


def drive(folder: str, executor: str) -> int:
    """The driver: trains what is missing in the folder; the message of a refusal is its last line."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in the background ignore Ctrl-C
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run_grid(GRID, **folders(Path(folder)), workers=WORKERS, executor=executor, progress=False,
                     checkpoint_minutes=0)  # fmt: skip
        for warning in caught:
            print(str(warning.message).strip().splitlines()[-1], file=sys.stderr)
    except (ValueError, OSError) as refusal:
        print(refusal, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped by Ctrl-C, with checkpoints.", file=sys.stderr)
        return 130
    return 0


def folders(folder: Path) -> dict[str, Path]:
    return {"records_folder": folder / "results", "checkpoints_folder": folder / "runs"}


class Faults:
    """The processes of one grid, and what can be done to them. This one trains on worker processes of its driver.

    Args:
        folder: of the records and checkpoints.
        chance: decides which of several processes a fault meets.
    """

    executor = "local"
    where = "this machine"

    def __init__(self, folder: Path, chance: random.Random):
        self.folder, self.random = folder, chance
        self.drivers: list[psutil.Popen] = []
        self.logs: dict[int, Path] = {}
        self.recorded: dict[str, dict] = {}
        for path in folders(folder).values():
            path.mkdir(parents=True, exist_ok=True)

    def kinds(self) -> dict[str, Callable[[], str]]:
        """Returns the faults by name."""
        return {
            "a worker is killed": self.kill_worker,
            "a worker is killed and its checkpoint cut off": partial(self.kill_worker, cut_off),
            "a worker is killed and a bit of its checkpoint flips": partial(self.kill_worker, flip_a_bit),
            "a worker gets SIGTERM": partial(self.kill_worker, number=signal.SIGTERM),
            "a worker may write no more": self.refuse_writes,
            "workers sleep and wake up": self.suspend_workers,
            "the driver is killed": self.stop_driver,
            "the driver gets Ctrl-C": partial(self.stop_driver, signal.SIGINT),
            "a second driver starts": self.start_second_driver,
        }

    # Processes

    def start_driver(self) -> psutil.Popen:
        with open(self.folder / f"driver_{time.monotonic_ns()}.log", "w") as log:
            command = [sys.executable, "-c", DRIVER, str(self.folder), self.executor]
            process = psutil.Popen(command, stdout=log, stderr=log)
        self.logs[process.pid] = Path(log.name)
        self.drivers.append(process)
        return process

    def running(self) -> list[psutil.Popen]:
        self.drivers = [driver for driver in self.drivers if driver.poll() is None]
        return self.drivers

    def workers(self) -> list[psutil.Process]:
        """Returns the processes that train, or wait for a run to train."""
        found = []
        for driver in self.running():
            with contextlib.suppress(psutil.Error):  # it is just ending
                found += [child for child in driver.children() if "smooth_topk.study.grid.worker" in child.cmdline()]
        return found

    def is_training(self) -> bool:
        return any(self.run_of(worker) for worker in self.workers())

    def run_of(self, worker: psutil.Process) -> str:
        """Returns the run whose lock the worker holds, or an empty text."""
        for lock in (self.folder / "runs").glob("*.lock"):
            with contextlib.suppress(OSError):
                if lock.read_text().startswith(f"process {worker.pid} on "):
                    return lock.stem
        return ""

    def pause(self, seconds: float) -> None:
        """Waits, but not longer than a driver is running."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.running():
            time.sleep(0.05)

    def kill_everything(self) -> None:
        processes = [*self.workers(), *self.running()]
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=SECONDS_TO_STOP)

    # Faults of processes and disks

    def kill_worker(self, damage: Callable[[Path], str] | None = None, number: int = signal.SIGKILL) -> str:
        workers = self.workers()
        if not workers:
            return ""
        worker = self.random.choice(workers)
        run = self.run_of(worker)
        worker.send_signal(number)
        if psutil.wait_procs([worker], timeout=SECONDS_TO_STOP)[1]:
            raise BrokenPromiseError("the worker did not end after the signal")
        if damage is None:
            return (
                f"in run {run}, which goes on in a new worker" if run else "between two runs; a new worker is started"
            )
        checkpoints = sorted((self.folder / "runs" / run).glob("checkpoint-*.pt")) if run else []
        return f"{damage(checkpoints[-1])}; the one before it is used" if checkpoints else ""

    def refuse_writes(self) -> str:
        workers = self.workers()
        if not workers:
            return ""
        worker = self.random.choice(workers)
        run, before = self.run_of(worker), resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (100, before[1]))
        self.pause(2.0)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, before)
        return (
            f"in run {run}, which fails with a sentence and is trained by the next driver"
            if run
            else "between two runs; a run that starts then fails with a sentence and is trained by the next driver"
        )

    def suspend_workers(self) -> str:
        """As on a laptop that is closed and opened again."""
        workers = self.workers()
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for worker in workers:
                with contextlib.suppress(psutil.Error):  # it has just ended; the others must wake up all the same
                    worker.send_signal(number)
            self.pause(1.0)
        return f"{len(workers)} of them, for a second; they go on" if workers else ""

    def fill_disk(self) -> str:
        if not self.workers():
            return ""
        filler = self.folder / "runs" / "filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while file.write(bytes(2**20)):
                pass
        self.pause(2.0)
        filler.unlink(missing_ok=True)
        return "for two seconds; runs that write fail with a sentence and are trained by the next driver"

    def stop_driver(self, number: int = signal.SIGKILL) -> str:
        drivers = self.running()
        if not drivers:  # the last one has just come to its end by itself
            return ""
        driver = self.random.choice(drivers)
        workers = self.workers_of(driver)
        driver.send_signal(number)
        _, left = psutil.wait_procs([driver, *workers], timeout=SECONDS_TO_STOP)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if left:
            raise BrokenPromiseError(f"{len(left)} processes stayed behind and were killed")
        if driver.returncode == 0:  # it had come to its end by itself
            return ""
        return "its workers ended by themselves; started again, it goes on"

    def workers_of(self, driver: psutil.Popen) -> list[psutil.Process]:
        """Returns the processes that must end when this driver does."""
        return driver.children()

    def start_second_driver(self) -> str:
        if len(self.running()) > 1:
            return ""
        self.start_driver()
        return "on the same runs; each run is trained once"

    # Records

    def note_records(self) -> dict[str, dict]:
        """Remembers every recorded row as it was when it was first seen."""
        for row in read_runs(self.folder / "results").to_dict("records"):
            self.recorded.setdefault(row["run_id"], {name: str(value) for name, value in row.items()})
        return self.recorded

    def lost_rows(self) -> int:
        """Returns how many rows that were once recorded are gone or changed."""
        seen = self.recorded.copy()
        self.recorded = {}
        now = self.note_records()
        return sum(now.get(run_id) != row for run_id, row in seen.items())


class ClusterFaults(Faults):
    """The same on a Ray cluster: a worker is a task, and whole nodes are lost.

    Args:
        cluster: a `SmallCluster`, which stays after the grid has ended.
    """

    where = "a cluster"

    def __init__(self, folder: Path, chance: random.Random, cluster):
        super().__init__(folder, chance)
        self.cluster, self.executor = cluster, f"ray:{cluster.address}"

    def kinds(self) -> dict[str, Callable[[], str]]:
        kinds: dict[str, Callable[[], str]] = {
            "a node is killed": self.kill_node,
            "a task is killed": self.kill_worker,
            "a task is killed and its checkpoint cut off": partial(self.kill_worker, cut_off),
            "a task is killed and a bit of its checkpoint flips": partial(self.kill_worker, flip_a_bit),
            "tasks sleep and wake up": self.suspend_workers,
            "the driver is killed": self.stop_driver,
            "the driver gets Ctrl-C": partial(self.stop_driver, signal.SIGINT),
            "a second driver starts": self.start_second_driver,
        }
        return {f"Ray: {name}": make for name, make in kinds.items()}

    def workers(self) -> list[psutil.Process]:
        return self.cluster.tasks()

    def workers_of(self, driver: psutil.Popen) -> list[psutil.Process]:
        """Its tasks, unless there is another driver: which task is whose, a process does not say."""
        return self.workers() if len(self.running()) == 1 else []

    def kill_node(self) -> str:
        (node,) = self.cluster.further_nodes
        runs = [run for run in map(self.run_of, self.cluster.tasks(node)) if run]
        self.cluster.kill_node(node)
        self.cluster.add_node()
        with_run = f"with run {runs[0]}, which goes on elsewhere" if runs else "without a run"
        return f"{with_run}; a new node joins"


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""

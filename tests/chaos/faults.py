"""A grid of small trainings in processes of its own, and the faults that can be made against it.

A driver is a process that calls `run_grid`; a worker is a process that trains a run for it, on Ray a task. Each fault
is a method that makes it and returns whether it could be made.
"""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid import run_grid

SMALL = {"dataset": "cifar100_features", "model": "head", "train_size": 2_000, "epochs": 12, "batch_size": 100}
GRID = [
    RunConfig(**SMALL | changes)
    for changes in (
        {"seed": 0},
        {"seed": 1, "epochs": 18},
        {"loss": "smooth", "learning_rate": 0.4},
        {"loss": "smooth", "tau": 1.0, "tau_final": 0.1, "learning_rate": 0.4},
        {"loss": "hard", "schedule": "cosine"},
        {"noise_level": 0.8, "schedule": "steps", "milestones": (6,)},
    )
]
WORKERS = 2
PATIENCE = 300  # seconds until a process that should have ended is given up
DRIVER = """
import signal, sys
from pathlib import Path
from faults import train
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in the background ignore Ctrl-C
try:
    train(Path(sys.argv[1]), sys.argv[2])
except KeyboardInterrupt:
    sys.exit(130)
"""


def train(folder: Path, executor: str = "local") -> None:
    """Trains what is missing of the grid."""
    folders = {"records_folder": folder / "records", "checkpoints_folder": folder / "checkpoints"}
    run_grid(GRID, **folders, workers=WORKERS, executor=executor, progress=False, checkpoint_minutes=0)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Puts a disk with room for the checkpoints of all runs in the place of a folder, if this user may."""
    command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.call(command, stderr=subprocess.DEVNULL) == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.call(["umount", "--lazy", str(folder)])


class Faults:
    """The processes of one grid, and what can be done to them.

    Args:
        folder: of records and checkpoints.
        chance: decides which of several processes a fault meets.
        cluster: a SmallCluster on which the runs are tasks; without one they are processes of the driver.
    """

    def __init__(self, folder: Path, chance: random.Random, cluster=None):
        self.folder, self.chance, self.cluster = folder, chance, cluster
        self.executor = f"ray:{cluster.address}" if cluster else "local"
        self.drivers: list[psutil.Popen] = []
        self.log = folder / "drivers.log"
        for name in ("records", "checkpoints"):
            (folder / name).mkdir(parents=True)

    def kinds(self) -> dict[str, Callable[[], bool]]:
        """Returns the faults by name."""
        name = "task" if self.cluster else "worker"
        kinds: dict[str, Callable[[], bool]] = {
            f"a {name} is killed": self.kill_worker,
            f"a {name} is killed and its checkpoint cut off": partial(self.kill_worker, damage=cut_off),
            f"a {name} is killed and a bit of its checkpoint flips": partial(self.kill_worker, damage=flip_a_bit),
            f"{name}s sleep and wake up": self.suspend_workers,
            "the driver is killed": self.stop_driver,
            "the driver gets Ctrl-C": partial(self.stop_driver, signal.SIGINT),
            "a second driver starts": self.start_second_driver,
            "a record is deleted": self.delete_record,
        }
        if self.cluster:
            return {f"Ray: {name}": make for name, make in (kinds | {"a node is lost": self.lose_node}).items()}
        kinds["a worker gets SIGTERM"] = partial(self.kill_worker, number=signal.SIGTERM)
        kinds["a worker may write no more"] = self.refuse_writes
        return kinds

    def start_driver(self) -> None:
        with open(self.log, "a") as log:
            command = [sys.executable, "-c", DRIVER, str(self.folder), self.executor]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
            self.drivers.append(psutil.Popen(command, stdout=log, stderr=log, env=environment))

    def running(self) -> list[psutil.Popen]:
        self.drivers = [driver for driver in self.drivers if driver.poll() is None]
        return self.drivers

    def workers(self) -> list[psutil.Process]:
        """Returns the processes that train a run: on this machine, the children of a driver's server of processes."""
        if self.cluster:
            return self.cluster.tasks()
        found = []
        for driver in self.running():
            with contextlib.suppress(psutil.Error):  # it is just ending
                found += [worker for server in driver.children() for worker in server.children()]
        return found

    def run_of(self, worker: psutil.Process) -> str:
        """Returns the run whose lock the worker holds, or an empty text."""
        for lock in (self.folder / "checkpoints").glob("*.lock"):
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
        for process in [*self.workers(), *self.running()]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        for driver in self.drivers:
            driver.wait(PATIENCE)

    # Faults

    def kill_worker(self, number: int = signal.SIGKILL, damage: Callable[[Path], None] | None = None) -> bool:
        workers = self.workers()
        if not workers:
            return False
        worker = self.chance.choice(workers)
        run = self.run_of(worker)
        worker.send_signal(number)
        assert not psutil.wait_procs([worker], timeout=PATIENCE)[1], "the worker did not end after the signal"
        if damage is None:
            return True
        checkpoints = sorted((self.folder / "checkpoints" / run).glob("checkpoint-*.pt")) if run else []
        if checkpoints:
            damage(checkpoints[-1])
        return bool(checkpoints)

    def suspend_workers(self) -> bool:
        """As on a laptop that is closed and opened again."""
        workers = self.workers()
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for worker in workers:
                with contextlib.suppress(psutil.Error):  # it has just ended; the others must wake up all the same
                    worker.send_signal(number)
            self.pause(1.0)
        return bool(workers)

    def refuse_writes(self) -> bool:
        """A run that cannot write fails with a sentence; the next driver trains it."""
        workers = self.workers()
        if workers:
            worker = self.chance.choice(workers)
            before = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (100, before[1]))
            self.pause(2.0)
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, before)
        return bool(workers)

    def fill_disk(self) -> bool:
        """For two seconds; needs `small_disk`."""
        filler = self.folder / "checkpoints" / "filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while file.write(bytes(2**20)):
                pass
        self.pause(2.0)
        filler.unlink(missing_ok=True)
        return True

    def stop_driver(self, number: int = signal.SIGKILL) -> bool:
        """The processes of a driver that is stopped end by themselves, with checkpoints."""
        driver = self.chance.choice(self.running())
        alone = len(self.running()) == 1
        mine = driver.children(recursive=True) + (self.workers() if self.cluster and alone else [])
        driver.send_signal(number)
        left = psutil.wait_procs([driver, *mine], timeout=PATIENCE)[1]
        assert not left, f"{left} stayed behind"
        return driver.returncode != 0  # else it had come to its end by itself

    def start_second_driver(self) -> bool:
        """On the same runs, each of which is trained once."""
        if len(self.running()) > 1:
            return False
        self.start_driver()
        return True

    def delete_record(self) -> bool:
        """The run is trained again, with the same bits."""
        records = sorted((self.folder / "records").glob("*.json"))
        if records:
            self.chance.choice(records).unlink()
        return bool(records)

    def lose_node(self) -> bool:
        (node,) = self.cluster.further_nodes
        self.cluster.kill_node(node)
        self.cluster.add_node()
        return True

"""The engine under abuse: a small grid is disturbed at random moments and compared with an undisturbed one.

    python scripts/abuse.py --minutes 10              kills, damaged files, a full disk, two drivers, Ctrl-C
    python scripts/abuse.py --minutes 10 --seed 7     the same faults in the same order as every call with seed 7

Every round trains the same runs, on built-in features, in worker processes of a driver, which is started again whenever
it has ended before all runs are recorded. When they are, the records must be those of the undisturbed grid to the last
bit, and every row that was recorded before a fault must still be there. The table of faults goes to standard output
and, with --output FOLDER, into faults.csv. The exit code is 1 if one bit differs or one row is lost.

A driver is a process that calls `run_grid`; a worker is one of the processes that train for it.
"""

import argparse
import contextlib
import math
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pandas as pd
import psutil

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.grid import run_grid
from smooth_topk.study.grid.damage import READABLE, REFUSED, cut_off, flip_a_bit, small_disk
from smooth_topk.study.records.files import make_writable_folder, write_whole
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import path_option
from smooth_topk.study.records.runs import EPOCHS, RUNS, read_epochs, read_runs

FILE = "faults.csv"
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
LONGEST_PAUSE = 3.0  # seconds between two faults, at most
FAULTS_AT_REST = 0.1  # the share of faults that come while no run is under way, but processes start or end
SECONDS_TO_STOP = 300  # for a driver and its workers; a busy machine is slow
SECONDS_PER_ROUND = 1_800  # at most, after the last fault
MAY_DIFFER = ["seconds", "images_per_second", "resumes", "processes", "date", "commit"]  # between equal runs
DRIVER = "import sys; from smooth_topk.study.grid.abuse import drive; sys.exit(drive(sys.argv[1]))"


class BrokenPromiseError(Exception):
    """The engine did not do after a fault what it promises."""


@dataclass
class Fault:
    """One fault and what became of it; `survived` is None until its round is over."""

    fault: str
    outcome: str
    survived: bool | None = None
    rows_lost: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults are made (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="of the faults and their moments (default: 0)")
    parser.add_argument("--output", type=path_option, help="folder for faults.csv")
    options = parser.parse_args(arguments)
    if not 0 <= options.minutes < math.inf:
        parser.error(f"--minutes must be zero or more, got {options.minutes}.")
    if options.output:
        try:
            make_writable_folder(options.output)
        except OSError as error:
            parser.error(str(error))
    folder = Path(tempfile.mkdtemp(prefix="abuse-"))
    abuse, started = Abuse(folder, options.seed), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: the small disk is taken away
    try:
        abuse.run(60 * options.minutes)
    except KeyboardInterrupt:
        abuse.kill_everything()
        shutil.rmtree(folder)
        print("Stopped before the end. Its processes and its folder are gone, and nothing was recorded.")
        return 130
    minutes = (time.monotonic() - started) / 60
    table = summary(abuse.faults)
    print(f"\n{table.to_string()}\n")
    survived = sum(bool(fault.survived) for fault in abuse.faults)
    print(f"{len(abuse.faults)} faults in {minutes:.0f} minutes, {survived} survived, seed {options.seed}.")
    if options.output:
        origin = {"minutes": round(minutes, 1), "seed": options.seed, **describe_machine()}
        origin["date"] = datetime.now(UTC).isoformat(timespec="seconds")
        write_whole(options.output / FILE, table.reset_index().assign(**origin).to_csv(index=False).encode())
    if survived < len(abuse.faults):
        print(f"Records, checkpoints and logs are in {folder}.")
        return 1
    shutil.rmtree(folder)
    return 0


def summary(faults: Sequence[Fault]) -> pd.DataFrame:
    """Returns one row per kind of fault: how often it was tried and survived, rows lost, and what the engine said."""
    rows = pd.DataFrame([asdict(fault) for fault in faults], columns=["fault", "outcome", "survived", "rows_lost"])
    kinds = rows.assign(survived=rows["survived"].astype(bool)).groupby("fault", sort=True)
    return kinds.agg(tried=("survived", "size"), survived=("survived", "sum"), rows_lost=("rows_lost", "sum"),
                     outcome=("outcome", "last"))  # fmt: skip


def drive(folder: str) -> int:
    """The driver: trains what is missing in the folder; the message of a refusal is its last line."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in the background ignore Ctrl-C
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run_grid(GRID, **folders(Path(folder)), workers=WORKERS, executor="local", progress=False,
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
    return {"results_folder": folder / "results", "runs_folder": folder / "runs"}


def comparable(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns what equal grids share to the last bit, runs and epochs, in a fixed order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a row that an edit has doubled
        runs, epochs = read_runs(folder / "results"), read_epochs(folder / "results")
    runs = runs.drop(columns=MAY_DIFFER, errors="ignore").sort_values("run_id", ignore_index=True)
    epochs = epochs.drop(columns=MAY_DIFFER, errors="ignore").sort_values(["run_id", "epoch"], ignore_index=True)
    return runs, epochs


def differences(found: tuple[pd.DataFrame, pd.DataFrame], expected: tuple[pd.DataFrame, pd.DataFrame]) -> list[str]:
    """Returns where the records of two grids differ, in words; an empty list means the same bits."""
    words = []
    for name, key, ours, theirs in zip((RUNS, EPOCHS), (["run_id"], ["run_id", "epoch"]), found, expected, strict=True):
        if not (ours[key].equals(theirs[key]) and set(ours) == set(theirs)):
            words.append(f"{name} has {len(ours)} rows instead of {len(theirs)}, or other columns")
            continue
        for column in theirs:
            pairs = zip(theirs["run_id"], ours[column], theirs[column], strict=True)
            words += [f"{name}, {run}, {column}: {a!r} instead of {b!r}" for run, a, b in pairs if repr(a) != repr(b)]
    return words


class Abuse:
    """Rounds of the small grid with faults at random moments.

    Args:
        folder: for everything that is written.
        seed: decides which faults come and in which order; at which moments, the speed of the machine decides, too.
    """

    def __init__(self, folder: Path, seed: int):
        # Two generators: how often a moment is drawn depends on the machine, the order of the faults must not.
        self.folder, self.random, self.order = folder, random.Random(seed), random.Random(seed)
        self.faults: list[Fault] = []
        self.here = folder
        self.drivers: list[psutil.Popen] = []
        self.logs: dict[int, Path] = {}
        self.recorded: dict[str, dict] = {}
        self.kinds: dict[str, Callable[[], str]] = {
            "a worker is killed": self.kill_worker,
            "a worker is killed and its checkpoint cut off": lambda: self.kill_worker(cut_off),
            "a worker is killed and a bit of its checkpoint flips": lambda: self.kill_worker(flip_a_bit),
            "a worker gets SIGTERM": lambda: self.kill_worker(number=signal.SIGTERM),
            "a worker may write no more": self.refuse_writes,
            "workers sleep and wake up": self.suspend_workers,
            "the driver is killed": self.stop_driver,
            "the driver gets Ctrl-C": lambda: self.stop_driver(signal.SIGINT),
            "a second driver starts": self.start_second_driver,
            **{f"runs.csv: {name}": partial(self.edit_records, edit) for name, edit in READABLE.items()},
            **{f"runs.csv: {name}": partial(self.refuse_records, edit) for name, edit in REFUSED.items()},
        }

    def run(self, seconds: float) -> None:
        """Makes faults for so many seconds, then lets the last round come to its end."""
        run_grid(GRID, **folders(self.folder / "undisturbed"), workers=WORKERS, executor="local", progress=False)
        expected = comparable(self.folder / "undisturbed")
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            number += 1
            self.round(self.folder / f"round_{number}", end, expected)

    def round(self, folder: Path, end: float, expected: tuple[pd.DataFrame, pd.DataFrame]) -> None:
        """Trains the grid under faults and judges the faults of the round by its records."""
        self.here, self.recorded, first = folder, {}, len(self.faults)
        for path in folders(folder).values():
            path.mkdir(parents=True)
        limit = end + SECONDS_PER_ROUND
        with small_disk(folder / "runs") as mounted:
            kinds = self.kinds | ({"the disk is full": self.fill_disk} if mounted else {})
            self.start_driver()
            while len(self.note_records()) < len(GRID) or self.running():
                if time.monotonic() > limit:
                    print(f"   The grid did not end within {SECONDS_PER_ROUND} seconds after the faults.", flush=True)
                    self.kill_everything()
                    break
                self.pause(self.random.uniform(0.0, LONGEST_PAUSE))
                if not self.running():
                    if len(self.note_records()) < len(GRID):
                        self.start_driver()
                elif time.monotonic() < end and (self.is_training() or self.random.random() < FAULTS_AT_REST):
                    self.inject(self.choose(sorted(kinds)), kinds)
        differing, lost = differences(comparable(folder), expected), self.lost_rows()
        for fault in self.faults[first:]:
            fault.survived = fault.survived is not False and not differing and not lost
            fault.rows_lost = lost
        verdict = "OTHER BITS" if differing else "the same bits"
        print(f"   {folder.name}: {len(self.faults) - first} faults, {verdict}, {lost} rows lost", flush=True)
        for words in differing[:10]:
            print(f"      {words}", flush=True)

    def choose(self, names: list[str]) -> str:
        """Draws a fault; those of workers and disks more often, because a driver takes long to start again."""
        return self.order.choices(names, [4 if "worker" in name or "disk" in name else 1 for name in names])[0]

    def is_training(self) -> bool:
        return any(self.run_of(worker) for worker in self.workers())

    def inject(self, name: str, kinds: dict[str, Callable[[], str]]) -> None:
        self.note_records()
        try:
            fault = Fault(name, kinds[name]())
        except BrokenPromiseError as broken:
            fault = Fault(name, str(broken), survived=False)
        except (psutil.Error, ProcessLookupError):  # it ended by itself in this very moment: no fault was made
            return
        if fault.outcome:
            self.faults.append(fault)
            print(f"{len(self.faults):4} {name}: {fault.outcome}", flush=True)

    def pause(self, seconds: float) -> None:
        """Waits, but not longer than a driver is running."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.running():
            time.sleep(0.05)

    # Processes

    def start_driver(self) -> psutil.Popen:
        with open(self.here / f"driver_{time.monotonic_ns()}.log", "w") as log:
            process = psutil.Popen([sys.executable, "-c", DRIVER, str(self.here)], stdout=log, stderr=log)
        self.logs[process.pid] = Path(log.name)
        self.drivers.append(process)
        return process

    def running(self) -> list[psutil.Popen]:
        self.drivers = [driver for driver in self.drivers if driver.poll() is None]
        return self.drivers

    def workers(self) -> list[psutil.Process]:
        found = []
        for driver in self.running():
            with contextlib.suppress(psutil.Error):  # it is just ending
                found += [child for child in driver.children() if "smooth_topk.study.grid.worker" in child.cmdline()]
        return found

    def kill_everything(self) -> None:
        processes = [*self.workers(), *self.running()]
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=SECONDS_TO_STOP)

    # Faults: each returns what happened in words, or "" where it could not be made

    def kill_worker(self, damage: Callable[[Path], str] | None = None, number: int = signal.SIGKILL) -> str:
        workers = self.workers()
        if not workers:
            return ""
        worker = self.random.choice(workers)
        run = self.run_of(worker)
        worker.send_signal(number)
        psutil.wait_procs([worker], timeout=SECONDS_TO_STOP)
        if damage is None:
            return (
                f"in run {run}, which goes on in a new worker" if run else "between two runs; a new worker is started"
            )
        checkpoints = sorted((self.here / "runs" / run).glob("checkpoint-*.pt")) if run else []
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
        filler = self.here / "runs" / "filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while file.write(bytes(2**20)):
                pass
        self.pause(2.0)
        filler.unlink()
        return "for two seconds; runs that write fail with a sentence and are trained by the next driver"

    def stop_driver(self, number: int = signal.SIGKILL) -> str:
        driver = self.random.choice(self.running())
        workers = driver.children()
        driver.send_signal(number)
        _, left = psutil.wait_procs([driver, *workers], timeout=SECONDS_TO_STOP)
        for process in left:
            process.kill()
        if left:
            raise BrokenPromiseError(f"{len(left)} processes stayed behind and were killed")
        if driver.returncode == 0:  # it had come to its end by itself
            return ""
        return f"its {len(workers)} workers ended by themselves; started again, it goes on"

    def start_second_driver(self) -> str:
        if len(self.running()) > 1:
            return ""
        self.start_driver()
        return "on the same runs; each run is trained once"

    def edit_records(self, edit: Callable[[bytes], bytes]) -> str:
        """Changes runs.csv as an editor would while nobody writes; what is in it must still be read."""
        path = self.without_drivers()
        if not path:
            return ""
        path.write_bytes(edit(path.read_bytes()))
        self.start_driver()
        return "read as before, and no row is lost"

    def refuse_records(self, edit: Callable[[bytes], bytes]) -> str:
        """Damages runs.csv; a driver must refuse it in one sentence and leave it alone, then it is restored."""
        path = self.without_drivers()
        if not path:
            return ""
        before = path.read_bytes()
        path.write_bytes(edit(before))
        damaged = path.read_bytes()
        driver = self.start_driver()
        try:
            code, message = driver.wait(SECONDS_TO_STOP), last_line(self.logs[driver.pid])
            untouched = path.read_bytes() == damaged
        finally:
            path.write_bytes(before)
        self.start_driver()
        if code != 2 or not untouched or RUNS not in message:
            raise BrokenPromiseError(f"not refused: exit code {code}, file untouched: {untouched}, {message!r}")
        return f"refused: {message.replace(str(path), RUNS)}"

    def without_drivers(self) -> Path | None:
        """Stops every driver; returns runs.csv, or None where nothing is recorded yet."""
        if not self.note_records():
            return None
        while self.running():
            self.stop_driver(self.random.choice([signal.SIGKILL, signal.SIGINT]))
        return self.here / "results" / RUNS

    # Records

    def run_of(self, worker: psutil.Process) -> str:
        """The run whose lock the worker holds, or an empty text."""
        for lock in (self.here / "runs").glob("*.lock"):
            with contextlib.suppress(OSError):
                if lock.read_text().startswith(f"process {worker.pid} on "):
                    return lock.stem
        return ""

    def note_records(self) -> dict[str, dict]:
        """Remembers every recorded row as it was when it was first seen."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runs = read_runs(self.here / "results")
        for row in runs.to_dict("records"):
            self.recorded.setdefault(row["run_id"], {name: str(value) for name, value in row.items()})
        return self.recorded

    def lost_rows(self) -> int:
        """How many rows that were once recorded are gone or changed."""
        seen = self.recorded.copy()
        self.recorded = {}
        now = self.note_records()
        return sum(now.get(run_id) != row for run_id, row in seen.items())


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""

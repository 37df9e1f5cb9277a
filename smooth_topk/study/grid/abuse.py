"""The engine under abuse: a small grid is disturbed at random moments and compared with an undisturbed one.

    python scripts/abuse.py --minutes 10              kills, damaged files, a full disk, two drivers, Ctrl-C, lost nodes
    python scripts/abuse.py --minutes 10 --seed 7     the same faults in the same order as every call with seed 7

Every round trains the same runs, on built-in features, in worker processes of a driver, which is started again whenever
it has ended before all runs are recorded. In every third round the runs are tasks of a Ray cluster of two nodes, if Ray
is installed. When all runs are recorded, the records must be those of the undisturbed grid to the last bit, and every
row that was recorded before a fault must still be there. The table of faults goes to standard output and, with --output
FOLDER, into faults.csv. The exit code is 1 if one bit differs or one row is lost.

A driver is a process that calls `run_grid`; a worker is one of the processes that train for it. `faults.py` has the
faults, `damage.py` what is done to files.
"""

import argparse
import contextlib
import importlib.util
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import psutil

from smooth_topk.study.grid import run_grid
from smooth_topk.study.grid.damage import small_disk
from smooth_topk.study.grid.faults import (
    GRID,
    WORKERS,
    BrokenPromiseError,
    ClusterFaults,
    Faults,
    folders,
)
from smooth_topk.study.records.endings import exit_code, why
from smooth_topk.study.records.files import make_writable_folder, write_whole
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import path_option
from smooth_topk.study.records.published import EPOCHS, RUNS
from smooth_topk.study.records.runs import read_epochs, read_runs

FILE = "faults.csv"
LONGEST_PAUSE = 3.0  # seconds between two faults, at most
FAULTS_AT_REST = 0.1  # the share of faults that come while no run is under way, but processes start or end
SECONDS_PER_ROUND = 1_800  # at most, after the last fault
CLUSTER_EVERY = 3  # rounds
MAY_DIFFER = ["seconds", "images_per_second", "resumes", "processes", "date", "commit"]  # between equal runs


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
    try:
        abuse.run(60 * options.minutes)
    except KeyboardInterrupt as stopped:
        shutil.rmtree(folder, ignore_errors=True)
        message = f"\n!! {why(stopped)}. Its processes and its folder are gone, and nothing was recorded."
        print(message, file=sys.stderr)
        return exit_code(stopped)
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


def comparable(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns what equal grids share to the last bit, runs and epochs, in a fixed order."""
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
        seed: decides which faults come and in which order. At which moments, and which of them cannot be made then
            and come later, the speed of the machine decides, too.
    """

    def __init__(self, folder: Path, seed: int):
        # Two generators: how often a moment is drawn depends on the machine, the order of the faults must not.
        self.folder, self.random, self.order = folder, random.Random(seed), random.Random(seed)
        self.faults: list[Fault] = []
        self.decks: dict[tuple[str, ...], list[str]] = {}

    def run(self, seconds: float) -> None:
        """Makes faults for so many seconds, then lets the last round come to its end."""
        run_grid(GRID, **folders(self.folder / "undisturbed"), workers=WORKERS, executor="local", progress=False)
        expected = comparable(self.folder / "undisturbed")
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            number += 1
            folder = self.folder / f"round_{number}"
            with self.place(number) as make_grid:
                self.round(make_grid(folder, self.random), end, expected)

    @contextlib.contextmanager
    def place(self, number: int) -> Iterator[Callable[[Path, random.Random], Faults]]:
        """Yields what makes the grid of a round: on a cluster, which ends with the round, or on this machine."""
        if number % CLUSTER_EVERY or importlib.util.find_spec("ray") is None:
            yield Faults
            return
        from smooth_topk.study.grid.small_cluster import small_cluster

        with small_cluster(nodes=2) as cluster:
            yield lambda folder, chance: ClusterFaults(folder, chance, cluster)

    def round(self, grid: Faults, end: float, expected: tuple[pd.DataFrame, pd.DataFrame]) -> None:
        """Trains the grid under faults and judges the faults of the round by its records."""
        first, limit = len(self.faults), end + SECONDS_PER_ROUND
        with small_disk(grid.folder / "runs") as mounted, contextlib.ExitStack() as stack:
            stack.callback(grid.kill_everything)  # after an error or a signal, while disk and cluster are still there
            kinds = grid.kinds()
            if mounted and grid.executor == "local":
                kinds["the disk is full"] = grid.fill_disk
            grid.start_driver()
            while len(grid.note_records()) < len(GRID) or grid.running():
                if time.monotonic() > limit:
                    print(f"   The grid did not end within {SECONDS_PER_ROUND} seconds after the faults.", flush=True)
                    grid.kill_everything()
                    break
                grid.pause(self.random.uniform(0.0, LONGEST_PAUSE))
                if not grid.running():
                    if len(grid.note_records()) < len(GRID):
                        grid.start_driver()
                elif time.monotonic() < end and (grid.is_training() or self.random.random() < FAULTS_AT_REST):
                    grid.note_records()  # what a fault must not lose
                    self.inject(self.draw(sorted(kinds)), kinds)
        differing, lost = differences(comparable(grid.folder), expected), grid.lost_rows()
        for fault in self.faults[first:]:
            fault.survived = fault.survived is not False and not differing and not lost
            fault.rows_lost = lost
        verdict = "OTHER BITS" if differing else "the same bits"
        faults = f"{len(self.faults) - first} faults"
        print(f"   {grid.folder.name} on {grid.where}: {faults}, {verdict}, {lost} rows lost", flush=True)
        for words in differing[:10]:
            print(f"      {words}", flush=True)

    def draw(self, names: Sequence[str]) -> str:
        """Draws a fault from a shuffled deck, which is shuffled again only when it is used up.

        Faults of workers and disks are in it four times, because they cost less time than those of a driver.
        """
        deck = self.decks.setdefault(tuple(names), [])
        if not deck:
            deck += [name for name in names for _ in range(4 if "worker" in name or "disk" in name else 1)]
            self.order.shuffle(deck)
        return deck.pop()

    def inject(self, name: str, kinds: dict[str, Callable[[], str]]) -> None:
        """Makes a fault and notes what happened; one that cannot be made at this moment goes back under its deck."""
        try:
            fault = Fault(name, kinds[name]())
        except BrokenPromiseError as broken:
            fault = Fault(name, str(broken), survived=False)
        except (psutil.NoSuchProcess, ProcessLookupError):  # a process ended by itself in this very moment
            fault = Fault(name, "")
        if fault.outcome:
            self.faults.append(fault)
            print(f"{len(self.faults):4} {name}: {fault.outcome}", flush=True)
        else:
            self.decks.setdefault(tuple(sorted(kinds)), []).insert(0, name)

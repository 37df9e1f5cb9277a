"""The engine under faults: a small grid is disturbed at random moments and ends with the records of an undisturbed one.

    pytest -m chaos                                   20 minutes: kills, damaged files, a full disk, lost nodes
    CHAOS_MINUTES=5 CHAOS_SEED=7 pytest -m chaos      shorter, with other faults
    CHAOS_OUTPUT=book/results pytest -m chaos         writes the table of faults to book/results/faults.csv

In every second round the runs are tasks of a Ray cluster of two nodes. A round ends when all runs are recorded; its
records must then be those of the undisturbed grid to the last bit, and no record may be lost but one that was deleted.
"""

import contextlib
import json
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import psutil
import pytest
from faults import GRID, PATIENCE, Faults, small_disk, train

from smooth_topk.study.records.machine import describe_machine

MAY_DIFFER = {"seconds", "images_per_second", "resumes", "processes", "date", "commit"}  # between equal runs
LONGEST_PAUSE = 3.0  # seconds between two faults, at most
FAULTS_AT_REST = 0.1  # the share of faults that come while no run is under way, but processes start or end
ROUND_SECONDS = 120  # of faults; then the grid comes to its end
CLUSTER_EVERY = 2  # rounds


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    train(folder)
    return folder


def comparable(folder: Path) -> dict[str, dict]:
    """Returns what equal grids share to the last bit, by run."""
    records = {path.stem: json.loads(path.read_text()) for path in (folder / "records").glob("*.json")}

    def without_times(row: dict) -> dict:
        return {name: value for name, value in row.items() if name not in MAY_DIFFER}

    return {
        run: {"row": without_times(record["row"]), "epochs": [without_times(row) for row in record["epochs"]]}
        for run, record in records.items()
    }


class Deck:
    """Draws faults from a shuffled deck, which is shuffled again when it is used up.

    Faults of workers, tasks and nodes are in it three times: they cost less time than those of a driver.
    """

    def __init__(self, seed: int):
        self.random, self.cards = random.Random(seed), {}

    def draw(self, names: list[str]) -> str:
        cards = self.cards.setdefault(tuple(names), [])
        if not cards:
            cards += [name for name in names for _ in range(1 if "driver" in name else 3)]
            self.random.shuffle(cards)
        return cards.pop()

    def put_back(self, names: list[str], name: str) -> None:
        """Puts a fault that could not be made under the deck."""
        self.cards[tuple(names)].insert(0, name)


def disturb(grid: Faults, until: float, deck: Deck, kinds: dict) -> list[str]:
    """Trains the grid and makes faults until a moment, then lets it come to its end; returns the faults."""
    made: list[str] = []
    grid.start_driver()
    while len(list((grid.folder / "records").glob("*.json"))) < len(GRID) or grid.running():
        assert time.monotonic() < until + 10 * PATIENCE, "the grid did not come to its end after the faults"
        grid.pause(grid.chance.uniform(0.0, LONGEST_PAUSE))
        if not grid.running():
            if len(list((grid.folder / "records").glob("*.json"))) < len(GRID):
                grid.start_driver()
        elif time.monotonic() < until and (grid.workers() or grid.chance.random() < FAULTS_AT_REST):
            name = deck.draw(sorted(kinds))
            before = {path: path.read_bytes() for path in (grid.folder / "records").glob("*.json")}
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):  # it ended by itself in this moment
                if kinds[name]():
                    made.append(name)
                    print(f"{datetime.now():%H:%M:%S} {name}", flush=True)
                else:
                    deck.put_back(sorted(kinds), name)
            lost = [path for path, content in before.items() if not path.exists() or path.read_bytes() != content]
            assert len(lost) <= name.endswith("a record is deleted"), f"{name} lost {lost}"
    return made


@contextlib.contextmanager
def place(number: int, with_ray: bool) -> Iterator:
    """Yields the cluster of a round, or None where its runs are processes of this machine."""
    if number % CLUSTER_EVERY or not with_ray:
        yield None
        return
    from small_cluster import small_cluster

    with small_cluster(nodes=2) as cluster:
        yield cluster


def chaos(folder: Path, undisturbed: Path, seconds: float, seed: int, with_ray: bool) -> pd.DataFrame:
    """Disturbs grids for so many seconds; returns one row per kind of fault: how often tried, how often survived."""
    end, number, rounds, deck, chance = time.monotonic() + seconds, 0, [], Deck(seed), random.Random(seed)
    while time.monotonic() < end:
        number += 1
        with place(number, with_ray) as cluster, contextlib.ExitStack() as stack:
            grid = Faults(folder / str(number), chance, cluster)
            kinds = grid.kinds()
            if stack.enter_context(small_disk(grid.folder / "checkpoints")) and not cluster:
                kinds["the disk is full"] = grid.fill_disk
            stack.callback(grid.kill_everything)
            made = disturb(grid, min(end, time.monotonic() + ROUND_SECONDS), deck, kinds)
        same = comparable(grid.folder) == comparable(undisturbed)
        rounds += [{"fault": name, "survived": same} for name in made]
        assert same, f"after {made} the records in {grid.folder} differ; {grid.log.read_text()}"
        print(f"Round {number}: {len(made)} faults, the same bits", flush=True)
    faults = pd.DataFrame(rounds, columns=["fault", "survived"]).groupby("fault")["survived"]
    return faults.agg(tried="size", survived="sum").reset_index()


@pytest.mark.slow
def test_a_grid_under_a_few_faults_ends_with_the_same_bits(tmp_path, undisturbed):
    table = chaos(tmp_path, undisturbed, seconds=12, seed=random.randrange(1000), with_ray=False)
    assert (table["tried"] == table["survived"]).all()


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(4 * 3600)
def test_a_grid_under_faults_ends_with_the_same_bits(tmp_path, undisturbed):
    pytest.importorskip("ray", reason="needs Ray: pip install 'smooth-topk[cluster]'")
    minutes, seed = float(os.environ.get("CHAOS_MINUTES", 20)), int(os.environ.get("CHAOS_SEED", 0))
    started = time.monotonic()
    table = chaos(tmp_path, undisturbed, 60 * minutes, seed, with_ray=True)
    assert table["tried"].sum() > minutes
    origin = {"minutes": round((time.monotonic() - started) / 60, 1), "seed": seed, **describe_machine()}
    table = table.assign(**origin, date=datetime.now(UTC).isoformat(timespec="seconds"))
    if "CHAOS_OUTPUT" in os.environ:
        table.to_csv(Path(os.environ["CHAOS_OUTPUT"]) / "faults.csv", index=False)

"""The scaling model against the runner itself in virtual time: its real policy, with workers that only keep a clock."""

import heapq
import random
from itertools import count
from types import SimpleNamespace

import pytest

from smooth_topk.study.experiments.expected_cost import expected_seconds
from smooth_topk.study.experiments.gpu_scaling import scaling_table, useful_gpus
from smooth_topk.study.experiments.registry import runs_by_chapter
from smooth_topk.study.figures.gpu_scaling import scaling_figure
from smooth_topk.study.grid import local
from smooth_topk.study.tables.expected_cost import expected_cost_table

GPUS = (1, 2, 3, 5, 8, 16, 17, 40, 100)
OVERHEAD = 90.0  # seconds per run, far more than the runner's, so that a model without it would be found out
ROUNDING = 1e-9  # sums of the same durations in another order


class VirtualTime:
    """Stands in for the selector of the grid: jumps to the next event of any worker."""

    def __init__(self):
        self.now, self.events, self.order = 0.0, [], count()

    def schedule(self, seconds, worker, event):
        heapq.heappush(self.events, (self.now + seconds, next(self.order), worker, event))

    def select(self):
        self.now, _, worker, worker.event = heapq.heappop(self.events)
        return [(SimpleNamespace(data=worker), None)]

    def register(self, *_):
        pass

    unregister = close = register


class VirtualWorker:
    """Stands in for a worker process: a run takes so many seconds and the runner's overhead."""

    def __init__(self, number, time, seconds):
        self.number, self.time, self.seconds = number, time, seconds
        self.process, self.answers = SimpleNamespace(returncode=0), None

    def give(self, config, _options):
        self.config = config
        if config is None:
            self.time.schedule(0.0, self, None)
        else:
            self.time.schedule(OVERHEAD + self.seconds[config.run_id], self, {"event": "done"})

    def events(self):
        return None if self.event is None else [self.event]

    def close(self):
        pass

    def end(self, _deadline):
        pass


@pytest.fixture(scope="module")
def chapters():
    return runs_by_chapter("paper")


def simulated_hours(runs, gpus, seconds, monkeypatch, tmp_path):
    """Lets the local grid hand out the runs, the longest first as `run_grid` orders them; returns when it ended."""
    time = VirtualTime()
    monkeypatch.setattr(local, "_Worker", lambda number, _folder: VirtualWorker(number, time, seconds))
    ended = []
    grid = local.LocalGrid({}, tmp_path, None, ended.append)
    grid.selector = time
    longest_first = sorted(runs, key=lambda run: expected_seconds(run, "gpu"), reverse=True)
    assert grid.run(longest_first, gpus) == {}
    assert len(ended) == len(runs)
    return time.now / 3600


@pytest.mark.parametrize("gpus", GPUS)
def test_the_model_agrees_with_the_runner_in_virtual_time(chapters, gpus, monkeypatch, tmp_path):
    runs = [run for part in chapters.values() for run in part]
    seconds = {run.run_id: expected_seconds(run, "gpu") for run in runs}
    model = scaling_table(chapters, [gpus], overhead=OVERHEAD).loc[gpus]
    assert simulated_hours(runs, gpus, seconds, monkeypatch, tmp_path) == pytest.approx(model["together"], rel=ROUNDING)
    parts = [simulated_hours(part, gpus, seconds, monkeypatch, tmp_path) for part in chapters.values()]
    assert sum(parts) == pytest.approx(model["one_by_one"], rel=ROUNDING)


@pytest.mark.parametrize("gpus", GPUS)
def test_runs_that_take_other_times_than_expected_stay_within_grahams_bounds(chapters, gpus, monkeypatch, tmp_path):
    runs = [run for part in chapters.values() for run in part]
    draw = random.Random(gpus)
    seconds = {run.run_id: draw.uniform(0.5, 2.0) * expected_seconds(run, "gpu") for run in runs}
    hours = [(value + OVERHEAD) / 3600 for value in seconds.values()]
    found = simulated_hours(runs, gpus, seconds, monkeypatch, tmp_path)
    assert found >= max(sum(hours) / gpus, max(hours)) * (1 - ROUNDING)
    assert found <= (sum(hours) / gpus + (1 - 1 / gpus) * max(hours)) * (1 + ROUNDING)


def test_more_gpus_than_work_over_longest_run_do_not_help(chapters):
    useful = useful_gpus(chapters)
    table = scaling_table(chapters, range(1, 65))
    longest = max(expected_seconds(run, "gpu") for part in chapters.values() for run in part) / 3600
    assert table["together"].min() == pytest.approx(longest)
    assert (table["together"][: int(useful)] > longest).all()
    assert (table["together"] >= table["least"] * (1 - ROUNDING)).all()
    assert (table["one_by_one"] >= table["together"] * (1 - ROUNDING)).all()
    assert table["efficiency"][1] == pytest.approx(1)


def test_the_figure_shows_days_against_gpus(chapters):
    table = scaling_table(chapters, range(1, 9))
    ax = scaling_figure(table, useful_gpus(chapters))
    line = next(line for line in ax.lines if line.get_label() == "all runs in one grid")
    assert line.get_ydata() == pytest.approx(table["together"] / 24)
    assert list(line.get_xdata()) == list(range(1, 9))


def test_the_costs_count_every_run_of_the_study_once(chapters):
    table = expected_cost_table("paper")
    runs = [run for part in chapters.values() for run in part]
    assert table.loc["all", "runs"] == len({run.run_id for run in runs}) == table["runs"].iloc[:-1].sum()
    hours = sum(expected_seconds(run, "gpu") for run in runs) / 3600
    assert table.loc["all", "all runs"] == pytest.approx(hours)
    assert table.loc["all", "longest run"] == table["longest run"].iloc[:-1].max()

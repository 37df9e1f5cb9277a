"""The numbers of the page on servers: computed from configurations and measurements, and all of them shown."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import book_costs  # noqa: E402

from smooth_topk.study.benchmarks import runner  # noqa: E402

STEPS = [(1.1, 1.0), (2.1, 2.0), (3.6, 3.0)]  # seconds with and without the runner; the median ratio is 1.1
PER_RUN, AT_START, OWN = 0.5, 4.0, 10.0  # seconds


@pytest.fixture
def measured(monkeypatch):
    """The overhead that a runner with known costs has."""

    def grid(_folder, runs, workers):
        over = workers * AT_START + PER_RUN * runs
        return {"with": OWN * runs + over, "without": OWN * runs, "over": over, "workers": workers}

    monkeypatch.setattr(runner, "_epoch_pairs", lambda _folder, _rounds: STEPS)
    monkeypatch.setattr(runner, "_grid", grid)
    return runner.measure_runner()


def test_the_overhead_tells_the_cost_of_a_run_from_that_of_a_start(measured):
    rows = measured.set_index("overhead")
    assert rows["ratio"]["step"] == pytest.approx(1.1)
    alone = rows.loc["grid, 1 worker"]
    assert (alone["seconds_per_run"], alone["seconds_at_start"]) == pytest.approx((PER_RUN, AT_START))
    assert alone["ratio"] == pytest.approx(1 + (AT_START / runner.MANY + PER_RUN) / OWN)


def test_the_measured_overhead_is_shown_with_its_machine_and_day(measured, tmp_path):
    assert "not run" in book_costs.overhead(tmp_path)
    origin = {"cpu": "A processor", "machine": "Linux, 2 cores", "date": "2026-01-02"}
    measured.assign(**origin).to_csv(tmp_path / book_costs.OVERHEAD_FILE, index=False)
    text = book_costs.overhead(tmp_path)
    assert "| 1.100 | 3 |" in text
    assert f"{PER_RUN:.2f} s" in text
    assert all(value in text for value in origin.values())


def test_the_page_includes_everything_that_is_written_for_it(tmp_path):
    book_costs.write_costs(tmp_path, tmp_path)
    page = (ROOT / "book" / "gpu_server.md").read_text(encoding="utf-8")
    included = re.findall(r"{include} generated/(\S+)", page)
    assert sorted(included) == sorted(path.name for path in tmp_path.iterdir())
    assert "_static/pictures/scaling.svg" in page


def test_the_costs_come_with_their_assumption_and_their_total():
    text = book_costs.costs()
    hours = [int(line.split("|")[-2].replace(",", "")) for line in text.splitlines()[2:] if line.startswith("|")]
    assert sum(hours[:-1]) == pytest.approx(hours[-1], abs=len(hours))  # each is rounded
    assert "Titan Xp" in text
    assert "not measured here" in text

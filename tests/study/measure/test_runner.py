"""What the runner adds to the work of a run: the arithmetic, and the measurement itself on runs of a second."""

import pytest

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure import runner

STEPS = [(1.1, 1.0), (2.1, 2.0), (3.6, 3.0)]  # seconds with and without the runner; the median ratio is 1.1
PER_RUN, AT_START, OWN = 0.5, 4.0, 10.0  # seconds
TINY = RunConfig(train_size=100, epochs=1, batch_size=50)


def test_the_overhead_tells_the_cost_of_a_run_from_that_of_a_start(monkeypatch):
    """Trainings with known costs in place of real ones: what is left is the arithmetic."""

    def grid(_folder, runs, workers):
        over = workers * AT_START + PER_RUN * runs
        return {"with": OWN * runs + over, "without": OWN * runs, "over": over, "workers": workers}

    monkeypatch.setattr(runner, "_epoch_pairs", lambda _folder, _rounds: STEPS)
    monkeypatch.setattr(runner, "_grid", grid)
    rows = runner.measure_runner().set_index("overhead")
    assert rows["ratio"]["step"] == pytest.approx(1.1)
    alone = rows.loc["grid, 1 worker"]
    assert (alone["seconds_per_run"], alone["seconds_at_start"]) == pytest.approx((PER_RUN, AT_START))
    assert alone["ratio"] == pytest.approx(1 + (AT_START / runner.MANY + PER_RUN) / OWN)


@pytest.mark.slow
def test_the_runner_is_measured_on_real_runs(monkeypatch):
    for name, value in {"STEPS": TINY, "SHORT": TINY, "FEW": 1, "MANY": 2}.items():
        monkeypatch.setattr(runner, name, value)
    rows = runner.measure_runner(rounds=2, grid_rounds=1).set_index("overhead")
    assert rows.index.tolist() == ["step", "grid, 1 worker", "grid, all cores"]
    assert rows["samples"].tolist() == [2, 1, 1]
    assert (rows[["seconds_with", "seconds_without"]] > 0).all(axis=None)
    # A grid takes longer than the runs in it; a step with its bookkeeping takes about as long as without, and noise is
    # larger than the difference on two steps.
    assert (rows["ratio"][1:] > 1).all()
    assert 0.2 < rows["ratio"]["step"] < 20

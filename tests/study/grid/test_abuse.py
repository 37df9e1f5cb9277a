"""The abuse of the engine: its judges would notice, its edits do what they say, and a short one is survived."""

import contextlib
import random
import signal
import subprocess
from types import SimpleNamespace

import psutil
import pytest

from smooth_topk.study.book import cost_page
from smooth_topk.study.grid import abuse, faults
from smooth_topk.study.grid.damage import cut_off, flip_a_bit
from smooth_topk.study.grid.faults import BrokenPromiseError, ClusterFaults, Faults
from smooth_topk.study.records.endings import ended_in_order
from smooth_topk.study.records.runs import write_record
from smooth_topk.study.training.checkpoints import load_checkpoint, save_checkpoint


def record(folder, accuracies=(0.1 + 0.2, 0.5)):
    for config, accuracy in zip(abuse.GRID, accuracies, strict=False):
        row = {"run_id": config.run_id, **config.to_dict(), "status": "finished", "test_top5": accuracy}
        row |= {"seconds": 1.5, "date": "2026-11-16T11:01:57+00:00"}
        write_record(folder / "results", row, [{"run_id": config.run_id, "epoch": 0, "train_loss": accuracy}])


def differences(first, second):
    return abuse.differences(abuse.comparable(first), abuse.comparable(second))


def test_one_bit_makes_a_difference_and_a_time_does_not(tmp_path):
    record(tmp_path / "a")
    record(tmp_path / "b", (0.3, 0.5))
    record(tmp_path / "c")
    run = abuse.GRID[0].run_id
    path = tmp_path / "c" / "results" / f"{run}.json"
    path.write_text(path.read_text().replace('"seconds": 1.5', '"seconds": 2.5'))
    assert differences(tmp_path / "a", tmp_path / "b") == [
        f"runs.csv, {run}, test_top5: 0.30000000000000004 instead of 0.3",
        f"epochs.csv, {run}, train_loss: 0.30000000000000004 instead of 0.3",
    ]
    assert differences(tmp_path / "a", tmp_path / "c") == []


def test_a_run_that_is_missing_is_a_difference(tmp_path):
    record(tmp_path / "a")
    record(tmp_path / "b", (0.1 + 0.2,))
    assert differences(tmp_path / "b", tmp_path / "a") == [
        f"{name} has 1 rows instead of 2, or other columns" for name in ("runs.csv", "epochs.csv")
    ]


def test_a_row_that_is_gone_or_changed_is_counted(tmp_path):
    record(tmp_path)
    under_test = Faults(tmp_path, random.Random(0))
    assert len(under_test.note_records()) == 2
    assert under_test.lost_rows() == 0
    first, second = (tmp_path / "results" / f"{config.run_id}.json" for config in abuse.GRID[:2])
    first.write_text(first.read_text().replace('"seconds": 1.5', '"seconds": 2.5'))
    second.unlink()
    assert under_test.lost_rows() == 2


@pytest.mark.parametrize("damage", [cut_off, flip_a_bit])
def test_every_damage_of_a_checkpoint_is_noticed(tmp_path, damage):
    save_checkpoint(tmp_path, {"epoch": 1})
    damage(save_checkpoint(tmp_path, {"epoch": 2}))
    assert load_checkpoint(tmp_path) == {"epoch": 1}


def test_a_seed_repeats_the_faults(tmp_path):
    names = sorted(Faults(tmp_path, random.Random(0)).kinds())
    first, second, third = (abuse.Abuse(tmp_path, seed) for seed in (3, 3, 4))
    orders = [[each.draw(names) for _ in range(20)] for each in (first, second, third)]
    assert orders[0] == orders[1] != orders[2]


def test_every_kind_of_fault_comes_before_the_deck_is_laid_anew(tmp_path):
    under_test, names = abuse.Abuse(tmp_path, seed=0), ["a worker is killed", "the driver is killed"]
    for _ in range(3):
        assert sorted(under_test.draw(names) for _ in range(5)) == [names[0]] * 4 + [names[1]]


def test_a_fault_that_cannot_be_made_at_its_moment_comes_later(tmp_path):
    under_test, kinds = abuse.Abuse(tmp_path, seed=0), {"a fault": lambda: "", "another": lambda: "made"}
    drawn = [under_test.draw(sorted(kinds)) for _ in range(2)]
    for name in drawn:
        under_test.inject(name, kinds)
    assert [fault.fault for fault in under_test.faults] == ["another"]
    assert under_test.draw(sorted(kinds)) == "a fault"


def test_the_faults_of_a_cluster_are_lost_nodes_and_killed_tasks(tmp_path):
    """On a pretended cluster: a real one takes part in scripts/abuse.py and in test_ray_cluster.py."""
    calls = []
    cluster = SimpleNamespace(
        address="127.0.0.1:6379",
        further_nodes=["second node"],
        tasks=lambda node=None: [SimpleNamespace(pid=17)] if node else [],
        kill_node=lambda node: calls.append(("kill", node)),
        add_node=lambda: calls.append(("add",)),
    )
    under_test = ClusterFaults(tmp_path, random.Random(0), cluster)
    (tmp_path / "runs" / "0123.lock").write_text("process 17 on this machine")
    assert under_test.kinds()["Ray: a node is killed"]() == "with run 0123, which goes on elsewhere; a new node joins"
    assert calls == [("kill", "second node"), ("add",)]
    assert under_test.executor == "ray:127.0.0.1:6379"
    assert under_test.kinds()["Ray: a task is killed"]() == ""


@pytest.mark.parametrize(("number", "where"), [(1, "this machine"), (2, "this machine"), (3, "a cluster")])
def test_every_third_round_is_on_a_cluster_where_ray_is_installed(tmp_path, monkeypatch, number, where):
    small_cluster = pytest.importorskip(
        "smooth_topk.study.grid.small_cluster", reason="needs Ray: pip install 'smooth-topk[cluster]'"
    )
    started = SimpleNamespace(address="127.0.0.1:6379")
    monkeypatch.setattr(small_cluster, "small_cluster", lambda nodes: contextlib.nullcontext(started))
    with abuse.Abuse(tmp_path, seed=0).place(number) as make_grid:
        assert make_grid(tmp_path, random.Random(0)).where == where
    monkeypatch.setattr(abuse.importlib.util, "find_spec", lambda name: None)
    with abuse.Abuse(tmp_path, seed=0).place(number) as make_grid:
        assert make_grid(tmp_path, random.Random(0)).where == "this machine"


def test_a_broken_promise_is_a_fault_that_was_not_survived(tmp_path):
    def fail():
        raise BrokenPromiseError("a worker stayed behind")

    under_test = abuse.Abuse(tmp_path, seed=0)
    under_test.inject("a fault", {"a fault": fail})
    under_test.inject("another", {"another": lambda: ""})
    assert under_test.faults == [abuse.Fault("a fault", "a worker stayed behind", survived=False)]


@pytest.mark.parametrize(
    ("command", "made"), [("echo ready; exec sleep 60", True), ("trap '' INT; echo ready; exec sleep 1", False)]
)
def test_a_driver_that_ends_by_itself_is_no_fault(tmp_path, command, made):
    under_test = Faults(tmp_path, random.Random(0))
    under_test.drivers = [psutil.Popen(["sh", "-c", command], stdout=subprocess.PIPE)]
    assert under_test.drivers[0].stdout.readline() == b"ready\n"
    assert bool(under_test.stop_driver(signal.SIGTERM if made else signal.SIGINT)) == made


def test_a_driver_that_has_just_ended_is_no_fault(tmp_path):
    assert Faults(tmp_path, random.Random(0)).stop_driver() == ""


def test_a_driver_can_be_stopped_by_ctrl_c_also_in_the_background(tmp_path, monkeypatch):
    def stopped(*_, **__):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(faults, "run_grid", stopped)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert faults.drive(str(tmp_path), "local") == 130
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_stops_the_abuse_finds_nothing_left_behind(tmp_path, monkeypatch, capsys, number):
    def start_driver(self):
        self.drivers = [psutil.Popen(["sleep", "60"])]
        started.append(self.drivers[0])
        signal.raise_signal(number)

    started = []
    monkeypatch.setattr(abuse.tempfile, "mkdtemp", lambda prefix: (tmp_path / prefix).mkdir() or tmp_path / prefix)
    monkeypatch.setattr(abuse, "run_grid", lambda *_, **__: None)
    monkeypatch.setattr(abuse, "small_disk", lambda folder: contextlib.nullcontext(False))
    monkeypatch.setattr(Faults, "start_driver", start_driver)
    assert ended_in_order(lambda: abuse.main(["--output", str(tmp_path)])) == 128 + number
    assert not started[0].is_running()
    assert list(tmp_path.iterdir()) == []
    assert f"Stopped by {number.name}. Its processes and its folder are gone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--minutes", "nan", "--minutes must be zero or more, got nan"),
        ("--minutes", "inf", "got inf"),
        ("--output", "", "a path must not be empty, got ''"),
        ("--output", "/dev/null/x", "Could not write /dev/null/x"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_the_first_fault(monkeypatch, capsys, option, value, sentence):
    monkeypatch.setattr(abuse.Abuse, "run", lambda *_: pytest.fail("it began"))
    with pytest.raises(SystemExit) as stop:
        abuse.main([option, value])
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_the_table_counts_faults_by_kind_and_the_page_shows_it(tmp_path):
    made = [
        abuse.Fault("kill", "went on", True),
        abuse.Fault("kill", "went <on>", True),
        abuse.Fault("cut", "no", False, 2),
    ]
    table = abuse.summary(made)
    assert table["tried"].to_dict() == {"cut": 1, "kill": 2}
    assert table["survived"].to_dict() == {"cut": 0, "kill": 2}
    assert "not run" in cost_page.faults(tmp_path)
    origin = {
        "minutes": 30.2,
        "seed": 7,
        "cpu": "A processor",
        "machine": "2 cores",
        "date": "2026-11-17T05:00:00+00:00",
    }
    table.reset_index().assign(**origin).to_csv(tmp_path / abuse.FILE, index=False)
    text = cost_page.faults(tmp_path)
    assert "3 faults in 30 minutes (seed 7), of which 2 ended with" in text
    assert "2 recorded rows were lost. A processor, 2 cores, 2026-11-17." in text
    assert "<on>" not in text.replace(r"\<", "")

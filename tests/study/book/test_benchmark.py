"""scripts/benchmark.py as a user calls it: files, messages, exit codes."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from smooth_topk.study.book import benchmark
from smooth_topk.study.records.machine import describe_machine


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a quick benchmark that takes a second: the tests are about what it writes."""
    tiny = replace(benchmark.QUICK, sizes=(20, 1000), paper_sizes=(20,), ks=(1, 2), batch=4, rounds=1, budget=0.0)
    monkeypatch.setattr(benchmark, "QUICK", replace(tiny, sample_seconds=1e-4, threads=(1,)))
    monkeypatch.setenv("SMOOTH_TOPK_RUNS", str(tmp_path))
    yield tmp_path / "benchmark"
    torch.set_num_threads(1)


def test_every_section_writes_its_own_file_with_device_machine_and_date(folder, capsys):
    assert benchmark.main(["--quick", "--only", "forward", "loss", "k_sweep"]) == 0
    names = {"speed_forward-cpu.csv", "speed_loss-cpu.csv", "speed_k_sweep-cpu.csv", "speed_exponents-cpu.csv"}
    assert {path.name for path in folder.iterdir()} == names
    table = pd.read_csv(folder / "speed_loss-cpu.csv")
    assert {*describe_machine(), "threads", "date", "profile", "dropped", "ratio"} <= set(table)
    assert set(table["profile"]) == {"quick"}
    output = capsys.readouterr().out
    assert "exponent" in output
    assert "pivot_compiled is skipped" in output


def test_a_benchmark_is_published_on_request_and_a_gpu_never_replaces_a_cpu(folder, tmp_path, monkeypatch):
    (tmp_path / "published").mkdir()
    monkeypatch.setattr(benchmark, "published_folder", lambda: tmp_path / "published")
    monkeypatch.setattr(benchmark.measure, "Settings", lambda: benchmark.QUICK)
    assert benchmark.main(["--publish", "--only", "forward"]) == 0
    assert [path.name for path in (tmp_path / "published").iterdir()] == ["speed_forward.csv"]
    assert not folder.exists()
    monkeypatch.setattr(benchmark, "describe_machine", lambda _: describe_machine() | {"device": "A Card 80GB"})
    assert benchmark.main(["--publish", "--only", "forward"]) == 0
    names = sorted(path.name for path in (tmp_path / "published").iterdir())
    assert names == ["speed_forward-a-card-80gb.csv", "speed_forward.csv"]


def test_a_stopped_benchmark_keeps_the_sections_that_are_done(folder, monkeypatch):
    def stopped(settings):
        raise KeyboardInterrupt

    monkeypatch.setitem(benchmark.TIMED, "memory", stopped)
    with pytest.raises(KeyboardInterrupt):
        benchmark.main(["--quick", "--only", "forward", "memory"])
    assert [path.name for path in folder.iterdir()] == ["speed_forward-cpu.csv"]


def test_a_quick_benchmark_skips_what_no_longer_fits_into_its_minute(folder, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "QUICK_SECONDS", -1)
    assert benchmark.main(["--quick"]) == 0
    assert not list(folder.iterdir())
    assert "--quick --only loss" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "nonsense"],
        ["--device", "cuda"],
        ["--device", "gpu"],
        ["--device", "meta"],
        ["--device", ""],
        ["--quick", "--publish"],
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(arguments, folder, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        benchmark.main(arguments)
    assert stop.value.code == 2
    assert arguments[-1] in capsys.readouterr().err
    assert not folder.exists()

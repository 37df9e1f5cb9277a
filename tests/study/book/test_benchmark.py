"""scripts/benchmark.py and scripts/score_imagenet.py as a user calls them: files, messages, exit codes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from smooth_topk.study.book import benchmark
from smooth_topk.study.measure import score_imagenet
from smooth_topk.study.records.machine import describe_machine

ROOT = Path(__file__).parents[3]


@pytest.fixture
def seconds_only(monkeypatch):
    """The quick benchmark, quicker: this is about what it writes."""
    tiny = replace(benchmark.QUICK, sizes=(20, 1000), paper_sizes=(20,), ks=(1, 2), batch=4, rounds=1, budget=0.0)
    monkeypatch.setattr(benchmark, "QUICK", replace(tiny, sample_seconds=1e-4, threads=(1,)))
    yield
    torch.set_num_threads(1)


def test_every_section_writes_its_own_file_with_machine_and_date(tmp_path, seconds_only, capsys):
    assert benchmark.main(["--quick", "--output", str(tmp_path), "--only", "forward", "loss", "k_sweep"]) == 0
    expected = {"speed_forward.csv", "speed_loss.csv", "speed_k_sweep.csv", "speed_exponents.csv", "speed.svg"}
    assert {path.name for path in tmp_path.iterdir()} == expected
    table = pd.read_csv(tmp_path / "speed_loss.csv")
    assert {*describe_machine(), "threads", "date", "profile", "dropped", "ratio"} <= set(table)
    assert set(table["profile"]) == {"quick"}
    printed = capsys.readouterr().out
    assert "exponent" in printed
    assert "pivot_compiled is skipped: --quick compiles nothing." in printed


def test_a_stopped_benchmark_keeps_the_sections_that_are_done(tmp_path, seconds_only, monkeypatch, capsys):
    def stopped(settings):
        raise KeyboardInterrupt

    monkeypatch.setitem(benchmark.TIMED, "memory", stopped)
    assert benchmark.main(["--quick", "--output", str(tmp_path), "--only", "forward", "memory"]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["speed_forward.csv"]
    assert "sections that are done" in capsys.readouterr().err


def test_a_quick_benchmark_skips_what_no_longer_fits_into_its_minute(tmp_path, seconds_only, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "QUICK_SECONDS", -1)
    assert benchmark.main(["--quick", "--output", str(tmp_path)]) == 0
    assert not list(tmp_path.iterdir())
    assert "loss is skipped, it does not fit into the minute: --quick --only loss" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--only", "nonsense"], ["--device", "cuda"], ["--device", "gpu"], ["--device", "meta"], ["--device", ""]],
)
def test_what_cannot_run_is_refused_before_anything_starts(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        benchmark.main([*arguments, "--output", str(tmp_path)])
    assert stop.value.code == 2
    assert arguments[-1] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("output", ["file", "dangling", "/proc/nowhere"])
def test_an_output_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch, capsys, output):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    assert benchmark.main(["--quick", "--output", output]) == 2
    assert capsys.readouterr().err.startswith(f"!! Could not write {output}: ")


def test_recorded_scores_that_cannot_be_read_are_one_sentence(tmp_path, seconds_only, monkeypatch, capsys):
    def damaged():
        raise ValueError("scores.npz cannot be read as recorded scores")

    monkeypatch.setattr(benchmark, "read_scores", damaged)
    assert benchmark.main(["--quick", "--output", str(tmp_path), "--only", "stability"]) == 1
    assert "\n!! scores.npz cannot be read" in capsys.readouterr().err


def test_a_quick_benchmark_never_writes_to_the_recorded_results(monkeypatch, tmp_path):
    monkeypatch.setenv("SMOOTH_TOPK_RUNS", str(tmp_path))
    assert benchmark.default_folder(quick=True) == tmp_path / "quick" / "benchmark"
    assert benchmark.default_folder(quick=False).parts[-2:] == ("book", "results")


def test_images_without_all_classes_are_refused(tmp_path, capsys):
    (tmp_path / "n01440764_tench.jpg").touch()
    assert score_imagenet.main([str(tmp_path)]) == 2
    assert "1 different WordNet ids" in capsys.readouterr().err


def test_scores_are_kept_piece_by_piece_and_not_computed_again(tmp_path):
    from PIL import Image

    paths = [tmp_path / f"n{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        Image.new("RGB", (300, 260), (number * 50, 0, 0)).save(path)
    calls = []

    def network(crops):
        calls.append(1)
        return crops.mean((2, 3))

    kept = tmp_path / "kept"
    kept.mkdir()
    first = score_imagenet.ten_crop_scores(network, paths, kept)
    again = score_imagenet.ten_crop_scores(network, paths, kept)
    assert first.shape == (3, 10, 3)
    assert len(calls) == 3
    assert torch.equal(first, again)
    assert first[1, 0, 0] == pytest.approx(50 / 127.5 - 1)


def test_the_recorded_files_hold_scores_labels_and_names(tmp_path):
    count = score_imagenet.SAMPLE
    scores = torch.randn(count, 10, 12, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(count) % 12
    score_imagenet.record(scores, labels, [f"class {i}" for i in range(12)], tmp_path)
    one, ten = (np.load(tmp_path / f"imagenet_{name}.npz") for name in ("scores", "ten_crops"))
    assert (one["scores"].shape, one["scores"].dtype) == ((count, 12), np.float32)
    assert (ten["scores"].shape, ten["scores"].dtype) == ((32, 10, 12), np.float16)
    assert np.array_equal(one["labels"][:32], ten["labels"])
    assert np.allclose(ten["scores"][:, 4], one["scores"][:32], rtol=1e-3)  # float16 has 11 bits
    table = pd.read_csv(tmp_path / "imagenet_ten_crops.csv")
    assert len(table) == 8
    assert table["caution"].str.contains("likely training images").all()

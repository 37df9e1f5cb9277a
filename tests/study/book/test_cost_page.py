"""The numbers of the page on servers: computed from configurations and measurements, and all of them shown."""

import random
import re
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from smooth_topk.study.book import cost_page, run_study
from smooth_topk.study.experiments.expected_cost import expected_seconds
from smooth_topk.study.experiments.selections import selected_runs
from smooth_topk.study.grid.faults import ClusterFaults, Faults

ROOT = Path(__file__).parents[3]


def test_the_measured_overhead_is_shown_with_its_machine_and_day(tmp_path):
    assert "not run" in cost_page.overhead(tmp_path)
    origin = {"cpu": "A processor", "machine": "Linux, 2 cores", "date": "2026-01-02"}
    rows = [
        {"overhead": "step", "ratio": 1.1, "samples": 3},
        {"overhead": "grid, 1 worker", "ratio": 1.2, "samples": 3, "seconds_per_run": 0.52, "seconds_at_start": 4.1},
        {"overhead": "grid, all cores", "ratio": 1.3, "samples": 3},
    ]
    pd.DataFrame(rows).assign(**origin).to_csv(tmp_path / cost_page.OVERHEAD_FILE, index=False)
    text = cost_page.overhead(tmp_path)
    for ratio in ("1.100", "1.200", "1.300"):
        assert re.search(rf"\| {ratio} +\| 3 +\|", text)
    assert "0.52 s" in text
    assert "4.1 s" in text
    assert all(value in text for value in origin.values())
    pd.DataFrame(rows).assign(**origin | {"cpu": "<script>"}).to_csv(tmp_path / cost_page.OVERHEAD_FILE, index=False)
    assert r"\<script\>, Linux, 2 cores" in cost_page.overhead(tmp_path)


def test_the_page_includes_everything_that_is_written_for_it(tmp_path):
    cost_page.write_costs(tmp_path, tmp_path)
    page = (ROOT / "book" / "gpu_server.md").read_text(encoding="utf-8")
    included = re.findall(r"{include} generated/(\S+)", page)
    assert sorted(included) == sorted(path.name for path in tmp_path.iterdir())
    assert "_static/pictures/scaling.svg" in page


def test_the_costs_come_with_their_assumption_and_their_total():
    text = cost_page.costs()
    hours = [int(line.split("|")[-2].replace(",", "")) for line in text.splitlines()[2:] if line.startswith("|")]
    assert sum(hours[:-1]) == pytest.approx(hours[-1], abs=len(hours))  # each is rounded
    assert "| CIFAR-100 images | DenseNet 40-40 with bottlenecks |" in text
    assert "Titan Xp" in text
    assert "not measured here" in text


def test_the_recorded_faults_are_many_and_nothing_was_lost_and_the_page_says_so():
    rows = pd.read_csv(ROOT / "book" / "results" / cost_page.FAULTS_FILE)
    origin = rows[["minutes", "seed", "cpu", "machine", "python", "torch", "commit", "date"]]
    assert len(origin.drop_duplicates()) == 1, "one call made them all"
    assert origin.notna().all(axis=None)
    assert rows["minutes"][0] >= 30
    assert rows["tried"].sum() >= 100
    assert rows["survived"].tolist() == rows["tried"].tolist()
    assert rows["rows_lost"].sum() == 0
    text, count = cost_page.faults(ROOT / "book" / "results"), rows["tried"].sum()
    for fault, tried in zip(rows["fault"], rows["tried"], strict=True):
        assert re.search(rf"\| {re.escape(fault)} +\| {tried} +\| {tried} +\| 0 +\|", text), fault
    assert f"{count} faults in {rows['minutes'][0]:.0f} minutes (seed {rows['seed'][0]})" in text
    assert f"of which {count} ended with" in text
    assert "; 0 recorded rows were lost." in text
    assert not re.search(r"\b[Nn]one\b", text)


def test_the_page_starts_a_cluster_with_a_token_and_says_what_one_without_does():
    page = (ROOT / "book" / "gpu_server.md").read_text(encoding="utf-8")
    commands, _, rest = page[page.index("\n## A cluster\n") :].partition(":::{admonition}")
    assert commands.index("ray get-auth-token") < commands.index("RAY_AUTH_MODE=token") < commands.index("ray start")
    warning = " ".join(rest.partition("\n:::\n")[0].split())
    assert warning.startswith("A cluster without a token runs the code of anybody who can reach it :class: warning")
    assert "Ray listens on all network interfaces" in warning
    assert "behind a firewall" in warning


def test_every_kind_of_fault_that_can_be_made_is_among_the_recorded_ones(tmp_path):
    grids = [
        Faults(tmp_path, random.Random(0)),
        ClusterFaults(tmp_path, random.Random(0), SimpleNamespace(address="127.0.0.1:6379")),
    ]
    kinds = {name for grid in grids for name in grid.kinds()} | {"the disk is full"}
    assert set(pd.read_csv(ROOT / "book" / "results" / cost_page.FAULTS_FILE)["fault"]) == kinds


def test_the_night_is_said_with_the_hours_of_its_runs():
    text = cost_page.night()
    runs = [run for part in selected_runs("paper", ["one_night"]).values() for run in part]
    hours = sum(expected_seconds(run, "gpu") for run in runs) / 3600
    assert f"that is about {hours:.0f} hours on one Titan Xp" in text
    assert f"{hours / cost_page.NIGHT_HOURS:.0f} times as fast" in text
    page = (ROOT / "book" / "gpu_server.md").read_text(encoding="utf-8")
    assert "--profile paper --trainings one_night" in page


def test_every_option_that_the_page_shows_is_one_of_the_command():
    page = (ROOT / "book" / "gpu_server.md").read_text(encoding="utf-8")
    lines = re.findall(r"scripts/(?:run_study\.py|study\.sh)(.*)", page)
    shown = {option for line in lines for option in re.findall(r"(?<= )--[a-z-]+", line.partition("#")[0])}
    source = Path(run_study.__file__).read_text(encoding="utf-8")
    assert {"--calibrate", "--trainings", "--dry-run", "--list"} <= shown
    assert {option for option in shown if f'"{option}"' not in source} == set()

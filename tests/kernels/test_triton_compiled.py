"""The Triton kernels compiled for GPUs that are not here: resources, and what the interpreter cannot show."""

import csv
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton: pip install triton")

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "book" / "results" / "triton_compile.csv"
PAGE = ROOT / "book" / "fused_kernels.md"
LARGEST_SPILL = 64  # bytes a thread, for any k: at most eight float64 numbers
SHARED_BYTES = 48 * 1024  # what every GPU gives a program without being asked


def run_python(folder, *arguments):
    """Runs the interpreter of these tests in a process where Triton compiles, with its cache in `folder`."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, check=True, env=environment, capture_output=True, text=True, cwd=ROOT).stdout


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """The command's own CSV for k = 5 and k = 32."""
    folder = tmp_path_factory.mktemp("record")
    choice = ["--k", 5, 32, "--classes", 1000, "--dtype", "float32", "--output", folder / "record.csv"]
    run_python(folder, "-m", "smooth_topk.study.measure.triton_report", *choice)
    with open(folder / "record.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def launches(tmp_path_factory):
    """Signature, PTX and Triton's own GPU code of what a launch would send: k = 5, 1,000 classes, capability 8.0."""
    return json.loads(run_python(tmp_path_factory.mktemp("launches"), Path(__file__).with_name("triton_launch.py")))


@pytest.mark.slow
def test_both_kernels_compile_for_compute_capability_8_and_9(record):
    compiled = {(row["kernel"], row["k"], row["classes"], row["compute_capability"]) for row in record}
    assert len(compiled) == len(record) == 2 * 2 * 2
    assert {row["compute_capability"] for row in record} == {"8.0", "9.0"}


@pytest.mark.slow
def test_nothing_is_spilled_at_k_5_and_little_at_any_k(record):
    for row in record:
        assert int(row["spilled_bytes"]) <= (0 if row["k"] == "5" else LARGEST_SPILL)
        assert 0 < int(row["registers"]) <= 255
        assert int(row["shared_bytes"]) <= SHARED_BYTES


def test_the_record_in_the_book_has_every_kernel_and_says_with_what_it_was_made():
    with open(RECORD, newline="") as file:
        rows = list(csv.DictReader(file))
    combinations = {(row["kernel"], row["k"], row["compute_capability"], row["dtype"]) for row in rows}
    for kernel in ("forward", "backward"):
        for capability in ("8.0", "9.0"):
            assert {(kernel, k, capability, "float32") for k in ("1", "5", "8", "20", "32")} <= combinations
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", row["triton"]) for row in rows)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"]) for row in rows)
    assert all(row["spilled_bytes"] == "0" for row in rows if row["k"] == "5")


def test_the_page_shows_what_is_recorded():
    with open(RECORD, newline="") as file:
        recorded = {
            (row["kernel"], int(row["k"]), int(row["classes"]), row["compute_capability"]): row
            for row in csv.DictReader(file)
            if row["dtype"] == "float32"
        }
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| (forward|backward) \|", line)]
    assert rows
    for line in rows:
        kernel, k, classes, *cells = (cell.strip().replace(",", "") for cell in line.strip("|").split("|"))
        for cell, column in zip(cells, ("registers", "spilled_bytes", "shared_bytes"), strict=True):
            both = [recorded[kernel, int(k), int(classes), capability][column] for capability in ("8.0", "9.0")]
            assert cell == " / ".join(both)


def test_the_page_shows_the_bytes_that_the_kernels_move():
    from smooth_topk.study.measure.triton_report import bytes_moved

    rows = [line for line in PAGE.read_text().splitlines() if re.search(r"\| (float32|bfloat16) \|", line)]
    assert rows
    for line in rows:
        classes, k, dtype, *shown = (cell.strip().replace(",", "") for cell in line.strip("|").split("|"))
        classes = int(classes)
        ours, least = bytes_moved(classes, int(k), itemsize={"float32": 4, "bfloat16": 2}[dtype])
        assert shown == [f"{least / classes:.2f}", f"{ours / classes:.2f}", f"{ours / least:.3f}"]


@pytest.mark.slow
def test_tau_and_margin_reach_the_gpu_in_double_precision(launches):
    signature = launches["forward_kernel"]["signature"]
    assert (signature["tau"], signature["margin"], signature["scale"]) == ("fp64", "fp64", "fp32")


@pytest.mark.slow
def test_the_head_overwrites_the_tail_after_a_barrier(launches):
    events = re.findall(r"st\.global|bar\.sync", launches["backward_kernel"]["ptx"])
    assert events[-2:] == ["bar.sync", "st.global"]
    assert events.count("st.global") == 1 + 1024 // (4 * 32)  # a thread writes its scores' places, then one more


@pytest.mark.slow
def test_the_backward_kernel_reads_and_writes_each_place_once(launches):
    ttgir = launches["backward_kernel"]["ttgir"]
    assert len(re.findall(r"tt\.load .*tensor<1024x!tt\.ptr<f32>", ttgir)) == 1
    assert len(re.findall(r"tt\.store .*tensor<1024x!tt\.ptr<f32>", ttgir)) == 1


@pytest.mark.slow
def test_the_forward_kernel_reads_each_score_once_and_writes_none(launches):
    ttgir = launches["forward_kernel"]["ttgir"]
    loads = [line for line in ttgir.splitlines() if re.search(r"tt\.load .*tensor<1024x!tt\.ptr<f32>", line)]
    indents = {len(line) - len(line.lstrip()) for line in loads}
    assert len(loads) == len(indents) == 2  # the first block before the loop, the next one inside it
    assert not re.search(r"tt\.store .*tensor<1024x!tt\.ptr", ttgir)

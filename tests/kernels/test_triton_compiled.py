"""The Triton kernel compiled for GPUs that are not here: resources, and what the interpreter cannot show."""

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


def recorded(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_kernel_compiles_for_compute_capability_8_and_9_and_spills_little(tmp_path):
    choice = ["--k", 5, 32, "--classes", 1000, "--output", tmp_path / "record.csv"]
    run_python(tmp_path, "scripts/triton_report.py", *choice)
    rows = recorded(tmp_path / "record.csv")
    assert {(row["k"], row["compute_capability"]) for row in rows} == {
        (k, c) for k in ["5", "32"] for c in ("8.0", "9.0")
    }
    for row in rows:
        assert int(row["spilled_bytes"]) <= (0 if row["k"] == "5" else LARGEST_SPILL)
        assert 0 < int(row["registers"]) <= 255
        assert int(row["shared_bytes"]) <= SHARED_BYTES


def test_the_page_shows_what_is_recorded():
    known = {(int(row["k"]), int(row["classes"]), row["compute_capability"]): row for row in recorded(RECORD)}
    assert {(k, c) for k, _, c in known} == {(k, c) for k in (1, 5, 8, 20, 32) for c in ("8.0", "9.0")}
    assert all(row["spilled_bytes"] == "0" for (k, *_), row in known.items() if k == 5)
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \| [\d,]+ \|", line)]
    assert len(lines) == len(known) // 2
    for line in lines:
        k, classes, *cells = (cell.strip().replace(",", "") for cell in line.strip("|").split("|"))
        for cell, column in zip(cells, ("registers", "spilled_bytes", "shared_bytes"), strict=True):
            both = [known[int(k), int(classes), capability][column] for capability in ("8.0", "9.0")]
            assert cell == " / ".join(both)


@pytest.mark.slow
def test_a_launch_sends_double_precision_temperatures_and_touches_scores_and_gradient_no_more_than_needed(tmp_path):
    launch = json.loads(run_python(tmp_path, Path(__file__).with_name("triton_launch.py")))
    types = {name: launch["signature"][name] for name in ("tau", "margin", "scale")}
    assert types == {"tau": "fp64", "margin": "fp64", "scale": "fp32"}
    blocks = re.findall(r"tt\.(load|store) .*tensor<1024x!tt\.ptr<f32>", launch["ttgir"])
    assert blocks == ["load", "load", "load", "store"]  # the first block, the next one in the loop; then the gradient
    assert re.findall(r"st\.global|bar\.sync", launch["ptx"])[-2:] == ["st.global"] * 2  # head and label, at the end

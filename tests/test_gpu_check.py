"""scripts/gpu_check.py: without a GPU it says so; its measures are tried on the CPU."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accuracy import GRADIENT, LOSS

SCRIPT = Path(__file__).parents[1] / "scripts" / "gpu_check.py"


@pytest.fixture
def gpu_check():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_ends_with_one_sentence_and_the_code_2():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


def test_accuracy_and_times_are_measured(gpu_check):
    errors = gpu_check.accuracy("cpu").set_index("what")["value"]
    assert errors["error of the loss"].max() <= LOSS[torch.float32]
    assert errors["error of the gradient"].max() <= GRADIENT[torch.float32]
    settings = gpu_check.measure.Settings(
        sizes=(100,), threads=(1,), rounds=1, sample_seconds=0.001, budget=0.1, algorithms=("cross_entropy", "pivot")
    )
    assert (gpu_check.times(settings)["value"] > 0).all()

"""Checks the losses on a GPU and prints a report of about twenty lines to send in: python scripts/gpu_check.py

It runs the tests marked gpu, compares loss and gradient with float64 on the CPU, and times the losses next to
cross-entropy. The numbers go to runs/gpu/DEVICE.csv. Without a GPU it says so and ends with the code 2.
"""

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import torch

from smooth_topk import smooth_topk_loss
from smooth_topk.study import measure
from smooth_topk.study.measure.errors import grid_scores, largest_relative_error, value_and_gradient
from smooth_topk.study.records.files import make_writable_folder, write_whole
from smooth_topk.study.records.machine import describe_machine

ROOT = Path(__file__).resolve().parents[1]
SIZES = ((1, 10), (5, 100), (5, 1000), (10, 1000), (20, 1000), (50, 1000))
TAUS = (1.0, 0.1, 1e-3)


def main() -> int:
    if not torch.cuda.is_available():
        print(f"gpu_check.py needs a CUDA GPU, and torch {torch.__version__} finds none here.", file=sys.stderr)
        return 2
    machine = describe_machine("cuda")
    table = pd.concat(
        [run_tests(), accuracy("cuda"), times(measure.Settings(device="cuda", sizes=(100, 1000, 10_000)))]
    )
    name = re.sub(r"[^a-z0-9]+", "-", machine["device"].lower()).strip("-")
    path = make_writable_folder(ROOT / "runs" / "gpu") / f"{name}.csv"
    write_whole(path, table.assign(**machine).to_csv(index=False).encode())
    print("\n".join(f"{key}: {value}" for key, value in machine.items()))
    print(table.to_string(index=False, float_format="{:.3g}".format))
    print(f"The file is {path.relative_to(ROOT)}.")
    return int(table.loc[table["what"] == "tests that failed", "value"].sum() > 0)


def run_tests() -> pd.DataFrame:
    """How many of the tests marked gpu passed, failed and were skipped."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "--ignore=tests/study",
        "--ignore=tests/browser",
        "tests",
    ]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    found = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|error)", printed)}
    failed = found.get("failed", 0) + found.get("error", 0) + (not found)  # no summary: pytest itself failed
    counts = {"tests that passed": found.get("passed", 0), "tests that failed": failed}
    return pd.DataFrame([{"what": what, "value": value} for what, value in counts.items()])


def accuracy(device: str) -> pd.DataFrame:
    """The largest errors of loss and gradient in float32 on the device, relative to float64 on the CPU, by k and n."""
    rows = []
    for k, n in SIZES:
        scores, labels = grid_scores(k, n)
        worst = {"loss": 0.0, "gradient": 0.0}
        for tau, scale in product(TAUS, (1.0, 30.0)):
            scaled = scale * scores
            truth = value_and_gradient(_losses, scaled.double(), labels, k=k, tau=tau)
            found = value_and_gradient(_losses, scaled.to(device), labels.to(device), k=k, tau=tau)
            losses = truth[0] > 1e-6  # below, only the size of a loss matters
            errors = (
                largest_relative_error(found[0].cpu()[losses, None], truth[0][losses, None]) if losses.any() else 0.0,
                largest_relative_error(found[1].cpu(), truth[1]),
            )
            worst = {name: max(worst[name], error) for name, error in zip(worst, errors, strict=True)}
        rows += [{"what": f"error of the {name}", "k": k, "n": n, "value": error} for name, error in worst.items()]
    return pd.DataFrame(rows)


def times(settings: measure.Settings) -> pd.DataFrame:
    """Forward and backward pass as multiples of the time of cross-entropy."""
    table = measure.measure_loss(settings)
    table = table[(table["tau"] == 1) & (table["algorithm"] != "cross_entropy")]
    return pd.DataFrame(
        {"what": "time of " + table["algorithm"], "k": table["k"], "n": table["n"], "value": table["ratio"]}
    )


def _losses(scores: torch.Tensor, labels: torch.Tensor, **options: float) -> torch.Tensor:
    return smooth_topk_loss(scores, labels, reduction="none", **options)


if __name__ == "__main__":
    sys.exit(main())

"""Measures what the losses cost and how exact they are.

    python scripts/benchmark.py                       everything, about 12 minutes on 2 quiet cores, into runs/benchmark
    python scripts/benchmark.py --quick               a first look within a minute
    python scripts/benchmark.py --only loss memory    some sections
    python scripts/benchmark.py --device cuda         on a GPU
    python scripts/benchmark.py --publish             into book/results, which the book and the README show

    forward, backward   Tables 3 and 4 of the paper            speed_forward, speed_backward
    loss                both, by threads and tau, with errors   speed_loss, speed_exponents
    cases               small calls and k up to 200            speed_cases
    memory              peak of forward and backward            speed_memory
    k_sweep             k from 1 to 200 at n = 1,000            speed_k_sweep, speed_exponents
    training_step       three networks                          speed_training_step
    peers               losses of other packages                speed_peers
    linear              classifier and loss, 50,000 classes     speed_linear
    family              the losses that chapter 15 compares     family_cost
    stability           Table 5 with errors, real scores        stability
    accuracy            the worst error of every algorithm      accuracy

A file has the device in its name, such as speed_loss-cpu.csv; of those in book/results, the files of a CPU have none.
Functions take turns, medians count, and samples that other processes disturbed are dropped and counted. Every section
writes its own file when it is done: a stopped benchmark keeps what it has, and --only measures the rest.
"""

import argparse
import re
import time
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from tqdm import tqdm

from smooth_topk.study import measure
from smooth_topk.study.measure.family_cost import measure_family
from smooth_topk.study.measure.linear_loss import measure_linear
from smooth_topk.study.measure.training_step import measure_training_step
from smooth_topk.study.records.files import make_writable_folder, write_whole
from smooth_topk.study.records.imagenet_scores import read_scores
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import published_folder, runs_folder

QUICK = measure.Settings(
    sizes=(100, 1000, 10_000), paper_sizes=(100, 1000), peer_sizes=(1000,), large=10_000,
    ks=(1, 5, 20), cases=((128, 1000, 5), (256, 100, 50)), taus=(1.0,), threads=measure.Settings.threads[-1:],
    models=("small",), rounds=3, sample_seconds=0.03, budget=1.0,
    algorithms=("cross_entropy", "summation", "divide_and_conquer", "divide_and_conquer_autograd", "pivot",
                "fused_numba", "fused_triton"),
)  # fmt: skip
QUICK_SECONDS = 40  # after which --quick starts no further section
TIMED = {  # what matters most first
    "loss": measure.measure_loss,
    "cases": measure.measure_cases,
    "memory": measure.measure_memory,
    "forward": measure.measure_forward,
    "backward": measure.measure_backward,
    "k_sweep": measure.measure_k_sweep,
    "training_step": measure_training_step,
    "peers": measure.measure_peers,
    "linear": measure_linear,
    "family": measure_family,
}
SECTIONS = (*TIMED, "stability", "accuracy")
HIDDEN = ("date", "profile", "low", "high", "direction")  # columns that are not printed, like the machine's


def main(arguments: list[str] | None = None) -> int:
    options = read_options(arguments)
    settings = replace(QUICK if options.quick else measure.Settings(), device=options.device)
    folder = make_writable_folder(published_folder() if options.publish else runs_folder("quick").parent / "benchmark")
    date, profile = datetime.now().astimezone().date().isoformat(), "quick" if options.quick else "full"
    common = describe_machine(options.device) | {"date": date, "profile": profile}
    ending = file_ending(common, options.publish)
    say_what_is_missing(options.device, options.quick)
    started, tables = time.monotonic(), {}
    for name in options.only or SECTIONS:
        if options.quick and not options.only and time.monotonic() - started > QUICK_SECONDS:
            print(f"-- {name} is skipped, it does not fit into the minute: --quick --only {name} measures it.")
            continue
        table = run_section(name, replace(settings, track=partial(tqdm, desc=name)), options.quick)
        if table is not None:
            tables[name] = table
            save(name, table.assign(**common), folder, ending)
            print(f"\n== {name}\n{shown(table).to_string(index=False, float_format='{:.3g}'.format)}")
    if fits := exponents(tables):
        table = pd.concat(fits)
        print(f"\n== exponents: time per sample grows as n^exponent, as k^exponent\n{table.to_string(index=False)}")
        save("exponents", table.assign(**common), folder, ending)
    print(f"\nThe files are in {folder}.")
    return 0


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds, nothing compiled")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION")
    parser.add_argument("--publish", action="store_true", help="write to book/results, not to runs/benchmark")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", options.device):
        parser.error(f"--device must be cpu, cuda or cuda:NUMBER, got {options.device!r}.")
    number = int(options.device.partition(":")[2] or 0)
    if options.device != "cpu" and number >= (torch.cuda.device_count() if torch.cuda.is_available() else 0):
        parser.error(f"--device {options.device}: torch finds no such CUDA GPU here.")
    if options.publish and options.quick:
        parser.error("--publish records what was measured in full: leave --quick out.")
    return options


def file_ending(machine: dict[str, str], publish: bool) -> str:
    """Returns what names the device in a file; nothing for published files of a CPU, which book and README show.

    Example:
        >>> file_ending({"device": "NVIDIA A100-SXM4-80GB"}, publish=True)
        '-nvidia-a100-sxm4-80gb'
    """
    if publish and machine["device"] == "cpu":
        return ""
    return "-" + re.sub(r"[^a-z0-9]+", "-", machine["device"].lower()).strip("-")


def say_what_is_missing(device: str, quick: bool) -> None:
    missing = measure.find_contenders(device)[1] | measure.find_peers(device)[1]
    if quick:
        missing["pivot_compiled"] = "--quick compiles nothing"
    for name, reason in missing.items():
        print(f"-- {name} is skipped: {reason}.")


def run_section(name: str, settings: measure.Settings, quick: bool) -> pd.DataFrame | None:
    if name in TIMED:
        return TIMED[name](settings)
    if name == "accuracy":
        if quick:
            grid = measure.accuracy_grid(track=settings.track, sizes=((1, 2), (3, 40)), taus=(1.0, 0.1, 1e-4))
        else:
            grid = measure.accuracy_grid(track=settings.track)
        return measure.worst_errors(grid)
    recorded = read_scores()
    if recorded is None:
        print("-- stability is skipped: book/results/imagenet_scores.npz is missing (scripts/imagenet_scores.py).")
        return None
    rows = slice(4 if quick else None)
    return measure.measure_stability(recorded.scores[rows], recorded.labels[rows], track=settings.track)


def save(section: str, table: pd.DataFrame, folder: Path, ending: str) -> None:
    name = {"family": "family_cost"}.get(section, f"speed_{section}" if section in (*TIMED, "exponents") else section)
    write_whole(folder / f"{name}{ending}.csv", table.to_csv(index=False, float_format="%.6g").encode())


def exponents(tables: dict[str, pd.DataFrame]) -> list[pd.DataFrame]:
    """Fits how the time grows with the number of classes and with k, where both sections were measured."""
    if not {"loss", "k_sweep"} <= set(tables):
        return []
    loss = tables["loss"]
    loss = loss[(loss["tau"] == 1) & (loss["threads"] == loss["threads"].max())]
    return [measure.fit_exponents(loss, "n"), measure.fit_exponents(tables["k_sweep"], "k")]


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The columns that differ from run to run; of the errors, the worst row of every algorithm."""
    if {"loss_error_at", "gradient_error_at"} <= set(table):
        return table.loc[table.groupby(["algorithm", "dtype"])["gradient_error"].idxmax()].iloc[:, :8]
    return table[[name for name in table if name not in HIDDEN]]

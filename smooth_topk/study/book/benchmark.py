"""Measures what the losses cost and how exact they are, and records it in book/results.

    python scripts/benchmark.py                       everything, about 12 minutes on 2 quiet cores
    python scripts/benchmark.py --quick               a first look within a minute, written to runs/quick/benchmark
    python scripts/benchmark.py --only loss memory    some sections
    python scripts/benchmark.py --device cuda         on a GPU

    forward, backward   Tables 3 and 4 of the paper            speed_forward.csv, speed_backward.csv
    loss                both, by threads and tau, with errors   speed_loss.csv, speed_exponents.csv, speed.svg
    cases               small calls and k up to 200            speed_cases.csv
    memory              peak of forward and backward            speed_memory.csv
    k_sweep             k from 1 to 200 at n = 1,000            speed_k_sweep.csv, speed_exponents.csv
    training_step       three networks                          speed_training_step.csv
    peers               losses of other packages                speed_peers.csv
    family              the losses that chapter 15 compares     family_cost.csv
    stability           Table 5 with errors, real scores        stability.csv
    accuracy            the worst error of every algorithm      accuracy.csv
    runner              overhead per step and per run           runner_overhead.csv

Functions take turns, medians count, and samples that other processes disturbed are dropped and counted. Every section
writes its own file when it is done: a stopped benchmark keeps what it has, and --only measures the rest.
"""

import argparse
import re
import sys
import time
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from tqdm import tqdm

from smooth_topk.study import measure
from smooth_topk.study.book.pictures import draw_readme_pictures, write_readme_speed
from smooth_topk.study.measure.family_cost import measure_family
from smooth_topk.study.measure.runner import measure_runner
from smooth_topk.study.measure.training_step import measure_training_step
from smooth_topk.study.records.endings import as_sentence, exit_code, why
from smooth_topk.study.records.files import make_writable_folder, write_whole
from smooth_topk.study.records.imagenet_scores import read_scores
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import path_option, published_folder, runs_folder

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
    "family": measure_family,
}
SECTIONS = (*TIMED, "stability", "accuracy", "runner")
FILES = {"runner": "runner_overhead.csv", "family": "family_cost.csv"}


def main(arguments: list[str] | None = None) -> int:
    options = read_options(arguments)
    settings = QUICK if options.quick else measure.Settings()
    settings = replace(settings, device=options.device)
    try:
        folder = make_writable_folder(options.output or default_folder(options.quick))
    except OSError as error:
        print(f"!! {error}", file=sys.stderr)
        return 2
    common = describe_machine(options.device) | {
        "date": datetime.now().astimezone().date().isoformat(),
        "profile": "quick" if options.quick else "full",
    }
    started = time.monotonic()
    try:
        say_what_is_missing(options.device, options.quick)
        for name in options.only or SECTIONS:
            late = time.monotonic() - started > QUICK_SECONDS
            if options.quick and not options.only and (late or name == "runner"):  # its grids take a minute alone
                print(f"-- {name} is skipped, it does not fit into the minute: --quick --only {name} measures it.")
                continue
            table = run_section(name, replace(settings, track=partial(tqdm, desc=name)), options.quick)
            if table is not None:
                save(table.assign(**common), folder / file_name(name))
        summarise(folder, common)
    except KeyboardInterrupt as stopped:
        print(f"\n!! {why(stopped)}; the sections that are done are in {folder}.", file=sys.stderr)
        return exit_code(stopped)
    except (OSError, ValueError) as error:  # a full disk, or recorded scores that cannot be read
        print(f"\n!! {as_sentence(error)}", file=sys.stderr)
        return 1
    return 0


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds, nothing compiled")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION")
    parser.add_argument("--output", type=path_option, help="folder of the results (default: book/results)")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", options.device):
        parser.error(f"--device must be cpu, cuda or cuda:NUMBER, got {options.device!r}.")
    number = int(options.device.partition(":")[2] or 0)
    if options.device != "cpu" and number >= (torch.cuda.device_count() if torch.cuda.is_available() else 0):
        parser.error(f"--device {options.device}: torch finds no such CUDA GPU here.")
    return options


def default_folder(quick: bool) -> Path:
    return runs_folder("quick") / "benchmark" if quick else published_folder()


def say_what_is_missing(device: str, quick: bool) -> None:
    missing = measure.find_contenders(device)[1] | measure.find_peers(device)[1]
    if quick:
        missing["pivot_compiled"] = "--quick compiles nothing"
    for name, reason in missing.items():
        print(f"-- {name} is skipped: {reason}.")


def run_section(name: str, settings: measure.Settings, quick: bool) -> pd.DataFrame | None:
    if name in TIMED:
        return TIMED[name](settings)
    if name == "runner":
        return measure_runner(**({"rounds": 3, "grid_rounds": 1} if quick else {}), track=settings.track)
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


def file_name(section: str) -> str:
    return FILES.get(section) or (f"speed_{section}.csv" if section in TIMED else f"{section}.csv")


def save(table: pd.DataFrame, path: Path) -> None:
    write_whole(path, table.to_csv(index=False, float_format="%.6g").encode())


def summarise(folder: Path, common: dict) -> None:
    """Prints every table of the folder, fits the exponents, draws README's pictures and writes its table of speed."""
    tables = {name: pd.read_csv(folder / file_name(name)) for name in SECTIONS if (folder / file_name(name)).exists()}
    for name, table in tables.items():
        print(f"\n== {name}\n{shown(table).to_string(index=False, float_format='{:.3g}'.format)}")
    fits = []
    if "loss" in tables:
        first = tables["loss"][tables["loss"]["tau"] == 1]
        first = first[first["threads"] == first["threads"].max()]
        fits.append(measure.fit_exponents(first, "n"))
    if "k_sweep" in tables:
        fits.append(measure.fit_exponents(tables["k_sweep"], "k"))
    if fits:
        exponents = pd.concat(fits)
        print(f"\n== exponents: time per sample grows as n^exponent, as k^exponent\n{exponents.to_string(index=False)}")
        save(exponents.assign(**common), folder / "speed_exponents.csv")
    draw_readme_pictures(folder, folder)
    if folder == published_folder():
        write_readme_speed()


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The columns that differ from run to run, without the machine's."""
    if {"loss_error_at", "gradient_error_at"} <= set(table):
        return table.loc[table.groupby(["algorithm", "dtype"])["gradient_error"].idxmax()].iloc[:, :8]
    hidden = {*describe_machine(), "date", "profile", "low", "high", "direction"}
    return table[[name for name in table if name not in hidden]]

"""Runs of a second for the tests of the engine: six classes of 8 x 8 images in the layout of the CIFAR-100 cache."""

import hashlib
import json
import multiprocessing
import os
import signal
import time

import numpy as np
import torch
from pandas.testing import assert_frame_equal

from smooth_topk.study.data import cifar100
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.runs import read_epochs, read_runs
from smooth_topk.study.training.fit import fit
from smooth_topk.study.training.loop import Run

CLASSES, PER_CLASS = 6, {"train": 50 + 20, "test": 20}  # 50 of each class are held out for validation
TIMES = ["seconds", "images_per_second", "date", "resumes", "processes"]  # what may differ between equal runs
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["smooth_topk.study.training.fit"])  # else every child spends seconds importing torch


def small_config(**changes) -> RunConfig:
    """A run of 3 epochs of 7 steps."""
    small = {"dataset": "cifar100", "epochs": 3, "batch_size": 16, "learning_rate": 0.05, "noise_level": 0.2}
    return RunConfig(**small | changes)


def write_small_data(folder) -> str:
    """Writes images whose brightness tells their class, under noise; returns the data folder."""
    random = np.random.default_rng(0)
    target = folder / "cifar100"
    target.mkdir(parents=True)
    contents = {}
    for part, per_class in PER_CLASS.items():
        labels = random.permutation(np.arange(CLASSES * per_class) % CLASSES).astype(np.uint8)
        images = random.normal(40 + 30 * labels[:, None, None, None], 40, (len(labels), 3, 8, 8)).clip(0, 255)
        contents |= {f"{part}_images.npy": images.astype(np.uint8), f"{part}_fine.npy": labels}
        contents[f"{part}_coarse.npy"] = labels // 3
    for name, array in contents.items():
        np.save(target / name, array)
    names = {"fine": list("abcdef"), "coarse": ["x", "y"], "fine_to_coarse": [0, 0, 0, 1, 1, 1]}
    (target / cifar100.NAMES).write_text(json.dumps(names))
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in target.iterdir()}
    (target / cifar100.MANIFEST).write_text(json.dumps({"sha256": sums}))
    return str(folder)


def fit_small(folder, data, config=None, **options) -> dict:
    return fit(
        config or small_config(),
        records_folder=folder / "results",
        checkpoints_folder=folder / "runs",
        data_folder=data,
        progress=False,
        **options,
    )


def results(folder):
    """Everything in the records that equal runs must share to the last bit, in the order of the run ids."""
    runs, epochs = read_runs(folder / "results"), read_epochs(folder / "results")
    runs = runs.drop(columns=[*TIMES, "commit", "sources"]).sort_values("run_id", ignore_index=True)
    epochs = epochs.drop(columns=TIMES, errors="ignore").sort_values(["run_id", "epoch"], ignore_index=True)
    return runs, epochs


def best_weights(folder, config=None) -> dict:
    return torch.load(folder / "runs" / (config or small_config()).run_id / "best.pt", weights_only=True)


def assert_same_results(folder, reference):
    for found, expected in zip(results(folder), results(reference), strict=True):
        assert_frame_equal(found, expected, check_exact=True)


def assert_same_weights(folder, reference):
    found, expected = best_weights(folder), best_weights(reference)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def start_fit(
    folder, data, config=None, *, die_at_write=None, seconds_per_step=0.0, **options
) -> multiprocessing.Process:
    """Starts `fit_small` in a process of its own.

    Args:
        die_at_write: the number of the fsync at which the process kills itself.
        seconds_per_step: a pause in every step, so that a run lasts long enough to be hit.
    """
    arguments = (folder, data, config, die_at_write, seconds_per_step, options)
    process = processes.Process(target=_fit_or_die, args=arguments)
    process.start()
    return process


def _fit_or_die(folder, data, config, die_at_write, seconds_per_step, options):
    torch.set_num_threads(1)
    real_step = Run._step

    def step(*arguments):
        time.sleep(seconds_per_step)
        return real_step(*arguments)

    Run._step = step
    real_fsync, writes = os.fsync, iter(range(1, 10**6))

    def fsync(descriptor):
        if next(writes) == die_at_write:
            os.kill(os.getpid(), signal.SIGKILL)
        real_fsync(descriptor)

    os.fsync = fsync
    fit_small(folder, data, config, **options)

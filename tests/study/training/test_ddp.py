"""Several processes in one run, by torchrun on CPUs with gloo: the same run as with one process."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from small_runs import best_weights, fit_small, processes, small_config
from torch import nn

from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.records.runs import read_epochs, read_runs
from smooth_topk.study.training import loop as run_module
from smooth_topk.study.training.evaluation import evaluate
from smooth_topk.study.training.fit import make_fabric
from smooth_topk.study.training.shared_batch_norm import share_batch_norm

# Weights are float64, but Fabric hands the scores to the loss in float32: 21 steps feed its rounding back.
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}
# Sums over processes in another order, in float64, within one step.
EXACT = {"rtol": 1e-12, "atol": 1e-12}
CONFIG = small_config(loss="smooth", tau=0.5, precision="64-true")


@pytest.fixture(scope="module")
def alone(tmp_path_factory, data):
    """The folder of the run of one process."""
    folder = tmp_path_factory.mktemp("alone")
    fit_small(folder, data, CONFIG, keep_best=True)
    return folder


def on_processes(count, target, *arguments):
    """Calls target(*arguments) in so many processes that find the variables which torchrun sets.

    As with torchrun, the process that starts them holds the store at which they meet, from before they start.
    """
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    members = [(rank, count, store.port, target, arguments) for rank in range(count)]
    group = [processes.Process(target=_member, args=member) for member in members]
    for process in group:
        process.start()
    for process in group:
        process.join()
    return [process.exitcode for process in group]


def _member(rank, count, port, target, arguments):
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip
    target(*arguments)


def torchrun(folder, data, count, *options):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    command += ["-m", "smooth_topk.study.training", json.dumps(CONFIG.to_dict())]
    folders = ["--records", folder / "results", "--checkpoints", folder / "runs", "--data", data, "--keep-best"]
    log = open(folder / "log.txt", "a")  # noqa: SIM115 - the process keeps it
    return subprocess.Popen(
        [*command, *folders, *options], stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


def assert_same_run(folder, reference, processes_at_the_end):
    found, expected = read_runs(folder / "results").iloc[0], read_runs(reference / "results").iloc[0]
    assert found["processes"] == processes_at_the_end
    exact = [
        "run_id",
        "best_epoch",
        "train_images",
        "parameters",
        *(name for name in found.dropna().index if "_top" in name),
    ]
    assert found[exact].tolist() == expected[exact].tolist()
    epochs, expected = read_epochs(folder / "results"), read_epochs(reference / "results")
    exact = [name for name in epochs if "_top" in name or name in ("epoch", "learning_rate", "tau")]
    assert epochs[exact].equals(expected[exact])
    np.testing.assert_allclose(epochs["train_loss"], expected["train_loss"], **ROUNDING)
    np.testing.assert_allclose(epochs["validation_loss"], expected["validation_loss"], **ROUNDING)
    found, expected = best_weights(folder, CONFIG), best_weights(reference, CONFIG)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], **ROUNDING)


@pytest.mark.slow
def test_torchrun_with_two_processes_gives_the_record_and_the_weights_of_one(alone, data, tmp_path):
    assert torchrun(tmp_path, data, 2).wait() == 0, (tmp_path / "log.txt").read_text()
    assert_same_run(tmp_path, alone, 2)


def _fit(folder, data, config, options):
    fit_small(folder, data, config, **options)


@pytest.mark.slow
@pytest.mark.parametrize("count", [4])
def test_any_number_of_processes_gives_the_run_of_one(alone, data, tmp_path, count):
    assert on_processes(count, _fit, tmp_path, data, CONFIG, {"keep_best": True}) == [0] * count
    assert_same_run(tmp_path, alone, count)


def ranks(agent, count):
    """The processes that torchrun started, by their rank; not what they start, which has their variables, too.

    A process that begins or ends has no variables that can be read, so it is asked again while torchrun lives.
    """
    found = {}
    while len(found) < count and agent.poll() is None:
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(agent.pid).children():
                with contextlib.suppress(psutil.Error, KeyError):
                    found[child.environ()["RANK"]] = child
    return found


def killed(folder, data, victim):
    """Kills one of two processes at the first checkpoint; returns whether that was before the run was recorded."""
    agent = torchrun(folder, data, 2, "--checkpoint-minutes", "0")
    members = ranks(agent, 2)
    assert set(members) == {"0", "1"}, (folder / "log.txt").read_text()
    while agent.poll() is None and not list((folder / "runs").glob("*/checkpoint-*.pt")):
        time.sleep(0.001)
    with contextlib.suppress(psutil.Error):
        members[str(victim)].kill()
    agent.wait()
    _, left = psutil.wait_procs(members.values(), timeout=300)
    assert not left, "no process of the run stays behind"
    return read_runs(folder / "results").empty


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "then"), [(0, 2), (1, 1)], ids=["the first, then two again", "the second, then one"]
)
def test_killing_one_process_ends_the_run_and_it_continues_with_any_number(alone, data, tmp_path, victim, then):
    folders = [tmp_path / str(attempt) for attempt in range(3)]
    for folder in folders:
        folder.mkdir()
        if killed(folder, data, victim):
            break
    assert on_processes(then, _fit, folder, data, CONFIG, {"keep_best": True}) == [0] * then
    assert read_runs(folder / "results")["resumes"].item() == 1
    assert_same_run(folder, alone, then)


def _stop_within_an_epoch(folder, data):
    run_module.CHECK_EVERY = 2
    real, steps = run_module.Run._step, iter(range(100))

    def step(run, *arguments):
        if next(steps) == 9 and run.fabric.global_rank == 1:
            run.stop.received = "SIGTERM"  # one process is asked, all must stop
        return real(run, *arguments)

    run_module.Run._step = step
    with pytest.raises(KeyboardInterrupt):
        fit_small(folder, data, CONFIG)


@pytest.mark.slow
def test_a_run_stopped_within_an_epoch_on_two_processes_goes_on_with_one(alone, data, tmp_path):
    assert on_processes(2, _stop_within_an_epoch, tmp_path, data) == [0, 0]
    fit_small(tmp_path, data, CONFIG, keep_best=True)
    assert_same_run(tmp_path, alone, 1)


def test_a_batch_that_the_processes_cannot_share_equally_is_refused(data, tmp_path):
    assert on_processes(3, _fit_refused, tmp_path, data) == [0, 0, 0]


def _fit_refused(folder, data):
    with pytest.raises(ValueError, match="global batch of 16 images cannot be shared equally by 3 processes"):
        fit_small(folder, data, CONFIG)


def _write_from_the_first_only(folder, data):
    if int(os.environ["RANK"]) > 0:
        run_module.save_checkpoint = None
        Path.mkdir = None
    fit_small(folder, data, CONFIG)


@pytest.mark.slow
def test_only_the_first_process_writes(data, tmp_path):
    assert on_processes(2, _write_from_the_first_only, tmp_path, data) == [0, 0]
    assert len(read_runs(tmp_path / "results")) == 1


def _evaluate_uneven(folder, data):
    fabric = make_fabric(CONFIG)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 6)).double()
    share = {"rank": fabric.global_rank, "world_size": fabric.world_size}
    batches = [(images[:50], labels[:50]) for images, labels in load_data(CONFIG, data).test_batches()][:1]
    uneven = [batches[0]] if fabric.global_rank == 0 else [(batches[0][0][:7], batches[0][1][:7])] * 2
    found = evaluate(network, uneven, fabric=fabric)
    shared = evaluate(network, load_data(CONFIG, data).test_batches(**share), fabric=fabric)
    nothing = evaluate(network, uneven if fabric.global_rank == 0 else [], fabric=fabric)
    torch.save([found, shared, nothing], folder / f"{fabric.global_rank}.pt")


def test_accuracies_count_every_image_once_whatever_the_shares(data, tmp_path):
    assert on_processes(2, _evaluate_uneven, tmp_path, data) == [0, 0]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first == second
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 6)).double()
    data = load_data(CONFIG, data)
    images, labels = next(data.test_batches())
    images, labels = images[:50], labels[:50]
    pooled = [(images, labels), (images[:7], labels[:7]), (images[:7], labels[:7])]
    assert first[0] == evaluate(network, pooled)
    assert first[1] == evaluate(network, data.test_batches())
    assert first[2] == evaluate(network, pooled[:1])


def _normalise(folder):
    fabric = make_fabric(CONFIG)
    network, images = normalising_network()
    share_batch_norm(network, fabric.device)
    network(images[fabric.global_rank :: 2]).square().sum().backward()
    network(images[fabric.global_rank :: 2])
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    for gradient in gradients.values():
        torch.distributed.all_reduce(gradient)
    torch.save((gradients, network.state_dict()), folder / f"{fabric.global_rank}.pt")


def normalising_network():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4)).double()
    return network, torch.randn(8, 3, 6, 6, dtype=torch.float64)


def test_shared_batch_normalisation_has_the_gradient_and_the_statistics_of_the_whole_batch(tmp_path):
    assert on_processes(2, _normalise, tmp_path) == [0, 0]
    network, images = normalising_network()
    network(images).square().sum().backward()
    network(images)
    for rank in range(2):
        gradients, state = torch.load(tmp_path / f"{rank}.pt")
        for name, parameter in network.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, **EXACT)
        for name, value in network.state_dict().items():
            torch.testing.assert_close(state[name], value, **EXACT)

"""What must not lose anything: a full disk, a second process, Ctrl-C, kill -9, no memory, a loss of NaN."""

import errno
import logging
import os
import signal
import time
from functools import partial

import pytest
import torch
from small_runs import assert_same_results, assert_same_weights, fit_small, small_config, start_fit

from smooth_topk.study.records import files, runs
from smooth_topk.study.records.files import LockHeldError, exclusive
from smooth_topk.study.records.runs import read_epochs, read_runs
from smooth_topk.study.training import fit as fit_module
from smooth_topk.study.training import loop
from smooth_topk.study.training.checkpoints import load_checkpoint, save_checkpoint
from smooth_topk.study.training.fit import make_fabric
from smooth_topk.study.training.interruption import StopRequest
from smooth_topk.study.training.loop import OutOfMemoryError, Run

STEPS = 120 // 16  # of an epoch of `small_config`


def assert_continues_to_the_same_end(folder, data, reference):
    fit_small(folder, data, keep_best=True)
    assert read_runs(folder / "results")["resumes"].item() > 0
    assert_same_results(folder, reference)
    assert_same_weights(folder, reference)


def failing_after(calls, function, error):
    """Returns `function`, which raises `error` from so many calls on."""
    count = iter(range(10**6))

    def call(*arguments, **options):
        if next(count) >= calls:
            raise error
        return function(*arguments, **options)

    return call


def full_disk():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_up_stops_the_run_and_it_continues_from_its_checkpoint(
    data, reference, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", failing_after(3, os.fsync, full_disk()))
        with pytest.raises(OSError, match="No space left on device"):
            fit_small(tmp_path, data, keep_best=True, checkpoint_minutes=0)
    assert read_runs(tmp_path / "results").empty
    assert_continues_to_the_same_end(tmp_path, data, reference)


def test_a_disk_that_is_full_when_the_run_is_recorded_costs_no_step(data, reference, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(runs, "write_whole", failing_after(0, runs.write_whole, full_disk()))
        with pytest.raises(OSError, match="No space left on device"):
            fit_small(tmp_path, data, checkpoint_minutes=0)
    monkeypatch.setattr(Run, "_step", None)
    assert_continues_to_the_same_end(tmp_path, data, reference)


@pytest.mark.parametrize("folder", ["results", "runs"])
def test_a_folder_that_cannot_be_written_to_is_named_before_any_training(data, tmp_path, monkeypatch, folder):
    monkeypatch.setattr(fit_module, "load_data", None)
    (tmp_path / folder).write_text("")  # a file where the folder should be
    with pytest.raises(OSError, match=folder):
        fit_small(tmp_path, data)


def test_a_second_process_on_the_same_run_is_told_who_trains_it(data, tmp_path):
    (tmp_path / "runs").mkdir()
    with (
        exclusive(tmp_path / "runs" / f"{small_config().run_id}.lock", wait=False),
        pytest.raises(LockHeldError, match=str(os.getpid())),
    ):
        fit_small(tmp_path, data)


def wait_for(path, _row):
    """What a run does at the end of an epoch that shall last until a file is there, or for five minutes."""
    deadline = time.monotonic() + 300
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_second_process_that_waits_returns_the_record_of_the_first(data, tmp_path, monkeypatch):
    first = start_fit(tmp_path, data, on_epoch=partial(wait_for, tmp_path / "second"))
    lock = tmp_path / "runs" / f"{small_config().run_id}.lock"
    while first.is_alive() and not (lock.exists() and lock.read_text()):
        time.sleep(0.005)
    monkeypatch.setattr(fit_module, "load_data", None)
    monkeypatch.setattr(fit_module.logger, "warning", lambda *said: (tmp_path / "second").touch())
    assert fit_small(tmp_path, data, wait=True)["status"] == "finished"
    first.join()
    assert first.exitcode == 0
    assert len(read_runs(tmp_path / "results")) == 1


def test_what_a_process_left_that_was_killed_after_recording_is_removed(data, tmp_path):
    config = small_config(epochs=1)
    fit_small(tmp_path, data, config)
    save_checkpoint(tmp_path / "runs" / config.run_id, {"epoch": 0})
    fit_small(tmp_path, data, config)
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [lambda state: state.pop("optimizer"), lambda state: state["network"].popitem()],
    ids=["a part is missing", "another network"],
)
def test_a_checkpoint_of_another_version_is_refused(data, tmp_path, monkeypatch, change):
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_evaluate", raise_as_a_gpu)
        with pytest.raises(torch.OutOfMemoryError):
            fit_small(tmp_path, data, checkpoint_minutes=0)
    folder = tmp_path / "runs" / small_config().run_id
    state = load_checkpoint(folder)
    change(state)
    save_checkpoint(folder, state)
    with pytest.raises(ValueError, match=str(folder)):
        fit_small(tmp_path, data)


def test_half_precision_on_a_cpu_is_refused_because_it_would_run_as_bfloat16(data, tmp_path):
    with pytest.raises(ValueError, match="16-mixed"):
        fit_small(tmp_path, data, small_config(precision="16-mixed"))
    fabric = make_fabric(small_config(precision="bf16-mixed"))
    with pytest.raises(ValueError, match="bf16-mixed"):
        fit_small(tmp_path, data, fabric=fabric)
    assert read_runs(tmp_path / "results").empty


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 9, 14])
def test_ctrl_c_and_sigterm_stop_after_the_step_with_a_checkpoint(data, reference, tmp_path, monkeypatch, number, step):
    steps, real = iter(range(1, 1000)), Run._step

    def interrupted_step(*arguments):
        real(*arguments)
        if next(steps) == step:
            signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_step", interrupted_step)
        with pytest.raises(KeyboardInterrupt) as stopped:
            fit_small(tmp_path, data)
    assert stopped.value.code == 128 + number
    assert next(steps) == step + 1, "no step is done after the signal"
    left = []
    monkeypatch.setattr(Run, "_step", lambda *arguments: left.append(1) or real(*arguments))
    assert_continues_to_the_same_end(tmp_path, data, reference)
    assert len(left) == 3 * STEPS - step


def test_ctrl_c_during_validation_and_during_the_test_loses_no_step(data, reference, tmp_path, monkeypatch):
    real, calls = Run._evaluate, iter(range(1, 1000))

    def interrupted(*arguments, **options):
        if next(calls) in (2, 6):
            signal.raise_signal(signal.SIGINT)
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_evaluate", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt, match="SIGINT"):
                fit_small(tmp_path, data)
    monkeypatch.setattr(Run, "_step", None)
    assert_continues_to_the_same_end(tmp_path, data, reference)


def test_a_second_signal_interrupts_at_once_with_its_own_exit_code():
    with StopRequest():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt) as interrupt:
            signal.raise_signal(signal.SIGTERM)
    assert interrupt.value.code == 143


def test_the_handlers_of_before_are_back_after_a_run(data, tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    fit_small(tmp_path, data, small_config(epochs=1))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def allocate_too_much(*_):
    torch.empty(2**60, dtype=torch.uint8)  # the real error of the CPU's allocator


def raise_as_a_gpu(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


@pytest.mark.parametrize("fail", [allocate_too_much, raise_as_a_gpu])
def test_a_step_without_memory_says_so_and_the_run_continues(data, reference, tmp_path, monkeypatch, fail):
    with monkeypatch.context() as patch:
        steps, real = iter(range(1000)), Run._step
        patch.setattr(Run, "_step", lambda *given: fail() if next(steps) == STEPS + 2 else real(*given))
        with pytest.raises(OutOfMemoryError, match="16 images"):
            fit_small(tmp_path, data, checkpoint_minutes=0)
    assert_continues_to_the_same_end(tmp_path, data, reference)


def test_an_evaluation_without_memory_says_so_and_the_run_continues(data, reference, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "evaluate", failing_after(1, loop.evaluate, MemoryError()))
        with pytest.raises(OutOfMemoryError):
            fit_small(tmp_path, data, checkpoint_minutes=0)
    assert_continues_to_the_same_end(tmp_path, data, reference)


def test_another_error_in_a_step_is_not_taken_for_a_lack_of_memory(data, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Run, "_step", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        fit_small(tmp_path, data)


def test_a_loss_of_nan_ends_the_run_as_diverged_without_results(data, tmp_path, caplog):
    config = small_config(learning_rate=1e30, loss="smooth", schedule="steps", epochs=4)
    with caplog.at_level(logging.WARNING):
        assert fit_small(tmp_path, data, config)["status"] == "diverged"
    assert config.run_id in caplog.text
    assert read_runs(tmp_path / "results")["test_top5"].isna().all()
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_run_that_diverges_later_keeps_the_epochs_before_and_is_not_tried_again(data, tmp_path, monkeypatch):
    steps, real = iter(range(1000)), Run._step

    def step(run, *arguments):
        real(run, *arguments)
        if next(steps) == STEPS + 3:
            run.unread[-1] = (run.unread[-1][0] * float("nan"), run.unread[-1][1])

    monkeypatch.setattr(Run, "_step", step)
    assert fit_small(tmp_path, data)["status"] == "diverged"
    assert read_epochs(tmp_path / "results")["epoch"].tolist() == [0]
    done = next(steps)
    assert done <= 2 * STEPS, "no epoch begins after the loss of NaN"
    assert fit_small(tmp_path, data)["status"] == "diverged"
    assert next(steps) == done + 1, "a recorded run is not trained again"


def test_two_processes_that_start_at_once_train_the_run_once(data, tmp_path):
    both = [start_fit(tmp_path, data, wait=True) for _ in range(2)]
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert read_runs(tmp_path / "results")["resumes"].tolist() == [0]
    assert len(read_epochs(tmp_path / "results")) == 3

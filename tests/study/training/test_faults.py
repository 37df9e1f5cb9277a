"""What must not lose anything: a full disk, a read-only folder, a second process, Ctrl-C, no memory, a loss of NaN."""

import contextlib
import errno
import logging
import os
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from small_runs import assert_same_results, assert_same_weights, fit_small, processes, small_config, start_fit

from smooth_topk.study.records import files, runs
from smooth_topk.study.records.endings import exit_code
from smooth_topk.study.records.files import LockHeldError, exclusive
from smooth_topk.study.records.runs import read_epochs, read_runs
from smooth_topk.study.training import fit as fit_module
from smooth_topk.study.training import loop
from smooth_topk.study.training.checkpoints import load_checkpoint, save_checkpoint
from smooth_topk.study.training.fit import make_fabric
from smooth_topk.study.training.interruption import StopRequest
from smooth_topk.study.training.loop import OutOfMemoryError, Run

NOBODY = 65534


def assert_goes_on_to_the_same_end(folder, data, reference):
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


@pytest.mark.parametrize("calls", [0, 1, 3, 5], ids=["first checkpoint", "its name", "second", "third"])
def test_a_disk_that_fills_up_stops_the_run_with_a_clear_sentence(data, reference, tmp_path, monkeypatch, calls):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", failing_after(calls, os.fsync, full))
        with pytest.raises(OSError, match=r"Could not write .*: No space left on device.*start again"):
            fit_small(tmp_path, data, keep_best=True)
    assert read_runs(tmp_path / "results").empty
    if calls > 1:
        assert_goes_on_to_the_same_end(tmp_path, data, reference)
    else:
        fit_small(tmp_path, data, keep_best=True)
        assert len(read_runs(tmp_path / "results")) == 1


def test_a_disk_that_is_full_when_the_run_is_recorded_costs_no_training(data, reference, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(runs, "write_whole", failing_after(0, runs.write_whole, full))
        with pytest.raises(OSError, match="No space left on device"):
            fit_small(tmp_path, data)
    monkeypatch.setattr(Run, "_step", None)
    assert_goes_on_to_the_same_end(tmp_path, data, reference)


@pytest.mark.parametrize("folder", ["results", "runs"])
def test_a_folder_that_cannot_be_written_to_is_named_before_any_training(data, tmp_path, monkeypatch, folder):
    monkeypatch.setattr(fit_module, "load_data", None)
    # A file where the folder should be: read-only permissions do not stop an administrator, this does.
    (tmp_path / folder).write_text("")
    with pytest.raises(OSError, match=rf"Could not write .*{folder}.*make the folder writable"):
        fit_small(tmp_path, data)


@pytest.fixture
def open_folder():
    """A temporary folder that every user may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@contextlib.contextmanager
def without_privileges():
    """Permissions do not stop root: as root, another user's rights hold for a while."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


def test_a_read_only_folder_is_named_before_any_training(data, open_folder, monkeypatch):
    monkeypatch.setattr(fit_module, "load_data", None)
    fabric = make_fabric(small_config())  # imports what the other user may not read
    for name, mode in (("results", 0o777), ("runs", 0o555)):
        (open_folder / name).mkdir()
        (open_folder / name).chmod(mode)
    with without_privileges(), pytest.raises(OSError, match=r"Could not write .*runs: Permission denied"):
        fit_small(open_folder, data, fabric=fabric)


def test_a_recorded_run_is_found_where_nothing_can_be_written(data, open_folder):
    fit_small(open_folder, data, small_config(epochs=1))
    fabric = make_fabric(small_config())
    (open_folder / "runs" / small_config(epochs=1).run_id).mkdir()  # as if its checkpoints had not been removed
    for name in ("results", "runs"):
        (open_folder / name).chmod(0o555)
    with without_privileges():
        assert fit_small(open_folder, data, small_config(epochs=1), fabric=fabric)["status"] == "finished"
    for name in ("results", "runs"):
        (open_folder / name).chmod(0o755)


def test_a_recorded_run_leaves_the_checkpoints_alone_while_another_process_holds_the_lock(data, tmp_path):
    config = small_config(epochs=1)
    fit_small(tmp_path, data, config)
    checkpoint = save_checkpoint(tmp_path / "runs" / config.run_id, {"epoch": 0})
    lock = tmp_path / "runs" / f"{config.run_id}.lock"
    with exclusive(lock, wait=False):
        assert fit_small(tmp_path, data, config)["status"] == "finished"
        assert checkpoint.exists()
        assert lock.exists()
    fit_small(tmp_path, data, config)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_lock_that_is_held_says_by_whom_and_what_to_do(data, tmp_path):
    (tmp_path / "runs").mkdir()
    with (
        exclusive(tmp_path / "runs" / f"{small_config().run_id}.lock", wait=False),
        pytest.raises(
            LockHeldError,
            match=rf"held by process {os.getpid()} on .*Wait until that process ends, or stop it\. "
            r"If it no longer exists, .*delete this file and start again\.",
        ),
    ):
        fit_small(tmp_path, data)


def test_a_lock_whose_file_was_deleted_does_not_take_the_next_one_with_it(tmp_path):
    lock = tmp_path / "lock"
    with exclusive(lock, wait=False):
        lock.unlink()
        lock.write_text("process 2 on elsewhere")  # which took the free name
    assert lock.exists()


def test_what_a_killed_process_left_of_a_checkpoint_is_removed(data, tmp_path):
    folder = tmp_path / "runs" / small_config(epochs=1).run_id
    folder.mkdir(parents=True)
    (folder / ".checkpoint-00000000.pt.123.tmp").write_bytes(b"half")
    fit_small(tmp_path, data, small_config(epochs=1), keep_best=True)
    assert [path.name for path in folder.iterdir()] == ["best.pt"]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("optimizer"),
        lambda state: state["progress"].update(moon="full"),
        lambda state: state["network"].popitem(),
        lambda state: state.update(random=[{}]),
    ],
    ids=["a part is missing", "a field is new", "another network", "another random state"],
)
def test_a_checkpoint_of_another_version_is_refused_in_one_sentence(data, tmp_path, monkeypatch, change):
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_evaluate", raise_as_a_gpu)
        with pytest.raises(torch.OutOfMemoryError):
            fit_small(tmp_path, data, checkpoint_minutes=0)
    folder = tmp_path / "runs" / small_config().run_id
    state = load_checkpoint(folder)
    change(state)
    save_checkpoint(folder, state)
    with pytest.raises(
        ValueError, match=rf"The checkpoint in {folder} was written by another version .*Delete that folder"
    ):
        fit_small(tmp_path, data)


def test_keeping_the_weights_of_a_recorded_run_says_that_it_cannot(data, tmp_path, caplog):
    config = small_config(epochs=1)
    fit_small(tmp_path, data, config)
    with caplog.at_level(logging.WARNING):
        fit_small(tmp_path, data, config, keep_best=True)
    assert f"Run {config.run_id} is recorded already, so its weights are not kept" in caplog.text


def test_half_precision_on_a_cpu_is_refused_because_it_would_run_as_bfloat16(data, tmp_path):
    with pytest.raises(ValueError, match=r"precision='16-mixed' needs a GPU.*precision='bf16-mixed'"):
        fit_small(tmp_path, data, small_config(precision="16-mixed"))
    fabric = make_fabric(small_config(precision="bf16-mixed"))
    with pytest.raises(ValueError, match=r"precision='32-true' would run as 'bf16-mixed' on cpu"):
        fit_small(tmp_path, data, fabric=fabric)
    assert read_runs(tmp_path / "results").empty


def test_a_second_process_on_the_same_run_is_told_who_trains_it(data, tmp_path):
    (tmp_path / "runs").mkdir()
    with (
        exclusive(tmp_path / "runs" / f"{small_config().run_id}.lock", wait=False),
        pytest.raises(LockHeldError, match=rf"is held by process {os.getpid()} on "),
    ):
        fit_small(tmp_path, data)


def wait_for(path, _row):
    """What a run does at the end of an epoch that shall last until a file is there, or for five minutes."""
    deadline = time.monotonic() + 300
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_second_process_that_waits_returns_the_record_of_the_first(data, tmp_path, monkeypatch, caplog):
    first = start_fit(tmp_path, data, on_epoch=partial(wait_for, tmp_path / "second"))
    lock = tmp_path / "runs" / f"{small_config().run_id}.lock"
    while first.is_alive() and not (lock.exists() and lock.read_text()):
        time.sleep(0.005)
    monkeypatch.setattr(fit_module, "load_data", None)
    real = fit_module.logger.warning
    monkeypatch.setattr(fit_module.logger, "warning", lambda *said: real(*said) or (tmp_path / "second").touch())
    with caplog.at_level(logging.WARNING):
        record = fit_small(tmp_path, data, wait=True)
    first.join()
    assert first.exitcode == 0
    assert f"is being trained by process {first.pid} on " in caplog.text
    assert record["status"] == "finished"
    assert len(read_runs(tmp_path / "results")) == 1


def test_a_killed_process_leaves_no_lock(data, tmp_path):
    process = start_fit(tmp_path, data, die_at_write=1)
    process.join()
    assert fit_small(tmp_path, data)["status"] == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 9, 14])
def test_ctrl_c_and_sigterm_stop_after_the_step_with_a_checkpoint(data, reference, tmp_path, monkeypatch, number, step):
    steps, real = iter(range(1, 1000)), Run._step

    def interrupted_step(*arguments):
        done = real(*arguments)
        if next(steps) == step:
            signal.raise_signal(number)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_step", interrupted_step)
        with pytest.raises(KeyboardInterrupt, match=rf"{number.name} in epoch \d after step \d.*Start it again"):
            fit_small(tmp_path, data)
    assert next(steps) == step + 1, "no step is done after the signal"
    left = []
    monkeypatch.setattr(Run, "_step", lambda *arguments: left.append(1) or real(*arguments))
    assert_goes_on_to_the_same_end(tmp_path, data, reference)
    assert len(left) == 3 * STEPS - step


STEPS = 120 // 16  # of an epoch of `small_config`


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
    assert_goes_on_to_the_same_end(tmp_path, data, reference)


def test_a_second_ctrl_c_interrupts_at_once():
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.received == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_second_sigterm_keeps_its_own_exit_code():
    with StopRequest():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt) as interrupt:
            signal.raise_signal(signal.SIGTERM)
    assert exit_code(interrupt.value) == 143


def test_a_terminal_that_goes_away_is_a_request_to_stop_unless_nohup_was_used(hears_of_its_terminal):
    with StopRequest() as stop:
        for _ in range(2):  # from the shell and from the system
            signal.raise_signal(signal.SIGHUP)
    assert stop.received == "SIGHUP"
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGHUP)
    assert stop.received is None


def test_the_handlers_of_before_are_back_after_a_run(data, tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    fit_small(tmp_path, data, small_config(epochs=1))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def allocate_too_much(*_):
    torch.empty(2**60, dtype=torch.uint8)  # the real error of the CPU's allocator


def raise_as_a_gpu(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


@pytest.mark.parametrize("fail", [allocate_too_much, raise_as_a_gpu])
def test_a_step_without_memory_says_so_and_the_run_goes_on_from_its_checkpoint(
    data, reference, tmp_path, monkeypatch, fail
):
    with monkeypatch.context() as patch:
        steps, real = iter(range(1000)), Run._step
        patch.setattr(Run, "_step", lambda *given: fail() if next(steps) == STEPS + 2 else real(*given))
        with pytest.raises(OutOfMemoryError, match=r"out of memory on cpu in epoch 1, step 2: 16 images .* torchrun"):
            fit_small(tmp_path, data)
    assert_goes_on_to_the_same_end(tmp_path, data, reference)


@pytest.mark.parametrize("call", [2, 5], ids=["validation", "test"])
def test_an_evaluation_without_memory_says_so_and_the_run_goes_on(data, reference, tmp_path, monkeypatch, call):
    with monkeypatch.context() as patch:
        calls, real = iter(range(1, 1000)), loop.evaluate

        def failing(*given, **options):
            return raise_as_a_gpu() if next(calls) == call else real(*given, **options)

        patch.setattr(loop, "evaluate", failing)
        with pytest.raises(
            OutOfMemoryError, match=r"out of memory on cpu in epoch \d, while it was evaluated: 16 images"
        ):
            fit_small(tmp_path, data)
    assert_goes_on_to_the_same_end(tmp_path, data, reference)


def test_another_error_in_a_step_is_not_taken_for_a_lack_of_memory(data, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Run, "_step", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        fit_small(tmp_path, data)


def test_a_loss_of_nan_ends_the_run_as_diverged_with_its_epochs_and_no_results(data, tmp_path, caplog):
    config = small_config(learning_rate=1e30, loss="smooth", schedule="steps", epochs=4)
    with caplog.at_level(logging.WARNING):
        record = fit_small(tmp_path, data, config)
    assert record["status"] == "diverged"
    assert f"Run {config.run_id} diverged: the loss became infinite or NaN in epoch 0" in caplog.text
    runs = read_runs(tmp_path / "results")
    assert "test_top5" not in runs or runs["test_top5"].isna().all()
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_run_that_diverges_later_keeps_the_epochs_before_and_is_not_tried_again(data, tmp_path, monkeypatch):
    steps, real = iter(range(1000)), Run._step

    def step(run, images, labels, loss, rate):
        scores, value = real(run, images, labels, loss, rate)
        return scores, value * (float("nan") if next(steps) == STEPS + 3 else 1)

    monkeypatch.setattr(Run, "_step", step)
    assert fit_small(tmp_path, data)["status"] == "diverged"
    assert read_epochs(tmp_path / "results")["epoch"].tolist() == [0]
    assert next(steps) == STEPS + 4, "no step is done after the loss of NaN"
    assert fit_small(tmp_path, data)["status"] == "diverged"
    assert next(steps) == STEPS + 5, "a recorded run is not trained again"


def test_two_processes_that_start_at_once_train_the_run_once(data, tmp_path):
    both = [start_fit(tmp_path, data, wait=True) for _ in range(2)]
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert read_runs(tmp_path / "results")["resumes"].tolist() == [0]
    assert len(read_epochs(tmp_path / "results")) == 3
    assert processes.active_children() == []

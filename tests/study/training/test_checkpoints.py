import errno
import logging
import os
import random
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from smooth_topk.study.records import files
from smooth_topk.study.training.checkpoints import (
    load_checkpoint,
    random_state,
    remove_checkpoints,
    restore_random_state,
    save_checkpoint,
)


def state(step):
    return {
        "model": {"weight": torch.full((3, 4), float(step))},
        "epoch": step,
        "history": [{"loss": 1 / 3}],
        "x": None,
    }


def test_a_checkpoint_is_read_back_as_it_was(tmp_path):
    save_checkpoint(tmp_path / "run", state(1))
    loaded = load_checkpoint(tmp_path / "run")
    assert torch.equal(loaded.pop("model")["weight"], torch.ones(3, 4))
    assert loaded == {"epoch": 1, "history": [{"loss": 1 / 3}], "x": None}


def test_a_folder_without_a_checkpoint_gives_none(tmp_path):
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "nowhere") is None


def test_the_last_two_checkpoints_are_kept_and_the_newest_is_read(tmp_path):
    for step in range(12):
        save_checkpoint(tmp_path, state(step))
    assert len(list(tmp_path.iterdir())) == 2
    assert load_checkpoint(tmp_path)["epoch"] == 11


@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(tmp_path, caplog, damage):
    save_checkpoint(tmp_path, state(1))
    newest = save_checkpoint(tmp_path, state(2))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes({"truncated": content[:-7], "emptied": b"", "flipped": content}[damage])
    with caplog.at_level(logging.WARNING):
        assert load_checkpoint(tmp_path)["epoch"] == 1
    assert "damaged" in caplog.text
    save_checkpoint(tmp_path, state(3))
    assert load_checkpoint(tmp_path)["epoch"] == 3


def test_when_every_checkpoint_is_damaged_the_run_starts_from_the_beginning(tmp_path):
    for step in range(2):
        save_checkpoint(tmp_path, state(step)).write_bytes(b"x" * 100)
    assert load_checkpoint(tmp_path) is None


def test_a_full_disk_leaves_the_older_checkpoint_and_no_rubbish(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, state(1))

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*Nothing already recorded is lost"):
        save_checkpoint(tmp_path, state(2))
    assert len(list(tmp_path.iterdir())) == 1
    assert load_checkpoint(tmp_path)["epoch"] == 1


def test_a_write_that_the_system_refuses_half_way_leaves_the_older_checkpoint(tmp_path):
    save_checkpoint(tmp_path, state(1))
    program = (
        "import sys, torch; from smooth_topk.study.training.checkpoints import save_checkpoint;"
        "save_checkpoint(sys.argv[1], {'epoch': 2, 'x': torch.zeros(100_000)})"
    )

    def limit_file_size():  # a real error of the kernel in the middle of a write, as a full disk gives
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    command = [sys.executable, "-B", "-c", program, str(tmp_path)]
    done = subprocess.run(command, preexec_fn=limit_file_size, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Could not write" in done.stderr
    assert len(list(tmp_path.iterdir())) == 1
    assert load_checkpoint(tmp_path)["epoch"] == 1


def test_a_checkpoint_cannot_run_code(tmp_path):
    path = save_checkpoint(tmp_path, {"model": torch.nn.Linear(1, 1)})
    with pytest.raises(ValueError, match=rf"{path} holds something else than .*Delete the folder {tmp_path}") as caught:
        load_checkpoint(tmp_path)
    assert "trust" not in str(caught.value), "torch advises to load the file unsafely"


def test_files_with_other_names_are_left_alone(tmp_path):
    save_checkpoint(tmp_path, state(1))
    others = [tmp_path / name for name in ("checkpoint-old.pt", "checkpoint-00000009.pt.bak", "checkpoint-.pt")]
    for other in others:
        other.write_bytes(b"of somebody else")
    save_checkpoint(tmp_path, state(2))
    assert load_checkpoint(tmp_path)["epoch"] == 2
    assert all(other.exists() for other in others)


def test_what_a_killed_process_left_of_a_write_is_removed_with_and_without_kept_weights(tmp_path):
    save_checkpoint(tmp_path, state(1))
    (tmp_path / ".checkpoint-00000001.pt.123.tmp").write_bytes(b"half")
    assert load_checkpoint(tmp_path)["epoch"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000000.pt"]
    (tmp_path / "best.pt").write_bytes(b"weights")
    (tmp_path / ".best.pt.123.tmp").write_bytes(b"half")
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["best.pt"]


def draws():
    return random.random(), np.random.rand(), torch.rand(2).tolist()  # noqa: NPY002 - the global generators are tested


def test_every_random_generator_goes_on_where_it_was(tmp_path):
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    np.random.normal()  # noqa: NPY002 - leaves a second normal in the cache
    save_checkpoint(tmp_path, {"random": random_state()})
    expected = draws()
    assert draws() != expected
    restore_random_state(load_checkpoint(tmp_path)["random"])
    assert draws() == expected


def test_removing_checkpoints_keeps_only_weights_that_were_asked_for(tmp_path):
    for name in ("plain", "kept"):
        save_checkpoint(tmp_path / name, state(1))
    (tmp_path / "kept" / "best.pt").write_bytes(b"weights")
    remove_checkpoints(tmp_path / "plain")
    remove_checkpoints(tmp_path / "kept")
    assert not (tmp_path / "plain").exists()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["best.pt"]

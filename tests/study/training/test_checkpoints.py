import errno
import logging
import os
import random

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
    return {"model": {"weight": torch.full((3, 4), float(step))}, "epoch": step, "history": [{"loss": 1 / 3}]}


def test_a_checkpoint_is_read_back_as_it_was_and_without_one_there_is_none(tmp_path):
    assert load_checkpoint(tmp_path / "run") is None
    save_checkpoint(tmp_path / "run", state(1))
    loaded = load_checkpoint(tmp_path / "run")
    assert torch.equal(loaded.pop("model")["weight"], torch.ones(3, 4))
    assert loaded == {"epoch": 1, "history": [{"loss": 1 / 3}]}


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
    assert newest.name in caplog.text
    save_checkpoint(tmp_path, state(3)).write_bytes(b"x" * 100)
    assert load_checkpoint(tmp_path)["epoch"] == 1


def test_a_full_disk_leaves_the_older_checkpoint_and_no_rubbish(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, state(1))

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        save_checkpoint(tmp_path, state(2))
    assert len(list(tmp_path.iterdir())) == 1
    assert load_checkpoint(tmp_path)["epoch"] == 1


def test_a_checkpoint_cannot_run_code(tmp_path):
    path = save_checkpoint(tmp_path, {"model": torch.nn.Linear(1, 1)})
    with pytest.raises(ValueError, match=str(path)) as caught:
        load_checkpoint(tmp_path)
    assert "trust" not in str(caught.value), "torch advises to load the file unsafely"


def draws():
    return random.random(), np.random.rand(), torch.rand(2).tolist()  # noqa: NPY002 - the global generators are tested


def test_every_random_generator_continues_where_it_was(tmp_path):
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
        (tmp_path / name / ".checkpoint-00000001.pt.123.tmp").write_bytes(b"of a killed process")
    (tmp_path / "kept" / "best.pt").write_bytes(b"weights")
    for name in ("plain", "kept", "nowhere"):
        remove_checkpoints(tmp_path / name)
    assert not (tmp_path / "plain").exists()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["best.pt"]

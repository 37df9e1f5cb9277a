"""Files written whole or not at all, and locks that a killed process cannot leave behind."""

import contextlib
import io
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout


class LockHeldError(RuntimeError):
    """Another process holds the lock; `owner` says which."""

    def __init__(self, path: Path, owner: str):
        super().__init__(f"{path} is held by {owner}: wait until that process ends, or stop it.")
        self.owner = owner


class CannotWriteError(OSError):
    """A file could not be written; as a text it is a sentence that says what to do."""

    def __str__(self) -> str:
        return str(self.strerror)


def cannot_write(path: str | Path, error: OSError) -> CannotWriteError:
    """Returns the same error as a sentence with the path and the reason, for example a full disk."""
    reason = error.strerror or str(error)
    return CannotWriteError(error.errno, f"Could not write {path}: {reason}. Nothing that is recorded is lost.")


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Writes `content` to `path` so that a reader, or a restart after a crash, sees the old file or the new one."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def make_folder(folder: Path) -> Path:
    """Creates `folder` where needed."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return Path(folder)


def make_writable_folder(folder: Path) -> Path:
    """Creates `folder` where needed and proves that a file can be written to it, before hours are spent."""
    folder = make_folder(folder)
    probe = folder / f".probe.{os.getpid()}"
    try:
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise cannot_write(folder, error) from error
    return folder


@contextlib.contextmanager
def exclusive(path: Path, *, wait: bool, on_wait: Callable[[str], object] = lambda owner: None) -> Iterator[None]:
    """Holds the lock file `path`; the operating system frees it when this process ends, however it ends.

    Args:
        path: the lock file; while it is held, it has the name of its owner for others to read.
        wait: whether to wait for the owner or to raise LockHeldError.
        on_wait: called once with the owner's name before waiting.
    """
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        owner = ""
        with contextlib.suppress(OSError):  # the owner has just released it
            owner = Path(path).read_text(encoding="utf-8").strip()
        owner = owner or "another process"
        if not wait:
            raise LockHeldError(path, owner) from None
        on_wait(owner)
        lock.acquire()
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        with contextlib.suppress(OSError):  # on a full disk the lock holds without a name in it
            Path(path).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield
    finally:
        Path(path).unlink(missing_ok=True)  # who waits for this file sees that it is gone and makes another
        lock.release()


def npz(**arrays: Any) -> bytes:
    """Returns a compressed file of named arrays as bytes; the same arrays give the same bytes."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    """Returns one array as the bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()

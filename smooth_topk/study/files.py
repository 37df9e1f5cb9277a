"""Files written whole or not at all, and locks that a killed process cannot leave behind."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path


class LockHeldError(RuntimeError):
    """Another process holds the lock."""


def write_whole(path: Path, content: bytes) -> None:
    """Writes `content` to `path` so that a reader, or a restart after a crash, sees the old file or the new one.

    Raises:
        OSError: with the path and the reason, for example a full disk; the old file is untouched.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable: without it a rename may be undone by a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> OSError:
    """Returns the same error as a sentence that says what to do."""
    reason = error.strerror or str(error)
    return OSError(
        error.errno,
        f"Could not write {path}: {reason}. Nothing already recorded is lost; make room or make the folder writable, "
        "then start again",
    )


def make_writable_folder(folder: Path) -> Path:
    """Creates `folder` where needed and proves that a file can be written to it, before hours are spent."""
    folder = Path(folder)
    probe = folder / f".probe.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise cannot_write(folder, error) from error
    return folder


@contextlib.contextmanager
def exclusive(path: Path, *, wait: bool, on_wait=lambda owner: None) -> Iterator[None]:
    """Holds the lock file `path`; the operating system frees it when this process ends, however it ends.

    Args:
        path: the lock file; it holds the name of its owner for others to read.
        wait: whether to wait for the owner or to raise LockHeldError.
        on_wait: called once with the owner's name before waiting.
    """
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            if not wait:
                raise LockHeldError(f"{path} is held by {owner}.") from None
            on_wait(owner)
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield

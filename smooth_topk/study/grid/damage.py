"""What goes wrong with files and disks, made on purpose: damaged checkpoints, edited CSV files, a disk that is full."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

DISK_MEGABYTES = 48  # of the small disk: room for the checkpoints of all runs


def cut_off(path: Path) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return f"{path.name} has {len(content) // 2} of {len(content)} bytes"


def flip_a_bit(path: Path) -> str:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)
    return f"{path.name} has another byte {len(content) // 3}"


def with_line_ends(content: bytes, line_end: bytes) -> bytes:
    return line_end.join(content.splitlines()) + line_end


def twice(content: bytes) -> bytes:
    return b"\n".join([*content.splitlines(), content.splitlines()[-1]]) + b"\n"


def without_a_column(content: bytes) -> bytes:
    return b"".join(line.split(b",", 1)[1] for line in content.splitlines(keepends=True))


def contradicting(content: bytes) -> bytes:
    last = content.splitlines()[-1]
    return b"\n".join([*content.splitlines(), last.replace(b",finished,", b",diverged,")]) + b"\n"


# Edits of a CSV file that it must survive, and edits that must be refused; each may come on top of another.
READABLE: dict[str, Callable[[bytes], bytes]] = {
    "byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "line ends of Windows": lambda content: with_line_ends(content, b"\r\n"),
    "no last line end": lambda content: content.rstrip(),
    "a row appears twice": twice,
}
REFUSED: dict[str, Callable[[bytes], bytes]] = {
    "semicolons": lambda content: content.replace(b",", b";"),
    "carriage returns": lambda content: with_line_ends(content, b"\r"),
    "a column is missing": without_a_column,
    "two rows of a run contradict each other": contradicting,
    "a wrong value": lambda content: content.replace(b",2000,", b",2000 images,"),
}


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Puts a disk of a few megabytes where `folder` is, if this user may; says whether."""
    size = f"size={DISK_MEGABYTES}m"
    mounted = (
        os.geteuid() == 0
        and subprocess.call(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], stderr=subprocess.DEVNULL) == 0
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.call(["umount", "--lazy", str(folder)])

"""What goes wrong with files and disks, made on purpose: damaged checkpoints, a disk that is full."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
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

"""What a row of results says about where it was computed: machine, versions, commit."""

import functools
import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import torch


def describe_machine(device: torch.device | str = "cpu") -> dict[str, str]:
    """Returns the columns device, cpu, machine, python, torch, package, sources and commit of the result files.

    Example:
        >>> sorted(describe_machine())
        ['commit', 'cpu', 'device', 'machine', 'package', 'python', 'sources', 'torch']
    """
    return {
        "device": _device_name(torch.device(device)),
        "cpu": _cpu_model(),
        "machine": f"{platform.system()} {platform.machine()}, {available_cores()} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "package": _package_version(),
        "sources": _sources(),
        "commit": _commit(),
    }


def machine_name() -> str:
    """Returns the machine in a few words: processor, cores, GPU where there is one."""
    found = describe_machine("cuda" if torch.cuda.is_available() else "cpu")
    gpu = "no GPU" if found["device"] == "cpu" else found["device"]
    return f"{found['cpu']} ({found['machine']}, {gpu})"


def available_cores() -> int:
    """The number of cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@functools.cache
def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


@functools.cache
def _package_version() -> str:
    try:
        return metadata.version("smooth-topk")
    except metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def _sources() -> str:
    """A digest of the package's Python files: it lasts where a commit is rebased away or was never made."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@functools.cache
def _commit() -> str:
    """The commit of the source tree; a plus sign says that the package differs from it; "unknown" outside git."""
    package = Path(__file__).parents[2]
    try:
        commit = _git(package, "rev-parse", "--short=12", "HEAD").strip()
        changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".").strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return commit + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10
    ).stdout

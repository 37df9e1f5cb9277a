"""The most memory that torch holds at once while a function runs, beyond what it held before."""

import contextlib
import os
from collections.abc import Callable, Iterator

import torch
from torch.profiler import ProfilerActivity, profile

ALLOCATION = "[memory]"  # the profiler's name of an allocation (positive) or a release (negative)


def peak_bytes(call: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """Returns the peak of the memory that a call allocates, its result included, in bytes.

    On a CPU every allocation and release of torch's allocator is recorded, those inside operators and compiled code
    too. What a library takes from elsewhere is not seen.

    Example:
        >>> peak_bytes(lambda: torch.zeros(1000).exp())  # two tensors of 4,000 bytes live at once
        8000
    """
    call()  # what is allocated once only does not count
    if torch.device(device).type == "cuda":
        return _cuda_peak(call, torch.device(device))
    with _without_messages(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = call()
    del result
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == ALLOCATION]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def _cuda_peak(call: Callable[[], object], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """The profiler's library writes a line to the error stream whenever it starts and stops."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)

"""Times of several functions, taken in turns, without the samples that other processes disturbed.

A sample is a loop long enough for the clocks. Beside its own time it records how long all cores of the machine were
busy; the difference is the time of other processes, and a sample with too much of it does not count. Functions take
turns within a round, so that a machine that slows down slows all of them, and the order turns from round to round.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles

import psutil
import torch

IDLE = ("idle", "iowait", "guest", "guest_nice")  # user time already contains that of guests
ALLOWED_SHARE = 0.1  # of one core, for the others, as long as the sample lasts ...
CLOCK_TICKS = 0.02  # ... and the grain of the machine's clock, in seconds: a tick on each of two cores
FEWEST = 3  # samples that a median needs
PATIENCE = 3  # times the rounds asked for, where samples were dropped


@dataclass(frozen=True)
class Timing:
    """The time of one call."""

    seconds: float  # median
    low: float  # quartiles
    high: float
    samples: int  # that count
    dropped: int  # that other processes disturbed
    quiet: bool  # False: fewer than three samples were undisturbed, so all of them count


@dataclass
class Sampler:
    """One function under test with its samples."""

    call: Callable[[], object]
    device: torch.device
    repeats: int = 1
    quiet: list[float] = field(default_factory=list)
    disturbed: list[float] = field(default_factory=list)

    def warm_up(self, sample_seconds: float) -> None:
        """Runs it until caches and compilers are done, and finds how often a sample repeats it."""
        self._loop(1)
        self.sample()
        (seconds,) = self.quiet + self.disturbed
        if seconds < sample_seconds:  # too short for a sample: only its length was asked for
            self.quiet, self.disturbed = [], []
            seconds = min(seconds, self._loop(3) / 3)
            self.repeats = max(1, round(sample_seconds / max(seconds, 1e-7)))

    def sample(self) -> None:
        busy, own = machine_busy(), time.process_time()
        seconds = self._loop(self.repeats)
        others = (machine_busy() - busy) - (time.process_time() - own)
        kept = self.quiet if others <= ALLOWED_SHARE * seconds + CLOCK_TICKS else self.disturbed
        kept.append(seconds / self.repeats)

    def timing(self) -> Timing:
        quiet = len(self.quiet) >= FEWEST or not self.disturbed
        counted = self.quiet if quiet else self.quiet + self.disturbed
        low, _, high = quantiles(counted, n=4, method="inclusive") if len(counted) > 1 else counted * 3
        dropped = len(self.disturbed) if quiet else 0
        return Timing(median(counted), low, high, len(counted), dropped, quiet)

    def _loop(self, repeats: int) -> float:
        self._wait()
        start = time.perf_counter()
        for _ in range(repeats):
            self.call()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def interleave(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 9,
    sample_seconds: float = 0.1,
    budget: float = 60.0,
    device: torch.device | str = "cpu",
) -> dict[str, Timing]:
    """Times the functions in turns.

    Args:
        calls: name -> function without arguments.
        rounds: undisturbed samples wanted of each function; up to three times as many are taken to get them.
        sample_seconds: length of a sample; a faster function is repeated.
        budget: seconds after which no further round starts, once there are three.

    Returns:
        name -> Timing, in the order given.

    Example:
        >>> timings = interleave({"sum": lambda: sum(range(1000))}, rounds=3, sample_seconds=0.001)
        >>> timings["sum"].seconds > 0
        True
    """
    samplers = {name: Sampler(call, torch.device(device)) for name, call in calls.items()}
    for sampler in samplers.values():
        sampler.warm_up(sample_seconds)
    names, start = list(samplers), time.perf_counter()
    for number in range(PATIENCE * rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            samplers[name].sample()
        enough = all(len(sampler.quiet) >= rounds for sampler in samplers.values())
        fewest = min(len(sampler.quiet) + len(sampler.disturbed) for sampler in samplers.values())
        late = time.perf_counter() - start > budget and fewest >= min(rounds, FEWEST)
        if enough or late:
            break
    return {name: sampler.timing() for name, sampler in samplers.items()}


def machine_busy() -> float:
    """Seconds that all cores together have worked, for any process."""
    times = psutil.cpu_times()._asdict()
    return sum(value for name, value in times.items() if name not in IDLE)

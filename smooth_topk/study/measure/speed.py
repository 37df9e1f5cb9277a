"""The timed sections: settings in, one tidy table out, a row for each algorithm and size.

Every table has the columns seconds (median of one call), low, high (quartiles), samples, dropped, quiet, and ratio, the
time divided by that of cross-entropy in the same rounds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import pandas as pd
import psutil
import torch
from torch import Tensor

from smooth_topk import smooth_topk_loss
from smooth_topk.study.measure.contenders import BACKENDS, OURS, Loss, find_contenders, find_peers, is_fused
from smooth_topk.study.measure.errors import largest_relative_error, random_scores
from smooth_topk.study.measure.memory import peak_bytes
from smooth_topk.study.measure.timing import interleave
from smooth_topk.study.records.machine import available_cores

BASELINE = "cross_entropy"
BOTH = "forward+backward"
ENOUGH_MEMORY = 16e9  # bytes for divide and conquer by autograd, 256 x 100,000


@dataclass(frozen=True)
class Settings:
    """What is measured, and how long."""

    device: str = "cpu"
    sizes: tuple[int, ...] = (100, 1000, 10_000, 100_000)
    paper_sizes: tuple[int, ...] = (100, 1000, 10_000, 100_000)  # of Tables 3 and 4
    peer_sizes: tuple[int, ...] = (100, 1000, 10_000)
    ks: tuple[int, ...] = (1, 2, 5, 10, 20, 32, 50, 100, 200)
    cases: tuple[tuple[int, int, int], ...] = (  # batch, n, k: small calls, and large k
        (128, 100, 5), (128, 1000, 5), (256, 1000, 10), (256, 100, 50),
        (256, 1000, 50), (256, 1000, 100), (256, 1000, 200),
    )  # fmt: skip
    taus: tuple[float, ...] = (1.0, 0.1)
    threads: tuple[int, ...] = tuple(range(1, min(available_cores(), 2) + 1))
    models: tuple[str, ...] = ("small", "densenet40_12", "resnet18")
    algorithms: tuple[str, ...] | None = None  # of those found; None takes all
    k: int = 5
    batch: int = 256
    large: int = 100_000  # classes from which on ...
    large_batch: int = 32  # ... a batch is this small, where time or memory demand it
    rounds: int = 9
    sample_seconds: float = 0.1
    budget: float = 20.0  # seconds per group of functions that take turns
    track: Callable[[Sequence], Iterable] = iter  # shows progress over the groups

    def time(self, calls: dict[str, Callable]) -> dict[str, dict]:
        """Returns name -> columns of one row each."""
        timings = interleave(
            calls, rounds=self.rounds, sample_seconds=self.sample_seconds, budget=self.budget, device=self.device
        )
        baseline = timings[BASELINE].seconds if BASELINE in timings else float("nan")
        return {name: {**asdict(timing), "ratio": timing.seconds / baseline} for name, timing in timings.items()}

    def contenders(self, names: Iterable[str]) -> dict[str, Loss]:
        """Returns those of the functions named that can run here, in the order named."""
        found, _ = find_contenders(self.device)
        return {
            name: found[name] for name in names if name in found and (not self.algorithms or name in self.algorithms)
        }


def measure_forward(settings: Settings) -> pd.DataFrame:
    """Table 3: the forward pass alone, without a graph for the backward pass."""
    names = (BASELINE, "summation", "divide_and_conquer", *OURS)
    return _by_size(settings, names, "forward", _forward_call)


def measure_backward(settings: Settings) -> pd.DataFrame:
    """Table 4: the backward pass alone; the graph is made before the clock starts and used again."""
    names = (BASELINE, "divide_and_conquer_autograd", "divide_and_conquer", *OURS)
    return _by_size(settings, names, "backward", _backward_call)


def measure_loss(settings: Settings) -> pd.DataFrame:
    """Forward and backward, by threads and tau, with the error of value and gradient next to the time."""
    rows = []
    for threads, tau, n in settings.track(list(product(settings.threads, settings.taus, settings.sizes))):
        slow = threads == max(settings.threads)  # compiling and the paper's algorithm take long: once is enough
        names = [BASELINE, "pivot", "fused_numba", "fused_triton"]
        names += ["pivot_compiled"] if slow and n >= 1000 else []
        names += ["divide_and_conquer"] if slow and tau == settings.taus[0] else []
        batch = settings.large_batch if n >= settings.large else settings.batch
        fixed = {"direction": BOTH, "n": n, "batch": batch, "k": settings.k, "tau": tau, "threads": threads}
        rows += _timed_rows(settings, settings.contenders(names), fixed, both_call, with_errors=True)
    return pd.DataFrame(rows)


def measure_k_sweep(settings: Settings, n: int = 1000) -> pd.DataFrame:
    """Forward and backward by k."""
    rows = []
    for k in settings.track(settings.ks):
        names = [BASELINE, "pivot", *(f"fused_{name}" for name in BACKENDS if is_fused(name, settings.device, k))]
        fixed = {
            "direction": BOTH,
            "n": n,
            "batch": settings.batch,
            "k": k,
            "tau": 1.0,
            "threads": max(settings.threads),
        }
        rows += _timed_rows(settings, settings.contenders(names), fixed, both_call, with_errors=True)
    return pd.DataFrame(rows)


def measure_cases(settings: Settings) -> pd.DataFrame:
    """Forward and backward of single cases, with every number of threads."""
    rows = []
    for threads, (batch, n, k) in settings.track(list(product(settings.threads, settings.cases))):
        fixed = {"direction": BOTH, "n": n, "batch": batch, "k": k, "tau": 1.0, "threads": threads}
        losses = settings.contenders([BASELINE, "pivot", "fused_numba", "fused_triton"])
        rows += _timed_rows(settings, losses, fixed, both_call, with_errors=True)
    return pd.DataFrame(rows)


def measure_memory(settings: Settings) -> pd.DataFrame:
    """The peak of the memory allocated by forward and backward pass, beyond scores and labels."""
    rows = []
    for n in settings.track(settings.sizes):
        names = [BASELINE, "pivot", "pivot_compiled", "fused_numba", "fused_triton", "divide_and_conquer"]
        batch = settings.large_batch if n >= settings.large else settings.batch
        fixed = {"n": n, "batch": batch, "k": settings.k, "tau": 1.0, "threads": max(settings.threads)}
        scores, labels = problem(settings, batch, n)
        torch.set_num_threads(fixed["threads"])
        peaks = {}
        losses = settings.contenders([name for name in names if name != "pivot_compiled" or n >= 1000])
        _forget_compiled(losses)
        for name, loss in losses.items():
            call = both_call(loss, scores, labels, settings.k, 1.0)
            peaks[name] = peak_bytes(call, settings.device)
        rows += [
            {"algorithm": name, **fixed, "peak_bytes": peak, "ratio": peak / peaks[BASELINE]}
            for name, peak in peaks.items()
        ]
    return pd.DataFrame(rows)


def measure_peers(settings: Settings) -> pd.DataFrame:
    """Losses of other packages, forward and backward, beside cross-entropy and ours."""
    makers, _ = find_peers(settings.device)
    rows = []
    for n in settings.track(settings.peer_sizes):
        fixed = {"direction": BOTH, "n": n, "batch": settings.batch, "k": settings.k, "tau": 1.0}
        fixed["threads"] = max(settings.threads)
        ours = settings.contenders([BASELINE, "pivot", "fused_numba", "fused_triton"])
        peers = {name: _without_options(make(n, settings.k, 1.0)) for name, make in makers.items()}
        rows += _timed_rows(settings, ours | peers, fixed, both_call)
    return pd.DataFrame(rows)


def _by_size(settings: Settings, names: Sequence[str], direction: str, make_call: Callable) -> pd.DataFrame:
    rows = []
    for n in settings.track(settings.paper_sizes):
        scarce = settings.device == "cpu" and psutil.virtual_memory().available < ENOUGH_MEMORY
        batch = settings.large_batch if n >= settings.large and scarce else settings.batch
        losses = settings.contenders(names)
        fixed = {"direction": direction, "n": n, "batch": batch, "k": settings.k, "tau": 1.0}
        fixed["threads"] = max(settings.threads)
        rows += _timed_rows(settings, losses, fixed, make_call)
    return pd.DataFrame(rows)


def _timed_rows(
    settings: Settings, losses: dict[str, Loss], fixed: dict, make_call: Callable, with_errors: bool = False
) -> list[dict]:
    torch.set_num_threads(fixed["threads"])
    _forget_compiled(losses)
    scores, labels = problem(settings, fixed["batch"], fixed["n"])
    options = fixed["k"], fixed["tau"]
    timed = settings.time({name: make_call(loss, scores, labels, *options) for name, loss in losses.items()})
    rows = []
    for name, columns in timed.items():
        errors = _errors(losses[name], scores, labels, *options) if with_errors and name != BASELINE else {}
        rows.append({"algorithm": name, **fixed, **columns, **errors})
    return rows


def problem(settings: Settings, batch: int, n: int) -> tuple[Tensor, Tensor]:
    scores, labels = random_scores(batch, n)
    return scores.to(settings.device).requires_grad_(), labels.to(settings.device)


def _forward_call(loss: Loss, scores: Tensor, labels: Tensor, k: int, tau: float) -> Callable[[], Tensor]:
    return torch.no_grad()(lambda: loss(scores, labels, k=k, tau=tau))


def _backward_call(loss: Loss, scores: Tensor, labels: Tensor, k: int, tau: float) -> Callable[[], tuple]:
    value = loss(scores, labels, k=k, tau=tau)
    return lambda: torch.autograd.grad(value, scores, retain_graph=True)


def both_call(loss: Loss, scores: Tensor, labels: Tensor, k: int, tau: float) -> Callable[[], tuple]:
    return lambda: torch.autograd.grad(loss(scores, labels, k=k, tau=tau), scores)


def _errors(loss: Loss, scores: Tensor, labels: Tensor, k: int, tau: float) -> dict[str, float]:
    """Errors against float64, which the tests hold to 1e-12 of 60-digit arithmetic."""
    exact = scores.detach().double().requires_grad_()
    truth = smooth_topk_loss(exact, labels, k=k, tau=tau, backend="torch")
    value = loss(scores, labels, k=k, tau=tau)
    gradients = [torch.autograd.grad(*pair)[0] for pair in ((value, scores), (truth, exact))]
    return {
        "loss_error": largest_relative_error(value.view(1, 1), truth.detach().view(1, 1)),
        "gradient_error": largest_relative_error(*gradients),
    }


def _forget_compiled(losses: dict[str, Loss]) -> None:
    """torch.compile gives up after eight shapes of one function."""
    if "pivot_compiled" in losses:
        torch.compiler.reset()


def _without_options(loss: Loss) -> Loss:
    return lambda scores, labels, **_: loss(scores, labels)

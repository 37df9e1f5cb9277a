"""Top-k calibration, measured: does a loss find the most probable classes when nothing but the loss can fail?

For toy distributions over 4 to 6 classes the expected loss is minimised over the scores themselves, to the precision of
float64: no data, no network, no generalisation. A verdict says whether the k largest scores are the k most probable
classes. What is known beforehand, and the proofs, are in calibration_theory.py; what is found here is numerical.

    python scripts/measure_calibration.py

records book/results/calibration.csv, one row per loss, setting, distribution and k. Rows recorded before are kept.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from smooth_topk.study.losses import FAMILY
from smooth_topk.study.measure.expected_loss import expected_loss
from smooth_topk.study.measure.minimise import Minimum, minimise
from smooth_topk.study.records.files import make_writable_folder
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.paths import path_option, published_folder
from smooth_topk.study.records.published import add_rows

FILE = "calibration.csv"
KEY = ("loss", "parameters", "distribution", "seed")
SEED = 0  # of the random distributions, of the order of their classes and of the starts
CLASSES, KS = (4, 5, 6), (1, 2, 3)
TAUS, MARGINS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), (0.0, 1.0)
EPSILONS = (0.0, 0.5, 1.0, 2.0)
RANDOM_DISTRIBUTIONS = 4  # per number of classes
RANDOM_STARTS = 10  # per problem; two more starts are no chance: the logarithms of the probabilities, and almost a tie
SMALLEST_DIFFERENCE = 1e-8  # of expected losses, in units of tau: what float64 and BFGS tell apart with a wide berth
SMALLEST_SEPARATION = 1e-5  # of scores, in units of k tau
SIMPLEST_GAP = (
    0.02  # the k-th and the next probability differ by at least this share: the right answer is no close call
)


@dataclass(frozen=True)
class Case:
    """One loss with all its hyper-parameters.

    Attributes:
        loss: a name of FAMILY.
        parameters: its hyper-parameters, k among them where it has one.
        k: size of the prediction that is judged.
    """

    loss: str
    parameters: dict[str, float | int] = field(default_factory=dict)
    k: int = 1

    @property
    def label(self) -> str:
        """The parameters as text, k first, such as "k=2, tau=0.1, margin=1"."""
        shown = {"k": self.k} | self.parameters
        return ", ".join(f"{name}={value:g}" for name, value in shown.items())

    @property
    def unit_of_loss(self) -> float:
        return float(self.parameters.get("tau", 1.0))

    @property
    def unit_of_scores(self) -> float:
        """Scores of the smooth loss are seen divided by kτ; the hard loss divides them by k."""
        return self.k * self.unit_of_loss if self.loss in ("smooth", "hard") else 1.0


@dataclass(frozen=True)
class Distribution:
    """A distribution over classes with a name; the classes are in no order."""

    name: str
    probabilities: tuple[float, ...]


def cases(ks: Sequence[int] = KS) -> list[Case]:
    """Returns every loss of the family with the settings under test.

    The loss with the authors' switch is left out: it jumps where it switches, so that its minimum is an accident.
    """
    found = []
    for k in ks:
        settings: list[tuple[str, dict]] = [("cross_entropy", {}), ("label_smoothing", {"label_smoothing": 0.1})]
        settings += [("generalised_cross_entropy", {"q": 0.7}), ("aldr_kl", {"temperature": 1.0, "adaptivity": 2.0})]
        hinges = ("hard", "topk_hinge_alpha", "topk_hinge_beta")
        settings += [(name, {"k": k, "margin": margin}) for name in hinges for margin in MARGINS]
        settings += [(name, {"k": k}) for name in ("topk_entropy", "truncated_topk_entropy")]
        settings += [("difftopk", {"k": k, "inverse_temperature": 2.0, "top1_share": share}) for share in (0.5, 0.0)]
        settings += [("lapsum", {"k": k, "scale": 1.0, "top1_share": share}) for share in (0.5, 0.0)]
        settings += [("noised_topk", {"k": k, "epsilon": epsilon}) for epsilon in EPSILONS]
        settings += [("smooth", {"k": k, "tau": tau, "margin": margin}) for margin in MARGINS for tau in TAUS]
        found += [Case(name, parameters, k) for name, parameters in settings]
    return found


def distributions(seed: int = SEED) -> list[Distribution]:
    """Returns the toy distributions: four shapes and four random ones per number of classes, the classes shuffled.

    Shapes: nearly even, falling in a line, halved from class to class, and two strong classes. A random distribution is
    uniform on the simplex, drawn again until no two neighbours in rank are a close call.
    """
    generator = torch.Generator().manual_seed(seed)
    found = []
    for n in CLASSES:
        ranks = torch.arange(n, dtype=torch.float64)
        shapes = {
            "even": 1 + 0.1 * (n - ranks),
            "line": n - ranks,
            "halves": 0.5**ranks,
            "pair": torch.where(ranks < 2, 4.0 - 0.5 * ranks, 1.0 - 0.1 * ranks),
        }
        for number in range(RANDOM_DISTRIBUTIONS):
            shapes[f"random_{number + 1}"] = _random_weights(n, generator)
        for name, weights in shapes.items():
            probabilities = weights[torch.randperm(n, generator=generator)]
            found.append(Distribution(f"{name}_{n}", tuple((probabilities / probabilities.sum()).tolist())))
    return found


def measure_case(case: Case, group: Sequence[Distribution], *, seed: int = SEED) -> list[dict]:
    """Minimises one loss under distributions over the same number of classes, all at once; returns one row each.

    Two problems are solved per distribution, from RANDOM_STARTS + 2 starts: the minimum, and the minimum among scores
    in which the k-th and the (k+1)-th most probable class tie. The verdict is

        right   every minimum found has the right top k, and a tie costs more
        tie     a tie costs no more: minimisers do not tell the k-th class from the next
        wrong   a minimum has a class in its top k that does not belong there
    """
    probabilities = torch.tensor([item.probabilities for item in group], dtype=torch.float64)  # (D, n)
    starts = _starts(case, probabilities, seed)  # (D, S, n)
    free = _solve(case, probabilities, starts, [_free_basis(probabilities.shape[1])] * len(group))
    tied = _solve(case, probabilities, starts, [_tied_basis(p, case.k) for p in probabilities])
    return [
        _row(case, item, Minimum(*(part[d] for part in free)), tied.values[d].min().item(), seed)
        for d, item in enumerate(group)
    ]


def measure_calibration(
    todo: Iterable[Case], items: Sequence[Distribution], folder: Path, *, seed: int = SEED, track=iter
) -> pd.DataFrame:
    """Measures what calibration.csv in `folder` does not hold yet, records it case by case, and returns the table."""
    place = describe_machine()
    known = _recorded(folder)
    for case in track(list(todo)):
        for _, group in groupby(items, key=lambda item: len(item.probabilities)):
            missing = [item for item in group if (case.loss, case.label, item.name, seed) not in known]
            if missing:
                date = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
                rows = [row | place | date for row in measure_case(case, missing, seed=seed)]
                add_rows(Path(folder) / FILE, rows, key=KEY)
    return read_calibration(folder)


def read_calibration(folder: Path) -> pd.DataFrame:
    """Returns calibration.csv; an empty table where nothing is recorded."""
    path = Path(folder) / FILE
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*KEY, "k", "verdict"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=path_option, default=published_folder(), help="folder of calibration.csv")
    parser.add_argument("--loss", choices=sorted(FAMILY), action="append", help="only these losses")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # small tensors: a second thread would only wait
    todo = [case for case in cases() if not options.loss or case.loss in options.loss]
    folder = make_writable_folder(options.output)
    table = measure_calibration(todo, distributions(), folder, track=lambda work: tqdm(work, unit="case"))
    print(table.groupby(["loss", "verdict"]).size().unstack(fill_value=0).to_string())
    return 0


def _row(case: Case, item: Distribution, found: Minimum, tied_value: float, seed: int) -> dict:
    """One row of the table, from the minima (S, n) of one distribution."""
    p = torch.tensor(item.probabilities, dtype=torch.float64)
    best = min(found.values.min().item(), tied_value)  # a tie is a point like any other
    gap = tied_value - best
    tolerance = SMALLEST_DIFFERENCE * case.unit_of_loss
    separations = _separation(found.points, p, case.k)  # (S,)
    lowest = found.values <= found.values.min() + tolerance
    worst = separations[lowest].min().item()
    is_right = separations > SMALLEST_SEPARATION * case.unit_of_scores
    is_wrong = separations < -SMALLEST_SEPARATION * case.unit_of_scores
    if gap > tolerance and is_right[lowest].all():
        verdict = "right"
    else:
        verdict = "wrong" if gap > tolerance and is_wrong[lowest].any() else "tie"
    chosen = found.values.argmin()
    scores = found.points[chosen]
    return {
        "loss": case.loss,
        "parameters": case.label,
        "k": case.k,
        "tau": case.parameters.get("tau", ""),
        "margin": case.parameters.get("margin", ""),
        "distribution": item.name,
        "classes": len(item.probabilities),
        "probabilities": " ".join(f"{value:.6f}" for value in item.probabilities),
        "best_topk": _topk(p, case.k),
        "found_topk": _topk(scores, case.k),
        "verdict": verdict,
        "separation": f"{worst / case.unit_of_scores:.6g}",
        "expected_loss": f"{best:.10g}",
        "tie_costs": f"{gap / case.unit_of_loss:.4g}",
        "gradient_norm": f"{found.gradient_norms[chosen].item():.2g}",
        "starts": RANDOM_STARTS,
        "starts_right": int(is_right[-RANDOM_STARTS:].sum()),
        "seed": seed,
    }


def _solve(case: Case, probabilities: Tensor, starts: Tensor, bases: list[Tensor]) -> Minimum:
    """Minimises within the span of each distribution's basis; returns scores (D, S, n), values and norms (D, S)."""
    amount, tries, n = starts.shape
    basis = torch.stack(bases).repeat_interleave(tries, 0)  # (D S, n, d)
    weights, value = probabilities.repeat_interleave(tries, 0), expected_loss(case.loss, case.parameters)
    unit = case.unit_of_scores

    def objective(z: Tensor, which: Tensor) -> Tensor:
        return value(unit * (basis[which] @ z[:, :, None]).squeeze(2), weights[which]) / case.unit_of_loss

    first = (basis.transpose(1, 2) @ (starts.reshape(-1, n, 1) / unit)).squeeze(2)
    found = minimise(objective, first, low_enough=1e-12)  # no loss is below zero
    scores = unit * (basis @ found.points[:, :, None]).squeeze(2)
    values, norms = found.values * case.unit_of_loss, found.gradient_norms
    return Minimum(scores.view(amount, tries, n), values.view(amount, tries), norms.view(amount, tries))


def _starts(case: Case, probabilities: Tensor, seed: int) -> Tensor:
    """Returns starts (D, S, n): log p, almost a tie, and normal scores of the loss's own unit and of the margin's."""
    amount, n = probabilities.shape
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(amount, RANDOM_STARTS, n, generator=generator, dtype=torch.float64)
    half = RANDOM_STARTS // 2
    normal[:, :half] *= 2 * case.unit_of_scores
    normal[:, half:] *= max(case.unit_of_scores, case.k * float(case.parameters.get("margin", 1.0)))
    informed = case.unit_of_scores * probabilities.log()[:, None]
    near_tie = 1e-3 * case.unit_of_scores * torch.randn(amount, 1, n, generator=generator, dtype=torch.float64)
    return torch.cat([informed, near_tie, normal], 1)


def _separation(scores: Tensor, p: Tensor, k: int) -> Tensor:
    """Returns the smallest score of the k most probable classes minus the largest of the others, (S,)."""
    order = p.argsort(descending=True)
    return scores[:, order[:k]].amin(1) - scores[:, order[k:]].amax(1)


def _free_basis(n: int) -> Tensor:
    """Returns an orthonormal basis (n, n - 1) of the scores with mean zero: a constant changes no loss."""
    return torch.linalg.svd(torch.ones(1, n, dtype=torch.float64))[2][1:].T


def _tied_basis(p: Tensor, k: int) -> Tensor:
    """Returns a basis (n, n - 2) of those in which the k-th and the (k+1)-th most probable class tie."""
    order = p.argsort(descending=True)
    constraints = torch.ones(2, len(p), dtype=torch.float64)
    constraints[1] = 0
    constraints[1, order[k - 1]], constraints[1, order[k]] = 1, -1
    return torch.linalg.svd(constraints)[2][2:].T


def _topk(values: Tensor, k: int) -> str:
    return " ".join(str(index) for index in sorted(values.topk(k).indices.tolist()))


def _random_weights(n: int, generator: torch.Generator) -> Tensor:
    while True:
        weights = -torch.rand(n, generator=generator, dtype=torch.float64).log()
        ordered = weights.sort(descending=True).values / weights.sum()
        if (ordered[:-1] - ordered[1:]).min() >= SIMPLEST_GAP and ordered[-1] >= SIMPLEST_GAP:
            return weights


def _recorded(folder: Path) -> set[tuple]:
    table = read_calibration(folder)
    return set(zip(*(table[name] for name in KEY), strict=True))

"""The loss and its gradient against 60 digits, for whatever k, n, τ, scale, offset, mask, ties, margin and dtype."""

import random
from functools import partial
from typing import NamedTuple

import pytest
import torch
from accuracy import GRADIENT, LOSS
from reference import reference_gradient, reference_loss, relative_error

from smooth_topk import smooth_topk_loss
from smooth_topk.pivot.composition import composed_losses

SMALLEST = {torch.float32: 1e-37, torch.float64: 1e-300}  # below, digits are lost
FAST, SLOW, PIECES, FRESH = 300, 5000, 10, 20


class Case(NamedTuple):
    """One row of scores and what is asked of it."""

    scores: tuple[float, ...]
    label: int
    k: int
    tau: float
    margin: float
    dtype: torch.dtype


def random_case(seed: int) -> Case:
    draw = random.Random(seed)
    n = round(2 * 24 ** draw.random())  # 2 to 48, the small ones as often as the large ones
    scale, offset = 10 ** draw.uniform(-3, 3), draw.choice([0.0, 0.0, -30.0, 1e3, -1e5])
    scores = [draw.gauss(0, scale) for _ in range(n)]
    if draw.random() < 0.2:  # ties
        scores = [scale * round(2 * score / scale) / 2 for score in scores]
    label, mask = draw.randrange(n), draw.choice([0.0, 0.0, 0.0, 0.2, 0.9])
    scores = [-torch.inf if i != label and draw.random() < mask else score + offset for i, score in enumerate(scores)]
    dtype = draw.choice([torch.float32, torch.float64])
    return Case(
        scores=tuple(torch.tensor(scores, dtype=torch.float64).to(dtype).tolist()),
        label=label,
        k=draw.randint(1, n - 1),
        tau=draw.choice([10 ** draw.uniform(-4, 2), 1.0, 1e-12]),
        margin=draw.choice([1.0, 0.0, 10 ** draw.uniform(-2, 1)]),
        dtype=dtype,
    )


def public_loss(scores, labels, k, tau, margin, backend):
    return smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin, backend=backend)


WAYS = {
    "auto": partial(public_loss, backend="auto"),
    "torch": partial(public_loss, backend="torch"),
    "composition": lambda *arguments: composed_losses(*arguments).sum(),
}


def check(case: Case) -> None:
    truth = reference_loss(case.scores, case.label, case.k, case.tau, case.margin)
    derivatives = reference_gradient(case.scores, case.label, case.k, case.tau, case.margin)
    largest = max(map(abs, derivatives))
    for name, way in WAYS.items():
        scores = torch.tensor([case.scores], dtype=case.dtype, requires_grad=True)
        loss = way(scores, torch.tensor([case.label]), case.k, case.tau, case.margin)
        (gradient,) = torch.autograd.grad(loss, scores)
        smallest = SMALLEST[case.dtype]
        loss_error = relative_error(loss.item(), truth) if truth > smallest else abs(loss.item() - truth) / smallest
        assert loss_error <= (LOSS[case.dtype] if truth > smallest else 1.0), (name, float(loss_error), case)
        errors = [abs(ours - exact) for ours, exact in zip(gradient[0].tolist(), derivatives, strict=True)]
        gradient_error = float(max(errors) / max(largest, smallest))
        assert gradient_error <= (GRADIENT[case.dtype] if largest > smallest else 1.0), (name, gradient_error, case)


@pytest.mark.parametrize("piece", range(PIECES))
def test_random_cases_are_exact(piece):
    for seed in range(piece, FAST, PIECES):
        check(random_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
def test_many_random_cases_are_exact(piece):
    for seed in range(FAST + piece, FAST + SLOW, PIECES):
        check(random_case(seed))


def test_a_few_fresh_cases_are_exact():
    """Other cases on every run: a failure prints its seed, and `check(random_case(seed))` repeats it."""
    first = random.SystemRandom().randrange(2**40)
    for seed in range(first, first + FRESH):
        print(f"seed {seed}")
        check(random_case(seed))

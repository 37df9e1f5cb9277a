"""Many small minimisations at once: BFGS on a batch of independent problems, to the precision of float64.

A function of points (A, d) that returns values (A,) goes in; the best points found come out. The line search asks for
the weak Wolfe conditions by bisection, with which BFGS also converges on most functions with kinks (Lewis and Overton
2013), so that hinges can be tried too. Every problem is at its own place of its own line search: one call of the
function serves them all, and none waits for another.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

DECREASE, CURVATURE = 1e-4, 0.9  # of the weak Wolfe conditions
TRIALS = 30  # doublings and bisections of one line search: a step between 1e-9 and 1e9 of the first one
LONGEST_STEP = 1e3  # per iteration; a minimum at infinity is approached, not jumped to
PATIENCE, PROGRESS = 5, 1e-13  # a problem that gains less than PROGRESS for PATIENCE iterations is at a kink: done

Objective = Callable[[Tensor, Tensor], Tensor]


class Minimum(NamedTuple):
    """What `minimise` found for every problem of the batch."""

    points: Tensor  # (B, d)
    values: Tensor  # (B,)
    gradient_norms: Tensor  # (B,)


def minimise(
    objective: Objective,
    starts: Tensor,
    *,
    tolerance: float = 1e-10,
    low_enough: float = -torch.inf,
    evaluations: int = 3000,
) -> Minimum:
    """Minimises every problem of a batch over its own point, from starts (B, d) in float64.

    Args:
        objective: values (A,) of points (A, d) of the problems with the given numbers (A,), a part of 0..B-1;
            differentiable, each value depending on its own point alone.
        starts: (B, d).
        tolerance: a problem is done when the norm of its gradient is below it.
        low_enough: a problem is also done when its value is below this one; a hinge reaches zero step by step.
        evaluations: of the objective, at most.

    Example:
        >>> goal = torch.tensor([1.0, -2.0], dtype=torch.float64)
        >>> found = minimise(lambda x, which: (x[:, 0] - goal[which]).pow(2), torch.zeros(2, 1, dtype=torch.float64))
        >>> found.points.squeeze(1)
        tensor([ 1., -2.], dtype=torch.float64)
    """
    values, gradients = _value_and_gradient(objective, starts, torch.arange(len(starts)))
    result = Minimum(starts.detach().clone(), values.clone(), gradients.norm(dim=1))
    search = _Search.begin(starts.detach(), values, gradients)
    for _ in range(evaluations):
        active = (search.gradients.norm(dim=1) > tolerance) & (search.values > low_enough) & (search.idle < PATIENCE)
        search = search.part(active)
        if not len(search.problem):
            break
        ended = search.try_step(objective)
        search.next_iteration(ended)
        result.points[search.problem] = search.points
        result.values[search.problem] = search.values
        result.gradient_norms[search.problem] = search.gradients.norm(dim=1)
    return result


@dataclass
class _Search:
    """Where every problem that goes on is: its point, its inverse Hessian, and its line search."""

    problem: Tensor  # (A,) numbers of the problems
    points: Tensor  # (A, d)
    values: Tensor  # (A,)
    gradients: Tensor  # (A, d)
    inverse: Tensor  # (A, d, d)
    idle: Tensor  # (A,) iterations without progress
    directions: Tensor  # (A, d) of the line search, and its state:
    step: Tensor  # (A,) the length to try next
    low: Tensor  # (A,) a length known to be too short
    high: Tensor  # (A,) one known to be too long
    trials: Tensor  # (A,)
    best_points: Tensor  # (A, d) the lowest point of this line search that is not too far
    best_values: Tensor  # (A,)
    best_gradients: Tensor  # (A, d)

    @classmethod
    def begin(cls, points: Tensor, values: Tensor, gradients: Tensor) -> "_Search":
        count, zeros = torch.arange(len(points)), torch.zeros_like(values)
        inverse = torch.eye(points.shape[1], dtype=points.dtype).repeat(len(points), 1, 1)
        found = cls(
            count, points, values, gradients, inverse, 0 * count, -gradients, zeros + 1, zeros, zeros + torch.inf,
            0 * count, points, values, gradients,
        )  # fmt: skip
        return found.part(torch.ones_like(count, dtype=torch.bool))  # a copy: tensors are changed in place

    def part(self, chosen: Tensor) -> "_Search":
        return _Search(*(getattr(self, item.name)[chosen] for item in fields(self)))

    def try_step(self, objective: Objective) -> Tensor:
        """Evaluates one step of every line search, and returns which of them have ended."""
        tried = self.points + self.step[:, None] * self.directions
        values, gradients = _value_and_gradient(objective, tried, self.problem)
        slopes = (self.directions * self.gradients).sum(1)
        too_long = ~(values <= self.values + DECREASE * self.step * slopes)  # also a value that is not a number
        too_short = ~too_long & ((gradients * self.directions).sum(1) < CURVATURE * slopes)
        better = ~too_long & (values <= self.best_values)
        self.best_points[better], self.best_values[better] = tried[better], values[better]
        self.best_gradients[better] = gradients[better]
        self.high = torch.where(too_long, self.step, self.high)
        self.low = torch.where(too_short, self.step, self.low)
        self.step = torch.where(self.high.isinf(), 2 * self.step, (self.low + self.high) / 2)
        self.trials += 1
        return ~(too_long | too_short) | (self.trials >= TRIALS)

    def next_iteration(self, ended: Tensor) -> None:
        """Moves the problems whose line search has ended, and chooses their next direction."""
        points, values, gradients = self.best_points[ended], self.best_values[ended], self.best_gradients[ended]
        inverse = _updated(self.inverse[ended], points - self.points[ended], gradients - self.gradients[ended])
        gained = self.values[ended] - values > PROGRESS * (1 + values.abs())
        self.idle[ended] = torch.where(gained, 0, self.idle[ended] + 1)
        directions = -(inverse @ gradients[:, :, None]).squeeze(2)
        # Begin again with the gradient where rounding has spoiled the inverse, or where no step helped.
        again = ((directions * gradients).sum(1) >= 0) | (points == self.points[ended]).all(1)
        inverse[again] = torch.eye(points.shape[1], dtype=points.dtype)
        directions[again] = -gradients[again]
        directions *= LONGEST_STEP / directions.norm(dim=1, keepdim=True).clamp(min=LONGEST_STEP)
        self.points[ended], self.values[ended], self.gradients[ended] = points, values, gradients
        self.inverse[ended], self.directions[ended] = inverse, directions
        self.step[ended], self.low[ended], self.high[ended], self.trials[ended] = 1.0, 0.0, torch.inf, 0


def _updated(inverse: Tensor, steps: Tensor, changes: Tensor) -> Tensor:
    """Returns the BFGS update of the inverse Hessian, and the old one where the curvature is not positive."""
    curvature = (steps * changes).sum(1)
    usable = curvature > 1e-300
    rho = torch.where(usable, 1 / curvature, 0.0)[:, None, None]
    left = torch.eye(steps.shape[1], dtype=steps.dtype) - rho * steps[:, :, None] * changes[:, None, :]
    updated = left @ inverse @ left.transpose(1, 2) + rho * steps[:, :, None] * steps[:, None, :]
    return torch.where((usable & updated.isfinite().all(2).all(1))[:, None, None], updated, inverse)


def _value_and_gradient(objective: Objective, points: Tensor, problems: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = points.detach().requires_grad_()
        values = objective(leaf, problems)
        (gradients,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), gradients

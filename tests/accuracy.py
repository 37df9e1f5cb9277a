"""The accuracy that is promised, in one place, and what measures it: losses and gradients against 60 digits."""

import torch
from reference import reference_gradient, reference_loss

LOSS = {torch.float32: 2e-7, torch.float64: 1e-12}  # relative
GRADIENT = {torch.float32: 4e-7, torch.float64: 2e-12}  # of its largest entry
SMALLEST_LOSS = 1e-6  # below it the loss is the tail of an exponential, and only its size matters
SMALLEST_DERIVATIVE = torch.finfo(torch.float32).tiny  # what is smaller may be rounded to zero


def random_scores(rows, classes, scale=1.0, dtype=torch.float32, seed=0):
    """Scores (rows, classes) and labels (rows,)."""
    generator = torch.Generator().manual_seed(seed)
    scores = (scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)).to(dtype)
    return scores, torch.randint(classes, (rows,), generator=generator)


def assert_close(loss, derivatives, true_loss, true_derivatives, dtype):
    """One row: the loss by its size, the derivatives by the largest of them."""
    assert abs(float(loss) - float(true_loss)) <= LOSS[dtype] * max(float(true_loss), SMALLEST_LOSS)
    truth = torch.tensor([float(derivative) for derivative in true_derivatives], dtype=torch.float64)
    bound = max(GRADIENT[dtype] * truth.abs().max().item(), SMALLEST_DERIVATIVE)
    assert (derivatives.cpu().double() - truth).abs().max() <= bound


def assert_exact(scores, labels, k, tau, losses, gradient, margin=1.0):
    """Every row's loss and gradient are those of 60 digits, within what is promised."""
    for row, label, loss, derivatives in zip(scores.tolist(), labels.tolist(), losses, gradient, strict=True):
        arguments = row, label, k, tau, margin
        assert_close(loss, derivatives, reference_loss(*arguments), reference_gradient(*arguments), scores.dtype)

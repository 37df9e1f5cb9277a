"""What is asked of every kernel: losses and gradients within the promised error of 60-digit arithmetic."""

import torch
from reference import reference_gradient, reference_loss, relative_error

# Relative; about 16 roundings of float32, and some thousand of float64.
LOSS_TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
# Of the largest derivative; Horner's rule loses up to 2**8 roundings in float32, and up to 2**16 in float64.
GRADIENT_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
SMALLEST_LOSS = 1e-6  # below it the loss is the tail of an exponential, and only its size matters
SMALLEST_DERIVATIVE = torch.finfo(torch.float32).tiny  # what is smaller may be rounded to zero


def random_scores(rows, classes, scale=1.0, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = (scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)).to(dtype)
    return scores, torch.randint(classes, (rows,), generator=generator)


def assert_exact(scores, labels, k, tau, losses, gradient, margin=1.0):
    """Losses and gradients equal the 60-digit reference within the tolerances."""
    tolerance = LOSS_TOLERANCE[scores.dtype]
    for row, label, loss, derivatives in zip(scores.tolist(), labels.tolist(), losses, gradient.double(), strict=True):
        true_loss = reference_loss(row, label, k, tau, margin)
        if true_loss > SMALLEST_LOSS:
            assert relative_error(loss.item(), true_loss) < tolerance
        else:
            assert abs(loss.item() - float(true_loss)) < SMALLEST_LOSS * tolerance
        truth = torch.tensor([float(d) for d in reference_gradient(row, label, k, tau, margin)], dtype=torch.float64)
        bound = max(GRADIENT_TOLERANCE[scores.dtype] * truth.abs().max().item(), SMALLEST_DERIVATIVE)
        assert (derivatives - truth).abs().max() <= bound

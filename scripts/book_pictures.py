"""The pictures of the book's own pages, drawn when it is built: formulas and recorded numbers in, SVG files out."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
import torch

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study import figures, scaling
from smooth_topk.study.figures.scaling import scaling_figure
from smooth_topk.study.notebook import use_style
from smooth_topk.study.records import RESULT_TYPES, read_runs

SIZE = {"figsize": (3.9, 3.1)}
OTHER_SCORES = [6.1, 5.0, 4.5, 3.2, 2.4, 0.6, -0.5, -1.4, -2.6]  # those the explorer starts with


def draw_pictures(folder: Path, results: Path) -> None:
    """Writes loss.svg, gradient.svg and noise.svg of the landing page, and scaling.svg of the page on servers.

    Args:
        folder: where they go.
        results: book/results; only the paper's numbers are drawn from it.
    """
    mpl.use("agg")
    use_style()
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"loss": _loss, "gradient": _gradient, "noise": lambda: _noise(results), "scaling": _scaling}
    for name, draw in pictures.items():
        axes = draw()
        axes.figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def derivative_shares(taus: list[float], *, k: int = 5, classes: int = 100, samples: int = 256) -> pd.DataFrame:
    """Share of the derivatives that are not zero in float32, for scores drawn from a normal distribution.

    Returns:
        Columns tau (0 is the hard loss) and share.
    """
    scores = torch.randn(samples, classes, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(samples) % classes

    def share(loss: torch.Tensor) -> float:
        (gradient,) = torch.autograd.grad(loss, scores)
        return (gradient != 0).float().mean().item()

    rows = [(tau, share(smooth_topk_loss(scores, labels, k=k, tau=tau, reduction="sum"))) for tau in taus]
    rows.append((0.0, share(hard_topk_loss(scores, labels, k=k, reduction="sum"))))
    return pd.DataFrame(rows, columns=["tau", "share"])


def _loss():
    table = figures.loss_curve_table(torch.tensor(OTHER_SCORES), k=5, taus=[0.01, 0.5, 2.0], cross_entropy=False)
    return figures.loss_curves(table, ax=figures.new_axes(**SIZE))


def _gradient():
    taus = [10 ** (exponent / 4) for exponent in range(-16, 5)]
    return figures.gradient_sparsity(derivative_shares(taus), ax=figures.new_axes(**SIZE))


def _scaling():
    chapters = scaling.study_runs("paper")
    return scaling_figure(scaling.scaling_table(chapters, range(1, 65)), scaling.useful_gpus(chapters))


def _noise(results: Path):
    runs = read_runs(results)
    runs = runs.reindex(columns=[*runs, *(name for name in RESULT_TYPES if name not in runs)]).iloc[:0]
    return figures.noise_figure(runs, ax=figures.new_axes(**SIZE))

"""The pictures of the book's own pages and of the README: formulas and recorded numbers in, SVG files out.

    python scripts/book_pictures.py        draws book/results/*.svg, which the README shows, from the CSV files there

Those of the book's pages are drawn whenever it is built. The same numbers give the same bytes.
"""

import io
import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import torch

from smooth_topk import hard_topk_loss, smooth_topk_loss
from smooth_topk.study import configs, evidence, figures, scaling
from smooth_topk.study.figures.scaling import scaling_figure
from smooth_topk.study.files import write_whole
from smooth_topk.study.notebook import use_style

ROOT = Path(__file__).resolve().parents[1]
SIZE = {"figsize": (3.9, 3.1)}
OTHER_SCORES = [6.1, 5.0, 4.5, 3.2, 2.4, 0.6, -0.5, -1.4, -2.6]  # those the explorer starts with


def draw_pictures(folder: Path) -> None:
    """Writes loss.svg, gradient.svg and noise.svg of the landing page, and scaling.svg of the page on servers."""
    _write({"loss": _loss, "gradient": _gradient, "noise": _paper_alone, "scaling": _scaling}, folder)


def draw_readme_pictures(folder: Path, results: Path) -> list[Path]:
    """Writes speed.svg, errors.svg and noise.svg, those whose numbers are recorded, and returns their paths.

    Args:
        folder: where they go; book/results for the README.
        results: book/results.
    """
    sources = {"speed": "speed_loss.csv", "errors": "stability.csv", "noise": "runs.csv"}
    draw = {"speed": lambda: _speed(results), "errors": lambda: _errors(results), "noise": lambda: _noise(results)}
    return _write({name: draw[name] for name, source in sources.items() if (results / source).exists()}, folder)


def _write(pictures: dict, folder: Path) -> list[Path]:
    mpl.use("agg")
    use_style()
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in pictures.items():
        file, axes = io.BytesIO(), draw()
        axes.figure.savefig(file, format="svg", metadata={"Date": None})
        write_whole(folder / f"{name}.svg", file.getvalue())
    return [folder / f"{name}.svg" for name in pictures]


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


def _paper_alone():
    return figures.noise_figure(None, ax=figures.new_axes(**SIZE))


def _scaling():
    chapters = scaling.study_runs("paper")
    return scaling_figure(scaling.scaling_table(chapters, range(1, 65)), scaling.useful_gpus(chapters))


def _speed(results: Path):
    times = pd.read_csv(results / "speed_loss.csv")
    times = times[(times["tau"] == 1) & (times["threads"] == times["threads"].max())]
    return figures.speed_figure(times, baseline="cross_entropy")[0]


def _errors(results: Path):
    return figures.stability_figure(pd.read_csv(results / "stability.csv"))[0]


def _noise(results: Path):
    return figures.noise_beside_paper(evidence.recorded_runs(configs.table_1_noise("laptop"), results))[0]


if __name__ == "__main__":
    for path in draw_readme_pictures(ROOT / "book/results", ROOT / "book/results"):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")
    sys.exit(0)

"""The pictures of the book's own pages and of the README: formulas and recorded numbers in, SVG files out.

    python scripts/book_pictures.py        draws book/results/*.svg, which the README shows, from the CSV files there,
                                           and writes README's table of speed

Those of the book's pages are drawn whenever it is built. The same numbers give the same bytes.
"""

import io
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import torch
from matplotlib.axes import Axes

from smooth_topk.study import figures, measure, tables
from smooth_topk.study.chapters.spider import PHOTOGRAPH
from smooth_topk.study.experiments import registry
from smooth_topk.study.figures.style import use_style
from smooth_topk.study.records import evidence
from smooth_topk.study.records.files import write_whole
from smooth_topk.study.records.imagenet_scores import read_scores
from smooth_topk.study.records.paths import project_root
from smooth_topk.study.tables.findings import RECORDED_SEEDS
from smooth_topk.study.tables.speed_in_short import speed_in_short

ROOT = project_root()
SIZE = (3.4, 2.9)  # inches: about a third of the page, so that the letters keep their size
OTHER_SCORES = [6.1, 5.0, 4.5, 3.2, 2.4, 0.6, -0.5, -1.4, -2.6]  # those the explorer starts with


def draw_pictures(folder: Path) -> None:
    """Writes the pictures of the landing page, claims.svg of the results page."""
    landing = {"names": _names, "loss": _loss, "gradient": _gradient, "noise": _lead_under_noise}
    _write(landing | {"claims": _claims}, folder)


def draw_readme_pictures(folder: Path, results: Path) -> list[Path]:
    """Writes names.svg, speed.svg, errors.svg and noise.svg, those whose numbers are recorded, and returns their paths.

    Args:
        folder: where they go; book/results for the README.
        results: book/results.
    """
    sources = {
        "names": "imagenet_scores.npz",
        "speed": "speed_loss.csv",
        "errors": "stability.csv",
        "noise": "runs.csv",
    }
    draw = {
        "names": _names,
        "speed": lambda: _speed(results),
        "errors": lambda: _errors(results),
        "noise": lambda: _noise(results),
    }
    return _write({name: draw[name] for name, source in sources.items() if (results / source).exists()}, folder)


def _write(pictures: dict[str, Callable[[], Axes]], folder: Path) -> list[Path]:
    mpl.use("agg")
    use_style()
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in pictures.items():
        file, figure = io.BytesIO(), draw().get_figure(root=True)
        assert figure is not None
        figure.savefig(file, format="svg", metadata={"Date": None})
        write_whole(folder / f"{name}.svg", file.getvalue())
    return [folder / f"{name}.svg" for name in pictures]


def _names() -> Axes:
    """What a trained network says of one photograph of ImageNet that shows a spider in its web."""
    recorded = read_scores()
    assert recorded is not None, "imagenet_scores.npz is part of the project"
    scores = recorded.scores[PHOTOGRAPH].softmax(-1)
    shares, order = scores.topk(7)
    names = [recorded.class_names[index] for index in order]
    true = order == recorded.labels[PHOTOGRAPH]
    table = pd.DataFrame({"name": names, "probability": shares, "true": true})
    return figures.plausible_names(table, ax=figures.new_axes(figsize=(5.0, 2.9)))


def _loss() -> Axes:
    others, true_scores = torch.tensor(OTHER_SCORES), torch.linspace(-5, 40, 201)
    table = measure.loss_curve_table(others, true_scores, k=5, taus=[0.5, 1.5, 4.0], cross_entropy=False)
    ax = figures.loss_curves(table, ax=figures.new_axes(figsize=SIZE))
    ax.legend()
    return ax


def _gradient() -> Axes:
    """Of 256 samples of normal scores in float32."""
    taus = [0.0, *(10 ** (exponent / 4) for exponent in range(-16, 5))]
    scores = torch.randn(256, 100, generator=torch.Generator().manual_seed(0))
    shares = measure.nonzero_shares(scores, torch.arange(256) % 100, k=5, taus=taus)
    return figures.gradient_sparsity(shares, ax=figures.new_axes(figsize=SIZE))


def _lead_under_noise() -> Axes:
    """What the smooth loss gains over cross-entropy on features, with either choice of rate and decay."""
    ax = figures.noise_differences(_noise_runs(), ax=figures.new_axes(figsize=SIZE))
    ax.set_ylabel("gain in top-5 (points)")
    ax.legend(loc="upper left", fontsize=8, labelspacing=0.3, handletextpad=0.4, borderaxespad=0.1)
    ax.set_ylim(top=8.4)  # room for the legend
    return ax


def _claims() -> Axes:
    """What the results page begins with: a dot and an interval per claim."""
    return figures.claims_figure(tables.claims())


def _speed(results: Path) -> Axes:
    times = pd.read_csv(results / "speed_loss.csv")
    times = times[(times["tau"] == 1) & (times["threads"] == times["threads"].max())]
    return figures.speed_figure(times, baseline="cross_entropy")[0]


def _errors(results: Path) -> Axes:
    return figures.stability_figure(pd.read_csv(results / "stability.csv"))[0]


def _noise(results: Path) -> Axes:
    """Table 1 on features: accuracy with each loss tuned, and the lead with either choice of rate and decay."""
    return figures.noise_summary(*_noise_runs(results).values())[0]


def _noise_runs(results: Path | None = None) -> dict[str, pd.DataFrame]:
    """The recorded runs of Table 1 on features: each loss tuned, and the paper's rate and decay for both."""
    grids = {
        "each loss tuned": registry.table_1_noise("quick", seeds=RECORDED_SEEDS),
        "the paper's rate and decay": registry.noise_with_the_papers_pair(RECORDED_SEEDS),
    }
    return {name: evidence.published(grid, results) for name, grid in grids.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Draws the pictures of the README, and writes README's table of speed."""
    ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter).parse_args(arguments)
    paths = draw_readme_pictures(ROOT / "book/results", ROOT / "book/results")
    for path in paths:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")
    write_readme_speed()
    return 0


def write_readme_speed() -> None:
    """Puts what the recorded benchmark says in short between two marks of the README."""
    readme = ROOT / "README.md"
    write_whole(readme, with_speed(readme.read_text(encoding="utf-8"), ROOT / "book/results").encode())


def with_speed(text: str, results: Path) -> str:
    """The text with everything between its two marks replaced by `speed_in_short` of the results."""
    start, end = "<!-- speed_in_short -->\n", "<!-- /speed_in_short -->"
    before, _, rest = text.partition(start)
    return f"{before}{start}\n{speed_in_short(results)}\n{end}{rest.partition(end)[2]}"

"""What the loss costs, in short: the recorded benchmark in, the table and sentences of README and chapter 7 out."""

import textwrap
from pathlib import Path

import pandas as pd

from smooth_topk.study.tables.cells import NOT_RUN
from smooth_topk.study.tables.speed_ratios import ratio_text

COLUMNS = {
    "fused_numba": "Numba",
    "pivot_compiled": "`torch.compile`",
    "pivot": "plain torch",
}
WIDTH = 120  # of a line of the README
NETWORKS = {"small": "a small network", "densenet40_12": "DenseNet 40-12", "resnet18": "ResNet-18"}


def speed_in_short(results: Path) -> str:
    """Returns Markdown: a table of multiples of cross-entropy's time, and what memory and training steps cost.

    Args:
        results: folder of speed_loss.csv, speed_memory.csv and speed_training_step.csv; speed_cases.csv may be missing.
    """
    paths = [results / f"speed_{name}.csv" for name in ("loss", "memory", "training_step")]
    if not all(path.exists() for path in paths):
        return "not recorded\n"
    loss, memory, steps = map(pd.read_csv, paths)
    cases = results / "speed_cases.csv"
    times = pd.concat([loss, pd.read_csv(cases)]) if cases.exists() else loss
    table = ratio_table(times)
    text = table.to_markdown(index=False, disable_numparse=True, colalign=["left"] + ["right"] * (table.shape[1] - 1))
    return f"{text}\n\n{textwrap.fill(sentences(loss, memory, steps), WIDTH, break_on_hyphens=False)}\n"


def ratio_table(times: pd.DataFrame) -> pd.DataFrame:
    """Returns times as multiples of cross-entropy's, a row per batch, n and k, with all threads and τ = 1.

    Args:
        times: columns algorithm, batch, n, k, tau, threads, ratio; the first of two rows of one cell counts.
    """
    times = times[(times["threads"] == times["threads"].max()) & (times["tau"] == 1)]
    cells = times.pivot_table(index=["k", "n", "batch"], columns="algorithm", values="ratio", aggfunc="first")
    rows = [
        {"batch × n": f"{batch} × {n:,}", "k": f"{k}"}
        | {title: _multiple(row.get(name, float("nan"))) for name, title in COLUMNS.items()}
        for (k, n, batch), row in cells.iterrows()
    ]
    return pd.DataFrame(rows)


def sentences(loss: pd.DataFrame, memory: pd.DataFrame, steps: pd.DataFrame) -> str:
    """Returns what the files say about time, memory and training steps."""
    plain, fused = (memory[memory["algorithm"] == name]["ratio"] for name in ("pivot", "fused_numba"))
    extra = steps[steps["loss"] == "smooth"].set_index("model")["extra"]
    shares = [f"{100 * share:.2f} % of a training step of {NETWORKS[model]}" for model, share in extra.items()]
    slowest = loss[(loss["algorithm"] == "divide_and_conquer")]["ratio"]
    return (
        "Numba is the default where it is installed. "
        f"The paper's divide and conquer takes {slowest.min():.0f} to {slowest.max():.0f} times as long as "
        f"cross-entropy. The most memory that forward and backward hold at once is {_range(plain)} times "
        f"that of cross-entropy in plain torch, and {_range(fused)} times with Numba. "
        f"Beyond cross-entropy, the loss takes {', '.join(shares[:-1])} and {shares[-1]}."
    )


def _range(ratios: pd.Series) -> str:
    low, high = f"{ratios.min():.2f}", f"{ratios.max():.2f}"
    return low if low == high else f"{low} to {high}"


def _multiple(ratio: float) -> str:
    return NOT_RUN if ratio != ratio else ratio_text(ratio).removesuffix("x")

"""Times of chapter 7 as multiples of the time of cross-entropy."""

import pandas as pd

from smooth_topk.study.tables.cells import NOT_RUN
from smooth_topk.study.tables.names import algorithm_name
from smooth_topk.study.tables.speed import milliseconds_text


def cost_table(times: pd.DataFrame) -> pd.DataFrame:
    """Returns milliseconds and their ratio to cross-entropy's by algorithm: `2.10 (1.9x)`.

    Args:
        times: columns algorithm, n, threads, tau, seconds, ratio; may have loss_error and gradient_error, whose largest
            values follow.
    """
    if times.empty:
        return _not_recorded("algorithm")
    cell = [f"{milliseconds_text(s)} ({ratio_text(r)})" for s, r in zip(times.seconds, times.ratio, strict=True)]
    times = times.assign(cell=cell, **{"τ": times["tau"].map("{:g}".format)})
    index = ["threads", "τ", "algorithm"]
    order = times[index].drop_duplicates()
    cells = times.pivot_table(index=index, columns="n", values="cell", aggfunc="first").reindex(
        pd.MultiIndex.from_frame(order)
    )
    batches = times.groupby("n")["batch"].first() if "batch" in times and times["batch"].nunique() > 1 else {}
    cells.columns = [f"n = {n:,}" + (f", batch {batches[n]}" if n in batches else "") for n in cells.columns]
    for error, title in (("loss_error", "loss error"), ("gradient_error", "gradient error")):
        if error in times:
            worst = times.groupby(index)[error].max().reindex(cells.index)
            cells[title] = [f"{value:.0e}" if value == value else "" for value in worst]
    return cells.where(cells.notna(), NOT_RUN).rename(index=algorithm_name, level="algorithm")


def ratio_text(ratio: float) -> str:
    """Returns a ratio with two digits or all before the point.

    Example:
        >>> ratio_text(1.234), ratio_text(0.352), ratio_text(181.3)
        ('1.2x', '0.35x', '181x')
    """
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def _not_recorded(index: str) -> pd.DataFrame:
    """A table of one cell, for a measurement that has no file."""
    return pd.DataFrame({NOT_RUN: [NOT_RUN]}, index=pd.Index(["not recorded"], name=index))

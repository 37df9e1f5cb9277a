"""Tables 3, 4 and 5: time and stability of the algorithms, the paper's (Titan Xp) next to ours."""

from collections.abc import Callable, Iterable

import pandas as pd

from smooth_topk.study.records.paper import paper_table
from smooth_topk.study.tables.cells import NOT_IN_PAPER, NOT_RUN
from smooth_topk.study.tables.names import algorithm_name

# The paper's abbreviations and the names of the same algorithms here.
NAMES = {
    "SA": "summation",
    "DC": "divide_and_conquer",
    "DC log": "divide_and_conquer",
    "DC (AD)": "divide_and_conquer_autograd",
    "DC (CB)": "divide_and_conquer",
}
DIRECTIONS = {"forward": 3, "backward": 4}


def speed_table(times: pd.DataFrame, direction: str) -> pd.DataFrame:
    """Returns Table 3 (forward) or Table 4 (backward): milliseconds by algorithm and number of classes n.

    Args:
        times: columns algorithm, direction, n, seconds; several rows of one cell are one measurement repeated, and the
            median is shown.
        direction: "forward" or "backward".
    """
    if direction not in DIRECTIONS:
        raise ValueError(f"direction must be forward (Table 3) or backward (Table 4), got direction={direction!r}.")
    paper, ours = paper_table(DIRECTIONS[direction]), times[times["direction"] == direction]
    sizes = sorted(set(paper["n"]) | set(ours["n"]))
    rows = {
        ("paper, Titan Xp", name): _row(part, sizes, NOT_IN_PAPER, _paper_text)
        for name, part in paper.groupby("algorithm", sort=False)
    }
    expected = dict.fromkeys(NAMES[name] for name in paper["algorithm"])
    for name in [*expected, *(name for name in dict.fromkeys(ours["algorithm"]) if name not in expected)]:
        rows["ours", algorithm_name(name)] = _row(ours[ours["algorithm"] == name], sizes, NOT_RUN)
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[f"n = {n:,}" for n in sizes])
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["milliseconds", "algorithm"])
    return table


def stability_table(measured: pd.DataFrame) -> pd.DataFrame:
    """Returns Table 5: whether the forward pass overflows, by algorithm, precision and tau.

    Args:
        measured: columns algorithm, dtype ("float32", "float64"), tau, stable; where there is a column error, the
            largest relative error stands next to the mark, since a finite number may still be wrong.
    """
    paper = paper_table(5)
    taus = sorted({*paper["tau"], *measured["tau"]}, reverse=True)
    rows = {}
    for source, table, absent in (("paper", paper, NOT_IN_PAPER), ("ours", measured, NOT_RUN)):
        names = dict.fromkeys(zip(table["algorithm"], table["dtype"], strict=True))
        for name, dtype in names or {("summation", "float32"): None, ("divide_and_conquer", "float32"): None}:
            part = table[(table["algorithm"] == name) & (table["dtype"] == dtype)]
            rows[source, algorithm_name(name), dtype] = [_mark(part[part["tau"] == tau], absent) for tau in taus]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[f"τ = {tau:g}" for tau in taus])
    table.index = pd.MultiIndex.from_tuples(table.index).rename(["source", "algorithm", "precision"])
    return table


def milliseconds_text(seconds: float) -> str:
    """Returns a time in milliseconds with three digits, and never more than three after the point.

    Example:
        >>> [milliseconds_text(seconds) for seconds in (8.064, 0.0269, 0.00235, 0.0000484)]
        ['8,064', '26.9', '2.35', '0.048']
    """
    milliseconds = 1000 * seconds
    digits = next((digits for digits, least in enumerate((100, 10, 1)) if milliseconds >= least), 3)
    return f"{milliseconds:,.{digits}f}"


def _paper_text(seconds: float) -> str:
    """The paper prints seconds with three digits after the point: whole milliseconds."""
    return f"{1000 * seconds:,.0f}"


def _row(
    part: pd.DataFrame, sizes: Iterable[int], absent: str, text: Callable[[float], str] = milliseconds_text
) -> list[str]:
    medians = part.groupby("n")["seconds"].median()
    return [text(medians[n]) if n in medians else absent for n in sizes]


def _mark(part: pd.DataFrame, absent: str) -> str:
    if part.empty:
        return absent
    stable = bool(part["stable"].all())
    error = f" {part['error'].max():.0e}".replace("e-0", "e-") if stable and "error" in part else ""
    return ("✓" if stable else "✗") + error

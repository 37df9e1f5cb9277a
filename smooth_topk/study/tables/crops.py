"""Ten crops averaged in several ways: the rows of imagenet_ten_crops.csv in, a table to show out."""

import pandas as pd

from smooth_topk.study.tables.cells import NOT_RUN

METRICS = {"top1": "top-1", "top5": "top-5"}


def ten_crop_table(measured: pd.DataFrame | None) -> pd.DataFrame:
    """Returns accuracy and difference from averaged softmax by method, in percent with 95 % intervals.

    Args:
        measured: columns method, metric, accuracy, low, high, difference, difference_low, difference_high, as shares;
            None where nothing is recorded.
    """
    if measured is None or measured.empty:
        return pd.DataFrame({"accuracy": [NOT_RUN]}, index=pd.Index(["ten crops"], name="method"))
    rows: dict[str, dict[str, str]] = {}
    for row in measured.to_dict("records"):
        name = METRICS[row["metric"]]
        cells = {f"{name} (%)": _cell(row["accuracy"], row["low"], row["high"], "")}
        difference = _cell(row["difference"], row["difference_low"], row["difference_high"], "+")
        rows.setdefault(row["method"], {}).update(cells | {f"{name} − softmax averaged": difference})
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def _cell(value: float, low: float, high: float, sign: str) -> str:
    return f"{100 * value:{sign}.1f} ({100 * low:{sign}.1f} to {100 * high:{sign}.1f})"

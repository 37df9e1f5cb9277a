"""Ten crops averaged in several ways: the rows of imagenet_ten_crops.csv in, a table to show out."""

import pandas as pd

from smooth_topk.study.tables.cells import NOT_RUN
from smooth_topk.study.tables.differences import interval_text

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
        accuracy, low, high = (100 * row[column] for column in ("accuracy", "low", "high"))
        cells = {f"{name} (%)": f"{accuracy:.1f} ({low:.1f} to {high:.1f})"}
        shares = [row[column] for column in ("difference", "difference_low", "difference_high")]
        # The method from which the others differ has no difference of its own.
        difference = interval_text(*(100 * share for share in shares)) if any(shares) else "0"
        rows.setdefault(row["method"], {}).update(cells | {f"{name} − softmax averaged": difference})
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")

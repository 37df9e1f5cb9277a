"""How time grows: the exponents of power laws fitted to measured times."""

import numpy as np
import pandas as pd

SMALLEST = {"n": 1000, "k": 1}  # below, the cost of a call hides that of the work


def fit_exponents(times: pd.DataFrame, variable: str) -> pd.DataFrame:
    """Fits seconds per sample = c · variable^exponent for every algorithm, by least squares on logarithms.

    Args:
        times: columns algorithm, seconds, batch, and the variable.
        variable: "n" or "k".

    Returns:
        Columns algorithm, variable, exponent, smallest, largest, points.

    Example:
        >>> times = pd.DataFrame({"algorithm": "a", "n": [1000, 2000], "batch": 1, "seconds": [1.0, 4.0]})
        >>> fit_exponents(times, "n")["exponent"].round(6).tolist()
        [2.0]
    """
    if variable not in SMALLEST:
        raise ValueError(f"variable must be n or k, got variable={variable!r}.")
    rows = []
    for name, part in times[times[variable] >= SMALLEST[variable]].groupby("algorithm", sort=False):
        x, seconds = part[variable].to_numpy(float), (part["seconds"] / part["batch"]).to_numpy(float)
        if len(set(x)) > 1:
            exponent = float(np.polyfit(np.log(x), np.log(seconds), 1)[0])
            span = {"smallest": int(x.min()), "largest": int(x.max()), "points": len(set(x))}
            rows.append({"algorithm": name, "variable": variable, "exponent": exponent, **span})
    return pd.DataFrame(rows, columns=["algorithm", "variable", "exponent", "smallest", "largest", "points"])

"""The calibration of the family in one table: what was found beside what is known."""

import pandas as pd

from smooth_topk.study.losses import FAMILY
from smooth_topk.study.measure.calibration_theory import KNOWN

VERDICTS = ("right", "tie", "wrong")
SIGNS = {"margin": "margin", "epsilon": "ε", "top1_share": "P₁", "label_smoothing": "ε", "q": "q"}


def calibration_table(measured: pd.DataFrame) -> pd.DataFrame:
    """Returns how often each loss finds the best top k, and whether it is known to be calibrated.

    Args:
        measured: calibration.csv, see measure.calibration.

    Returns:
        One row per loss and setting, temperatures and k pooled: loss, setting, distributions (how many problems, a
        distribution counted once per k and temperature), right, tie, wrong, starts right (the share of random starts
        that end at scores with the right top k), known ("yes", "no", "open") and why.

    Example:
        >>> row = {"loss": "cross_entropy", "parameters": "k=2", "verdict": "right", "starts": 10, "starts_right": 9}
        >>> calibration_table(pd.DataFrame([row]))[["loss", "right", "tie", "wrong", "known"]]
                    loss  right  tie  wrong known
        0  cross-entropy      1    0      0   yes
    """
    table = measured.assign(setting=measured["parameters"].map(_setting))
    rows = []
    for name in (name for name in FAMILY if name in set(table["loss"])):
        for setting, part in table[table["loss"] == name].groupby("setting", sort=False):
            rows.append(
                {"loss": FAMILY[name].title, "setting": setting, "problems": len(part)}
                | {verdict: int((part["verdict"] == verdict).sum()) for verdict in VERDICTS}
                | {"starts right": part["starts_right"].sum() / part["starts"].sum()}
                | {"known": KNOWN[name].answer, "why": KNOWN[name].reason}
            )
    return pd.DataFrame(rows)


def _setting(parameters: str) -> str:
    """The parameters that a row of the table is for: not k, not tau, not what never varies."""
    pairs = [pair.split("=") for pair in parameters.split(", ")]
    return ", ".join(f"{SIGNS[name]} = {value}" for name, value in pairs if name in SIGNS)

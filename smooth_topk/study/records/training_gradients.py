"""training_gradients.csv: what the scores are told, epoch by epoch, which `measure.training_gradients` records."""

from pathlib import Path

import pandas as pd

FILE = "training_gradients.csv"
KEY = ("run_id", "epoch")


def read_training_gradients(folder: str | Path) -> pd.DataFrame:
    """Returns every row of training_gradients.csv; without a file, the columns that matter and no row."""
    path = Path(folder) / FILE
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*KEY, "loss", "share", "norm", "rank"])

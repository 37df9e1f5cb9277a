"""gradient_sparsity.csv: the share of derivatives that are not zero, which `measure.sparsity` records (Figure 2b)."""

from pathlib import Path

import pandas as pd

FILE = "gradient_sparsity.csv"
KEY = ("dataset", "network", "images", "k", "tau", "seed")


def read_sparsity(folder: str | Path) -> pd.DataFrame:
    """Returns the shares of gradient_sparsity.csv, of each network those over the most images; empty without a file."""
    table = read_all_sparsity(folder)
    return table[table["images"] == table.groupby("network")["images"].transform("max")]


def read_all_sparsity(folder: str | Path) -> pd.DataFrame:
    """Returns every row of gradient_sparsity.csv; without a file, the columns that matter and no row."""
    path = Path(folder) / FILE
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*KEY, "share"])

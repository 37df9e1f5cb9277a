"""The numbers of the paper, read from book/results/paper; accuracies in percent, times in seconds."""

import pandas as pd

from smooth_topk.study.records.paths import published_folder


def paper_table(number: int) -> pd.DataFrame:
    """Returns a table of the paper in long form: one row per printed number.

    Args:
        number: 1 to 9, as in the paper's PDF.
    """
    if number not in range(1, 10):
        raise ValueError(f"The paper has Tables 1 to 9, got number={number!r}.")
    return pd.read_csv(published_folder() / "paper" / f"table_{number}.csv")


def paper_facts() -> pd.DataFrame:
    """Returns what Figure 2 and the text around it say in words or single numbers."""
    return pd.read_csv(published_folder() / "paper" / "figure_2.csv")

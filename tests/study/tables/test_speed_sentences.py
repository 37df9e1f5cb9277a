"""Sentences of the chapters about times and errors hold for the recorded measurements."""

import pandas as pd

from smooth_topk.study.records.paths import project_root, published_folder

TREE, BY_AUTOGRAD = "divide_and_conquer", "divide_and_conquer_autograd"


def chapter(name: str) -> str:
    """The text of a chapter on one line."""
    lines = (project_root() / "notebooks" / f"{name}.py").read_text(encoding="utf-8").splitlines()
    return " ".join(" ".join(line.lstrip("# ") for line in lines).split())


def seconds(section: str, by: str = "n") -> pd.DataFrame:
    """Seconds by size (rows) and algorithm (columns)."""
    table = pd.read_csv(published_folder() / f"speed_{section}.csv")
    return table.pivot(index=by, columns="algorithm", values="seconds")


def test_summation_is_as_much_faster_than_the_tree_as_chapter_7_says():
    ratio = (seconds("forward")[TREE] / seconds("forward")["summation"]).round(1)
    sentence = f"On our processor, SA is {ratio.min()} to {ratio.max()} times as fast as DC."
    assert sentence in chapter("07_speed")


def test_the_custom_backward_pass_is_as_fast_as_chapters_5_and_7_say():
    ratio = (seconds("backward")[TREE] / seconds("backward")[BY_AUTOGRAD]).round(1)
    assert (1 / ratio[[100, 1_000]]).between(1.6, 2.0).all()  # "nearly twice as fast with up to 1,000 classes"
    assert ratio[10_000] == 1.0
    slower = f"takes {ratio[100_000]} times as long"
    sentence = f"With 10,000 classes the two take the same time, and with 100,000 the custom backward pass {slower}."
    assert sentence in chapter("07_speed")
    assert f"equally fast with 10,000, and {slower} with 100,000." in chapter("05_backward_pass")


def test_time_and_error_grow_with_k_as_chapter_7_says():
    sweep = pd.read_csv(published_folder() / "speed_k_sweep.csv")
    errors = sweep[sweep["algorithm"] != "cross_entropy"][["loss_error", "gradient_error"]].max(axis=None)
    assert 6e-8 < errors <= 6.5e-8
    said = r"No error of the loss or of the gradient exceeds $6.5 \cdot 10^{-8}$, whatever $k$ is:"
    assert said in chapter("07_speed")
    times = seconds("k_sweep", by="k")["pivot"]
    grown = f"({times[200] / times[100]:.1f} times from $k = 100$ to 200)"
    assert grown in chapter("07_speed")

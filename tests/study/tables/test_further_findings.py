"""Our own questions: every one was run, and the table of chapter 14 gives the numbers of the runs."""

from pathlib import Path

import pandas as pd
import pytest

from smooth_topk.study import tables

RESULTS = Path(__file__).parents[3] / "book" / "results"


def test_every_question_was_run_and_names_its_chapter():
    table = tables.further_table(RESULTS)
    assert not table["what was found"].str.contains(tables.NOT_RUN).any()
    chapters = {path.name[:2] for path in (RESULTS.parents[1] / "notebooks").glob("*.py")}
    assert {f"{number:02}" for number in table["chapter"]} <= chapters


def test_without_records_every_answer_says_not_run(tmp_path):
    assert tables.further_table(tmp_path)["what was found"].str.contains(tables.NOT_RUN).all()


def test_the_accuracy_of_a_small_temperature_is_that_of_its_own_loss_and_rate():
    rows = [("hard", 1.0, 0.1, 0.1), ("smooth", 1e-3, 0.1, 0.2), ("switched_topk", 1e-3, 0.1, 0.3),
            ("switched_topk", 1e-3, 1.6, 0.4)]  # fmt: skip
    runs = pd.DataFrame(rows, columns=["loss", "tau", "learning_rate", "last_test_top5"])
    assert tables.small_temperature(runs, 0.0) == pytest.approx(10)
    assert tables.small_temperature(runs, 1e-3, loss="smooth") == pytest.approx(20)
    assert tables.small_temperature(runs, 1e-3, loss="switched_topk", learning_rate=1.6) == pytest.approx(40)

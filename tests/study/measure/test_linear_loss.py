from smooth_topk.study import measure
from smooth_topk.study.measure.linear_loss import CROSS_ENTROPY, OURS, PLAIN, measure_linear


def test_the_linear_loss_holds_a_chunk_of_scores_and_the_plain_path_all_of_them():
    settings = measure.Settings(rounds=1, sample_seconds=0.001, budget=0.1, threads=(1,))
    table = measure_linear(settings, rows=256, features=16, classes=3000).set_index("algorithm")
    assert set(table.index) <= {OURS, PLAIN, CROSS_ENTROPY}
    assert table.loc[PLAIN, "bytes"] > 1.9 * 4 * 256 * 3000  # scores and their derivatives
    assert table.loc[OURS, "bytes_to_plain"] <= 1 / 10
    assert table.loc[OURS, "seconds"] > 0
    assert table.loc[PLAIN, ["seconds_to_plain", "bytes_to_plain"]].tolist() == [1, 1]

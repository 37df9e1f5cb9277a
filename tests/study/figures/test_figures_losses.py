"""The figures and small tables of chapters 1, 2, 11 and 13: what is drawn is what the package computes."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from drawn import bar_heights

from smooth_topk import smooth_topk_loss, topk_error
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records import imagenet_scores

ROUNDING = 1e-9  # float64, some hundred operations
SCORES = torch.tensor([2.0, -1.0, 0.5, 3.0, 1.0, 0.0], dtype=torch.float64)


@pytest.fixture(autouse=True)
def clean_canvas():
    mpl.use("Agg")
    with mpl.rc_context():
        yield
        plt.close("all")


def random_batch(samples=50, classes=12):
    random = torch.Generator().manual_seed(3)
    scores = 2 * torch.randn(samples, classes, generator=random, dtype=torch.float64)
    return scores, torch.randint(classes, (samples,), generator=random)


def test_the_prediction_loss_is_a_step_at_the_kth_other_score():
    others = torch.linspace(-1, 1, 9)
    true_scores = torch.linspace(-2, 2, 41)
    table = measure.loss_curve_table(others, true_scores, k=2, taus=[], cross_entropy=False, error=True)
    step = table[table["loss"] == "error"]
    scores = torch.cat([torch.tensor(step["true_score"].to_numpy())[:, None], others.double().expand(len(step), -1)], 1)
    errors = [topk_error(row, torch.tensor(0), 2).item() for row in scores]
    assert step["value"].tolist() == errors
    assert set(errors) == {0.0, 1.0}


def test_the_derivative_table_holds_the_gradient_by_descending_score():
    table = measure.derivative_table(SCORES, 2, k=3, taus=[0.5], names=list("abcdef"))
    part = table[table["loss"] == "smooth, τ = 0.5"]
    scores = SCORES.clone().requires_grad_()
    smooth_topk_loss(scores, torch.tensor(2), k=3, tau=0.5).backward()
    assert "".join(part["name"]) == "daecfb"
    assert part["derivative"].tolist() == pytest.approx(scores.grad[SCORES.argsort(descending=True)].tolist())
    assert (table[table["loss"] == "hard"]["derivative"] != 0).sum() == 2


def test_derivative_bars_are_drawn_in_units_of_one_over_k():
    table = measure.derivative_table(SCORES, 2, k=3, taus=[0.5])
    hard, smooth, cross_entropy = figures.derivative_bars(table)
    assert sorted(bar_heights(hard))[0] == pytest.approx(-1)
    for ax, name, scale in ((smooth, "smooth, τ = 0.5", 3), (cross_entropy, "cross_entropy", 1)):
        expected = scale * table[table["loss"] == name]["derivative"]
        assert sorted(bar_heights(ax)) == pytest.approx(sorted(expected))


def test_recorded_scores_are_none_where_nothing_is_recorded(tmp_path):
    assert imagenet_scores.read_scores(folder=tmp_path) is None


def test_recorded_scores_come_back_as_they_were_written(tmp_path):
    scores = np.random.default_rng(0).normal(size=(2, 10, 4)).astype(np.float16)
    content = {"scores": scores, "labels": np.array([3, 1]), "class_names": np.array(list("abcd")), "network": "net"}
    np.savez_compressed(tmp_path / imagenet_scores.TEN_CROPS, **content)
    found = imagenet_scores.read_scores(imagenet_scores.TEN_CROPS, tmp_path)
    assert np.array_equal(found.scores.numpy(), scores.astype(np.float64))
    assert (found.labels.tolist(), found.class_names, found.network) == ([3, 1], tuple("abcd"), "net")


def test_a_damaged_file_of_scores_is_named(tmp_path):
    (tmp_path / imagenet_scores.ONE_CROP).write_bytes(b"half a file")
    with pytest.raises(ValueError, match=r"imagenet_scores\.npz cannot be read"):
        imagenet_scores.read_scores(folder=tmp_path)


def test_the_settings_table_names_each_loss_once():
    runs = [RunConfig(), RunConfig(seed=1), RunConfig(loss="smooth", tau=0.1, learning_rate=1.0)]
    table = tables.settings_table({"e": runs})
    assert table.index.tolist() == [("e", "CE"), ("e", "L_{5,0.1}")]
    assert table["rate"].tolist() == ["0.1", "1"]

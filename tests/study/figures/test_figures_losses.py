"""The figures and small tables of chapters 1, 2, 11 and 13: what is drawn is what the package computes."""

import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from drawn import bar_heights
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from PIL import Image

from smooth_topk import hard_topk_loss, smooth_topk_loss, topk_error
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.data.image_folder import write_image_folder
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.figures import style
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
    table = measure.loss_curve_table(others, k=2, taus=[], cross_entropy=False, error=True)
    step = table[table["loss"] == "error"]
    scores = torch.cat([torch.tensor(step["true_score"].to_numpy())[:, None], others.double().expand(len(step), -1)], 1)
    errors = [topk_error(row, torch.tensor(0), 2).item() for row in scores]
    assert step["value"].tolist() == errors
    assert set(errors) == {0.0, 1.0}


def test_score_bars_fill_the_k_largest_scores_and_name_them_in_order():
    ax = figures.score_bars(SCORES, 2, k=2, names=list("abcdef"))
    assert [bar.get_height() for bar in ax.patches] == sorted(SCORES.tolist(), reverse=True)
    filled = [bar.get_facecolor()[:3] == to_rgba(style.BLUE)[:3] for bar in ax.patches]
    assert filled == [True, True, False, False, False, False]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list("daecfb")


def test_margin_curves_shift_by_k_margins():
    ax = figures.margin_curves(measure.margin_curve_table(SCORES, k=2, tau=0.3, margins=[0.0, 1.5]))
    drawn = {line.get_label(): line for line in ax.lines}
    line = drawn["smooth, τ = 0.3, α = 0"]
    rows = torch.cat([torch.tensor(np.array(line.get_xdata()))[:, None], SCORES.expand(len(line.get_xdata()), -1)], 1)
    expected = smooth_topk_loss(
        rows, torch.zeros(len(rows), dtype=torch.long), k=2, tau=0.3, margin=0.0, reduction="none"
    )
    assert line.get_ydata() == pytest.approx(expected.numpy(), abs=ROUNDING)
    assert drawn["smooth, τ = 0.3, α = 1.5"].get_xdata() == pytest.approx(line.get_xdata() + 3.0)


def test_the_error_by_k_is_in_percent():
    scores, labels = random_batch()
    (line,) = figures.error_by_k(measure.error_by_k_table(scores, labels, ks=[1, 3])).lines
    assert line.get_ydata() == pytest.approx([100 * topk_error(scores, labels, k).item() for k in (1, 3)])


def test_training_accuracy_draws_each_run_in_the_look_of_its_loss():
    epochs = pd.DataFrame({"run_id": ["a", "a", "b", "b"], "epoch": [1, 0, 0, 1], "train_top5": [0.2, 0.1, 0.3, 0.4]})
    ax = figures.training_accuracy(epochs, {"a": "hard, rate 1", "b": "smooth, rate 1"})
    hard, smooth, chance = ax.lines
    assert hard.get_ydata() == pytest.approx([10, 20])
    assert (hard.get_color(), smooth.get_color()) == (style.BROWN, style.BLUE)
    assert chance.get_ydata()[0] == 5


def test_the_derivative_table_holds_the_gradient_by_descending_score():
    table = measure.derivative_table(SCORES, 2, k=3, taus=[0.5], names=list("abcdef"))
    part = table[table["loss"] == "smooth, τ = 0.5"]
    scores = SCORES.clone().requires_grad_()
    smooth_topk_loss(scores, torch.tensor(2), k=3, tau=0.5).backward()
    assert "".join(part["name"]) == "daecfb"
    assert part["derivative"].tolist() == pytest.approx(scores.grad[SCORES.argsort(descending=True)].tolist())
    assert (table[table["loss"] == "hard"]["derivative"] != 0).sum() == 2


def test_derivative_bars_count_what_can_be_seen():
    table = measure.derivative_table(SCORES, 2, k=3, taus=[0.5])
    axes = figures.derivative_bars(table)
    assert axes[0].get_title(loc="left") + axes[0].get_title() == "hard: 2 of 6 exceed 2 % of the largest"
    assert bar_heights(axes[1]) == table[table["loss"] == "smooth, τ = 0.5"]["derivative"].tolist()


def test_the_derivative_map_leaves_zeros_empty():
    scores, labels = random_batch()
    found = measure.derivatives(scores, labels, k=3, taus=[1.0])
    axes = figures.derivative_map(found)
    for ax, values in zip(axes, found.values(), strict=True):
        shown = ax.images[0].get_array()
        assert np.array_equal(~np.ma.getmaskarray(shown), (values != 0).numpy())


@given(
    st.lists(st.floats(-20, 20), min_size=3, max_size=9),
    st.sampled_from([0.05, 0.5, 1.0, 10.0]),
    st.data(),
)
def test_the_smooth_loss_is_a_softplus_of_the_hard_margin_with_a_bounded_correction(values, tau, data):
    k = data.draw(st.integers(1, len(values) - 1))
    scores, labels = (
        torch.tensor([values], dtype=torch.float64),
        torch.tensor([data.draw(st.integers(0, len(values) - 1))]),
    )
    h = measure.hard_margins(scores, labels, k=k)
    least, largest = (
        tau * torch.logaddexp(h / tau + c, torch.zeros(1)) for c in measure.correction_bounds(k, len(values))
    )
    loss = smooth_topk_loss(scores, labels, k=k, tau=tau)
    hard = hard_topk_loss(scores, labels, k=k)
    assert hard.item() == pytest.approx(h.clamp_min(0).item(), abs=ROUNDING)
    assert least - ROUNDING <= loss <= largest + ROUNDING
    assert -tau * math.log(k) - ROUNDING <= loss - hard <= tau * math.log(len(values) - k + 1) + ROUNDING


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_bounds_of_the_correction_are_limits(k):
    classes, far, tau = 9, 1e4, 1.0
    label = torch.tensor([0])
    lowest = torch.full((1, classes), -far, dtype=torch.float64)
    lowest[0, : k + 1] = 0.0  # k others tie, the rest is far below
    highest = torch.zeros(1, classes, dtype=torch.float64)
    highest[0, 1:k] = far  # k - 1 others are far above, the rest ties
    for scores, c in zip((lowest, highest), measure.correction_bounds(k, classes), strict=True):
        loss = smooth_topk_loss(scores, label, k=k, tau=tau, margin=1.0)
        assert loss.item() == pytest.approx(math.log1p(math.exp(1.0 + c)), abs=ROUNDING)


def test_the_counterexample_has_the_hard_loss_that_was_asked_for():
    asked = torch.tensor([0.0, 0.5, 4.0], dtype=torch.float64)
    scores, labels = measure.counterexample(asked, k=3, classes=7)
    assert hard_topk_loss(scores, labels, k=3, reduction="none").tolist() == pytest.approx(asked.tolist())
    drawn = figures.counterexample_figure(measure.counterexample_table([1, 3], tau=1.0), tau=1.0).lines
    assert min(drawn[0].get_ydata()) > 0 > min(drawn[1].get_ydata())
    assert "limit −τ log k = 0.00" in drawn[0].get_label()


def test_the_gap_figure_draws_the_gaps_between_its_bounds():
    scores, labels = random_batch()
    table = measure.gap_table(scores, labels, k=3, taus=[0.1, 1.0])
    smooth = smooth_topk_loss(scores, labels, k=3, tau=1.0, reduction="none")
    hard = hard_topk_loss(scores, labels, k=3, reduction="none")
    assert table[table["tau"] == 1.0]["gap"].tolist() == pytest.approx((smooth - hard).tolist(), abs=ROUNDING)
    drawn = {line.get_label(): line.get_ydata() for line in figures.gap_figure(table, k=3, classes=12).lines}
    assert drawn["τ log(n − k + 1)"][-1] == pytest.approx(math.log(10))


def test_the_prediction_bound_draws_the_step_of_proposition_4():
    scores, labels = random_batch()
    ax = figures.prediction_bound(measure.smooth_loss_table(scores, labels, k=3, tau=0.2), k=3, tau=0.2)
    dashed = next(line for line in ax.lines if line.get_label().startswith("(α − τ log k) Λ"))
    assert max(dashed.get_ydata()) == pytest.approx(1 - 0.2 * math.log(3))
    errors = np.asarray(ax.collections[0].get_offsets())[:, 0] > 0
    assert errors.mean() == pytest.approx(topk_error(scores, labels, 3).item())


def test_the_prediction_bound_is_finite_for_a_small_tau():
    scores, labels = random_batch()
    ax = figures.prediction_bound(measure.smooth_loss_table(scores, labels, k=3, tau=1e-4), k=3, tau=1e-4)
    assert all(np.isfinite(line.get_ydata()).all() for line in ax.lines)


def test_the_correction_band_draws_the_loss_of_every_sample():
    scores, labels = random_batch()
    table = measure.smooth_loss_table(scores, labels, k=3, tau=0.5)
    ax = figures.correction_band(table, measure.correction_bounds(3, 12), tau=0.5)
    points = next(drawn for drawn in ax.collections if drawn.get_label() == "smooth, τ = 0.5").get_offsets()
    losses = smooth_topk_loss(scores, labels, k=3, tau=0.5, reduction="none")
    assert np.asarray(points)[:, 1] == pytest.approx(losses.numpy())


def test_class_pictures_put_each_image_at_its_row_and_column():
    images = torch.randint(256, (2, 3, 3, 4, 4), dtype=torch.uint8)
    ax = figures.class_pictures(images, ["one", "two"])
    sheet = ax.images[0].get_array()
    assert np.array_equal(sheet[6:10, 12:16, :3], images[1, 2].permute(1, 2, 0).numpy())
    assert (sheet[6:10, 12:16, 3] == 255).all()
    assert (sheet[4:6, :, 3] == 0).all()  # a dark page shows between the pictures
    assert ax.figure.patch.get_alpha() == 0
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["one", "two"]


def test_an_image_folder_holds_each_image_under_its_label(tmp_path):
    images = torch.randint(256, (3, 3, 5, 5), dtype=torch.uint8)
    folder = write_image_folder(tmp_path / "new", images, torch.tensor([1, 0, 1]), ["cat", "dog"])
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png")) == [
        "cat/00001.png",
        "dog/00000.png",
        "dog/00002.png",
    ]
    assert np.array_equal(np.array(Image.open(folder / "cat" / "00001.png")), images[1].permute(1, 2, 0).numpy())


def test_an_image_folder_refuses_names_that_imagefolder_would_number_otherwise(tmp_path):
    with pytest.raises(ValueError, match="names must be sorted"):
        write_image_folder(tmp_path, torch.zeros(1, 3, 2, 2, dtype=torch.uint8), torch.tensor([0]), ["b", "a"])


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

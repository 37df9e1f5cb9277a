"""Figure 2(b): derivatives that are not zero, counted and recorded."""

import pytest
import torch

from smooth_topk import smooth_topk_loss
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.measure import nonzero_shares, sparsity
from smooth_topk.study.records.gradient_sparsity import read_sparsity

CONFIG = RunConfig(model="small", train_size=200, batch_size=50)


def test_the_hard_loss_has_two_derivatives_per_sample():
    scores, labels = torch.randn(20, 50, generator=torch.Generator().manual_seed(0)), torch.arange(20)
    assert nonzero_shares(scores, labels, k=5, taus=[0.0])["share"].item() == pytest.approx(2 / 50)


def test_the_share_is_that_of_the_derivatives_of_the_loss():
    scores, labels = 30 * torch.randn(8, 40, generator=torch.Generator().manual_seed(1)), torch.arange(8)
    leaf = scores.clone().requires_grad_()
    smooth_topk_loss(leaf, labels, k=5, tau=0.05, reduction="sum").backward()
    expected = (leaf.grad != 0).double().mean().item()
    assert 0 < expected < 1
    assert nonzero_shares(scores, labels, k=5, taus=[0.05])["share"].item() == expected


def test_a_larger_tau_is_never_sparser():
    scores, labels = 10 * torch.randn(8, 40, generator=torch.Generator().manual_seed(2)), torch.arange(8)
    shares = nonzero_shares(scores, labels, k=5, taus=[1e-4, 1e-3, 1e-2, 1e-1, 1.0])["share"]
    assert shares.is_monotonic_increasing
    assert shares.iloc[0] < shares.iloc[-1] == 1.0


def test_what_is_recorded_is_not_measured_again(tmp_path, monkeypatch):
    first = sparsity.measure_sparsity(CONFIG, [0.0, 1.0], images=60, folder=tmp_path)
    assert first["tau"].tolist() == [0.0, 1.0]
    assert first["share"].iloc[0] <= 0.02 < first["share"].iloc[1]
    assert first[["cpu", "torch", "date"]].notna().all(axis=None)
    monkeypatch.setattr(sparsity, "initial_scores", lambda *_: pytest.fail("measured again"))
    again = sparsity.measure_sparsity(CONFIG, [1.0], images=60, folder=tmp_path)
    assert again["share"].tolist() == first["share"].tolist()[1:]


def test_more_images_than_an_epoch_has_are_refused():
    with pytest.raises(ValueError, match="between 1 and the 200 of one epoch, got images=201"):
        sparsity.initial_scores(CONFIG, 201)


def test_of_each_network_the_shares_over_the_most_images_are_read(tmp_path):
    config = RunConfig(batch_size=4)
    for images in (4, 8):
        sparsity.measure_sparsity(config, [0.0, 1.0], images=images, folder=tmp_path)
    assert read_sparsity(tmp_path)["images"].tolist() == [8, 8]
    assert len(sparsity.measure_sparsity(config, [0.0, 1.0], images=4, folder=tmp_path)) == 2

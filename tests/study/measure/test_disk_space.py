"""Bytes on disk and in memory: computed before a run, held to what a run writes."""

import pytest
import torch
from small_runs import fit_small, small_config, write_small_data

from smooth_topk.study.measure.disk_space import (
    checkpoint_bytes,
    disk_table,
    image_bytes,
    network_without_memory,
    training_bytes,
)
from smooth_topk.study.measure.memory import peak_bytes
from smooth_topk.study.training.models import build_model

KERNELS = 0.1  # a tenth more or less: buffers of kernels, and what the backward pass frees before its peak
FORMAT_BYTES = 100_000  # zip entries, progress and random state beside the tensors of a checkpoint


def test_the_size_of_a_checkpoint_is_that_of_its_file(tmp_path):
    sizes = []

    def measure(_row):
        sizes.extend(path.stat().st_size for path in tmp_path.glob("runs/*/checkpoint-*.pt"))

    data = write_small_data(tmp_path / "data")
    fit_small(tmp_path, data, small_config(epochs=1), on_epoch=measure)
    expected = checkpoint_bytes(build_model("small", 6))
    assert expected < sizes[0] < expected + FORMAT_BYTES


def test_the_table_of_disk_needs_agrees_with_the_networks():
    table = disk_table()
    network = build_model("small", 100)
    assert table.loc["small", "checkpoint"] == checkpoint_bytes(network) / 1e6
    assert table.loc["small", "parameters (millions)"] == sum(map(torch.numel, network.parameters())) / 1e6
    assert table.loc["resnet18", "parameters (millions)"] == pytest.approx(11.69, abs=0.005)  # as torchvision says
    assert image_bytes("cifar100") == 60_000 * 3072
    with pytest.raises(ValueError, match="'imagenet'"):
        image_bytes("imagenet")


@pytest.mark.parametrize(("model", "batch"), [("small", 64), ("densenet40_12_bc", 4)])
def test_the_computed_memory_is_that_of_a_training_step(model, batch):
    network = build_model(model, 100)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(100, (batch,))

    def step():
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    held = sum(value.nbytes for value in network.state_dict().values())
    held += sum(parameter.nbytes for parameter in network.parameters())  # momentum
    found = held + peak_bytes(step)
    assert training_bytes(model, "cifar100", batch) == pytest.approx(found, rel=KERNELS)


@pytest.mark.parametrize("classes", [1000, 10_000])
def test_the_linear_classifier_of_constructed_data_has_a_weight_per_feature_and_class(classes):
    network = network_without_memory("linear", f"constructed_{classes}")
    assert sum(map(torch.numel, network.parameters())) == (64 + 1) * classes
    assert training_bytes("linear", f"constructed_{classes}", 8) >= 3 * 4 * (64 + 1) * classes

"""Sizes, costs, shapes and first weights of the networks."""

import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from smooth_topk.study.experiments.expected_cost import MULTIPLY_ADDS
from smooth_topk.study.experiments.run_config import FEATURE_MODELS, MODELS
from smooth_topk.study.training.models import build_model

# 100 classes, ResNet-18 1,000. The DenseNet paper gives 1.0 M for the plain 40-12 (with 10 classes less its head).
PARAMETERS = {
    "linear": 12_900,
    "head": 117_860,
    "small": 163_540,
    "small_wide": 695_316,
    "densenet40_12": 1_060_132,
    "densenet40_40": 10_681_492,
    "densenet40_12_bc": 188_092,
    "densenet40_40_bc": 1_941_620,
    "resnet18": 11_689_512,
}
MILLION = 1e6
ROUNDED_TO = 0.005  # the table of costs has one decimal or more
# The sample variance of 10,000 normal numbers is typically 1.4 % off; this is five times as much.
SAMPLING = 0.07


def build(name):
    torch.manual_seed(0)
    return build_model(name, 1_000 if name == "resnet18" else 100)


def inputs(name, count):
    """Random images of the size that a network was made for, or features."""
    size = 224 if name == "resnet18" else 32
    return torch.randn(count, *((128,) if name in FEATURE_MODELS else (3, size, size)))


@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_parameters_is_the_known_one(name):
    assert sum(parameter.numel() for parameter in build(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", MODELS)
def test_the_multiply_adds_are_those_of_the_cost_table(name):
    model = build(name).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs(name, 1))
    assert counter.get_total_flops() / 2 / MILLION == pytest.approx(MULTIPLY_ADDS[name], rel=ROUNDED_TO)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "densenet40_40"])
def test_every_parameter_gets_a_gradient(name):
    model = build(name)
    model(inputs(name, 2)).logsumexp(1).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters() if parameter.ndim > 1)


@pytest.mark.parametrize("name", MODELS)
def test_convolutions_start_with_the_variance_of_the_references(name):
    for module in build(name).modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 10_000:
            expected = 2 / (math.prod(module.kernel_size) * module.out_channels)
            assert module.weight.var().item() == pytest.approx(expected, rel=SAMPLING)


@pytest.mark.parametrize("name", ["small", "densenet40_12", "densenet40_40_bc"])
def test_biases_start_at_zero_and_batch_normalisation_as_the_identity(name):
    for module in build(name).modules():
        if isinstance(module, nn.Linear | nn.BatchNorm2d):
            assert not module.bias.any()
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()


def test_the_same_random_state_builds_the_same_network():
    first, second = build("small"), build("small")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_the_last_dense_block_of_densenet_40_12_has_448_channels():
    assert build("densenet40_12").classifier.in_features == 16 + 3 * 12 * 12
    assert build("densenet40_40_bc").classifier.in_features == ((80 + 240) // 2 + 240) // 2 + 240


def test_an_unknown_network_is_named():
    with pytest.raises(ValueError, match="'vgg'"):
        build_model("vgg", 10)

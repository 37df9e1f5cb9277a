"""The networks of the study: DenseNet 40-12 and 40-40 (sections 3.3 and 5.1), ResNet-18 (section 5.2), and small ones.

Every network maps images (N, 3, H, W), or features (N, features) for "linear" and "head", to scores (N, num_classes).
Convolutions start as in the references: normal with variance 2 / (kernel area x output channels), batch normalisation
as the identity, biases at zero.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def build_model(name: str, num_classes: int, features: int = 128) -> nn.Module:
    """Builds a network with random weights from torch's global random state.

    Args:
        name: one of "small", "small_wide", "linear", "head", "densenet40_12", "densenet40_40", the same with "_bc",
            or "resnet18".
        num_classes: the number of scores per image.
        features: numbers per sample, for "linear" and "head".

    Example:
        >>> build_model("small", 100)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 100])
    """
    if name == "small":
        return SmallNet(num_classes)
    if name == "small_wide":
        return SmallNet(num_classes, WIDE)
    if name == "linear":
        return Linear(num_classes, features)
    if name == "head":
        return Head(num_classes, features)
    if name == "resnet18":
        from smooth_topk.study.data.vision import torchvision  # takes seconds to import, so only where it is needed

        return torchvision.models.resnet18(num_classes=num_classes)
    if name in DENSENETS:
        return DenseNet(num_classes=num_classes, **DENSENETS[name])
    raise ValueError(
        f"A model is one of small, small_wide, linear, head, resnet18, {', '.join(DENSENETS)}, got {name!r}."
    )


WIDE = (16, 48, 96, 192)  # channels of SmallNet with four times the parameters, 671 thousand
DENSENETS: dict[str, dict[str, Any]] = {
    "densenet40_12": {"growth": 12},
    "densenet40_40": {"growth": 40},
    "densenet40_12_bc": {"growth": 12, "bottleneck": True},
    "densenet40_40_bc": {"growth": 40, "bottleneck": True},
}


class DenseNet(nn.Module):
    """DenseNet for 32 x 32 images (Huang et al. 2017, section 3): three dense blocks and two transitions.

    Args:
        growth: the channels that every layer adds.
        num_classes: the number of scores per image.
        depth: layers with weights; 40 gives 12 plain or 6 bottleneck layers per block.
        bottleneck: the BC variant: 1 x 1 convolutions to 4 x growth channels, transitions that halve the channels.
    """

    def __init__(self, growth: int, num_classes: int, depth: int = 40, bottleneck: bool = False):
        super().__init__()
        layers_per_block = (depth - 4) // (6 if bottleneck else 3)
        channels = 2 * growth if bottleneck else 16
        layers: list[nn.Module] = [_convolution(3, channels, 3)]
        for block in range(3):
            if block:
                kept = channels // 2 if bottleneck else channels
                layers.append(nn.Sequential(_activated(channels, kept, 1), nn.AvgPool2d(2)))
                channels = kept
            for _ in range(layers_per_block):
                layers.append(DenseLayer(channels, growth, bottleneck))
                channels += growth
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.classifier = nn.Linear(channels, num_classes)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images).mean(dim=(2, 3)))


class DenseLayer(nn.Module):
    """Returns its input with `growth` new channels behind it."""

    def __init__(self, channels: int, growth: int, bottleneck: bool):
        super().__init__()
        if bottleneck:
            self.new = nn.Sequential(_activated(channels, 4 * growth, 1), _activated(4 * growth, growth, 3))
        else:
            self.new = _activated(channels, growth, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.new(x)), dim=1)


class SmallNet(nn.Module):
    """A residual net for laptops: a stem and three blocks that halve the resolution; few channels where it is large.

    163,540 parameters for 100 classes, 6.6 million multiply-adds per image. One processor thread trains on about 1,000
    images per second, so an epoch of CIFAR-100 takes about 45 seconds.
    """

    def __init__(self, num_classes: int, channels: tuple[int, ...] = (16, 24, 48, 88)):
        super().__init__()
        self.stem = nn.Sequential(_convolution(3, channels[0], 3), nn.BatchNorm2d(channels[0]), nn.ReLU(inplace=True))
        self.blocks = nn.Sequential(*(ResidualBlock(before, after) for before, after in pairwise(channels)))
        self.classifier = nn.Linear(channels[-1], num_classes)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, images: Tensor) -> Tensor:
        # channels_last is what the CPU's convolutions are fastest with; the values do not change.
        images = images.contiguous(memory_format=torch.channels_last)
        return self.classifier(self.blocks(self.stem(images)).mean(dim=(2, 3)))


class Linear(nn.Linear):
    """One score per class that is linear in the features, from zero: the best classifier of constructed data is one."""

    def __init__(self, num_classes: int, features: int):
        super().__init__(features, num_classes)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class Head(nn.Sequential):
    """One hidden layer on the built-in features: wide enough to memorise wrong labels, and seconds to train.

    117,860 parameters for 100 classes.
    """

    def __init__(self, num_classes: int, features: int = 128, hidden: int = 512):
        first, last = nn.Linear(features, hidden, bias=False), nn.Linear(hidden, num_classes)
        super().__init__(first, nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), last)
        nn.init.kaiming_normal_(first.weight, nonlinearity="relu")
        nn.init.zeros_(last.bias)


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside a 1 x 1 shortcut, at half the resolution."""

    def __init__(self, before: int, after: int):
        super().__init__()
        self.main = nn.Sequential(
            _convolution(before, after, 3, stride=2),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            _convolution(after, after, 3),
            nn.BatchNorm2d(after),
        )
        self.shortcut = nn.Sequential(nn.AvgPool2d(2), _convolution(before, after, 1), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.main(x) + self.shortcut(x))


def _convolution(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    convolution = nn.Conv2d(before, after, size, stride=stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution


def _activated(before: int, after: int, size: int) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(inplace=True), _convolution(before, after, size))

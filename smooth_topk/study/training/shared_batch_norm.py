"""Batch normalisation over the global batch when several processes share it, on any device.

Torch's SyncBatchNorm does this on GPUs only. A run must not depend on the number of its processes, on CPUs either.
"""

from typing import Any

import torch
from torch import Tensor, distributed, nn


class _SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation with the mean and variance of all processes; their shares must be equally large."""

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            return super().forward(images)
        mean = _mean_of_all(images)
        variance = _mean_of_all((images - mean).square())
        with torch.no_grad():
            count = images.numel() / images.shape[1] * distributed.get_world_size()
            layer: Any = self  # torch allows layers without these statistics; ours always have them
            layer.running_mean.lerp_(mean.flatten(), layer.momentum)
            layer.running_var.lerp_(variance.flatten() * (count / (count - 1)), layer.momentum)
            layer.num_batches_tracked += 1
        weight, bias = (values.view_as(mean[0]) for values in (self.weight, self.bias))
        return (images - mean) * (weight * (variance + self.eps).rsqrt()) + bias


class SharedBatchNorm1d(_SharedBatchNorm, nn.BatchNorm1d):
    """nn.BatchNorm1d over the global batch."""


class SharedBatchNorm2d(_SharedBatchNorm, nn.BatchNorm2d):
    """nn.BatchNorm2d over the global batch."""


SHARED: dict[type[nn.Module], type[nn.Module]] = {nn.BatchNorm1d: SharedBatchNorm1d, nn.BatchNorm2d: SharedBatchNorm2d}


def share_batch_norm(network: nn.Module, device: torch.device) -> nn.Module:
    """Makes every batch normalisation of a network see the global batch; names and values of the weights stay."""
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(network)
    for layer in network.modules():
        layer.__class__ = SHARED.get(type(layer), type(layer))
    return network


class _SumOfAll(torch.autograd.Function):
    """The sum over processes. Each of them uses it, so the gradient of each is the sum of all their gradients."""

    @staticmethod
    def forward(ctx, values: Tensor) -> Tensor:
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return _SumOfAll.apply(gradient)


def _mean_of_all(images: Tensor) -> Tensor:
    """Returns the mean per channel over all images, pixels and processes, (1, channels, 1, 1) or (1, channels)."""
    return _SumOfAll.apply(images.mean(dim=(0, *range(2, images.ndim)), keepdim=True)) / distributed.get_world_size()

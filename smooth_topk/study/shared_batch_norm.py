"""Batch normalisation over the global batch when several processes share it, on any device.

Torch's SyncBatchNorm does this on GPUs only. A run must not depend on the number of its processes, on CPUs either.
"""

import torch
from torch import Tensor, distributed, nn


class SharedBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d with the mean and variance of all processes; their shares must be equally large."""

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            return super().forward(images)
        mean = _mean_of_all(images)
        variance = _mean_of_all((images - mean).square())
        with torch.no_grad():
            count = images.numel() / images.shape[1] * distributed.get_world_size()
            self.running_mean.lerp_(mean.flatten(), self.momentum)
            self.running_var.lerp_(variance.flatten() * (count / (count - 1)), self.momentum)
            self.num_batches_tracked += 1
        scale = self.weight[:, None, None] * (variance + self.eps).rsqrt()
        return (images - mean) * scale + self.bias[:, None, None]


def share_batch_norm(network: nn.Module, device: torch.device) -> nn.Module:
    """Makes every batch normalisation of a network see the global batch; names and values of the weights stay."""
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(network)
    for layer in network.modules():
        if type(layer) is nn.BatchNorm2d:
            layer.__class__ = SharedBatchNorm2d
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
    """Returns the mean of every channel over the images and pixels of all processes, (1, channels, 1, 1)."""
    return _SumOfAll.apply(images.mean(dim=(0, 2, 3), keepdim=True)) / distributed.get_world_size()

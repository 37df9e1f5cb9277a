"""The learning rate and tau of a run as pure functions of the position in it: nothing to save, nothing to restore."""

import math
from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.nn import functional as F

from smooth_topk.study.experiments.run_config import FIELDS_OF_LOSSES, RunConfig
from smooth_topk.study.losses import FAMILY

WARM_UP = 0.3  # the share of a "one_cycle" run in which the rate rises
FINE_TUNING = 0.1  # the rates of the second and further cycles, as a share of those of the first


def learning_rate_at(config: RunConfig, epoch: int, batch: int, batches: int) -> float:
    """Returns the rate of one step.

    "steps" divides the initial rate by ten at every milestone (sections 5.1 and 5.2). "cosine" falls from the highest
    rate to zero along half a cosine. "one_cycle" first rises to the highest rate in a straight line; a run of several
    cycles goes through it again, with a tenth of the rates.

    Args:
        epoch: counted from 0.
        batch: the position within the epoch, counted from 0.
        batches: the number of batches in an epoch.

    Example:
        >>> config = RunConfig(schedule="steps", milestones=(150, 225), epochs=300, learning_rate=0.1)
        >>> [round(learning_rate_at(config, epoch, 0, 704), 6) for epoch in (149, 150, 299)]
        [0.1, 0.01, 0.001]
    """
    if config.schedule == "steps":
        return config.learning_rate / 10 ** sum(epoch >= milestone for milestone in config.milestones)
    # The middle of the step: no step of the run has the rate zero.
    cycle, epoch = divmod(epoch, config.epochs // config.cycles)
    done = (epoch + (batch + 0.5) / batches) / (config.epochs // config.cycles)
    start = WARM_UP if config.schedule == "one_cycle" else 0.0
    highest = config.learning_rate * (FINE_TUNING if cycle else 1.0)
    if done < start:
        return highest * done / start
    return highest * (1 + math.cos(math.pi * (done - start) / (1 - start))) / 2


def tau_at(config: RunConfig, epoch: int) -> float:
    """Returns tau in one epoch: constant, or geometrically from tau in the first to tau_final in the last.

    In a run of several cycles tau stays constant through the first one, which trains the network.

    Example:
        >>> [tau_at(RunConfig(loss="smooth", tau=1.0, tau_final=0.01, epochs=3), epoch) for epoch in range(3)]
        [1.0, 0.1, 0.01]
    """
    start = config.epochs // config.cycles if config.cycles > 1 else 0
    if config.tau_final is None or epoch <= start:
        return config.tau
    if epoch == config.epochs - 1:
        return config.tau_final
    return config.tau * (config.tau_final / config.tau) ** ((epoch - start) / (config.epochs - 1 - start))


def loss_at(config: RunConfig, epoch: int, counts: Tensor | None = None) -> Callable[..., Tensor]:
    """Returns the loss of one epoch, called as loss(scores, labels, reduction=...).

    Args:
        counts: training samples of each class, for a loss that needs them.
    """
    if config.loss not in FAMILY:
        raise ValueError(f"The loss {config.loss!r} is no longer computed; its published runs remain.")
    if config.loss == "cross_entropy":
        return F.cross_entropy  # torch's own, which needs no checks
    loss = FAMILY[config.loss]
    chosen = {name: getattr(config, name) for name in loss.hyper_parameters if name in FIELDS_OF_LOSSES}
    if "tau" in chosen:
        chosen["tau"] = tau_at(config, epoch)
    bound = loss.bound(**chosen, **dict(config.loss_options))
    return partial(bound, counts=counts) if loss.needs_counts else bound

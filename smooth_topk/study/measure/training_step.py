"""What the loss costs within a training step: settings in, a tidy table out."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import torch

from smooth_topk import smooth_topk_loss
from smooth_topk.study.measure.contenders import Loss
from smooth_topk.study.measure.speed import BASELINE, Settings, both_call, problem
from smooth_topk.study.training.models import build_model

SIZES = {"small": (128, 32, 100), "densenet40_12": (64, 32, 100), "resnet18": (32, 224, 1000)}  # batch, pixels, classes


def measure_training_step(settings: Settings) -> pd.DataFrame:
    """One step of SGD with cross-entropy and with the smooth loss; and what the loss alone takes of it.

    extra is the time that the smooth loss alone takes beyond cross-entropy, as a share of the step: steps of seconds
    differ by more from one to the next.
    """
    losses = settings.contenders([BASELINE]) | {"smooth": smooth_topk_loss}
    torch.set_num_threads(max(settings.threads))
    rows = []
    for model in settings.track(settings.models):
        batch, pixels, classes = SIZES[model]
        steps = {name: _step(settings, model, loss) for name, loss in losses.items()}
        scores, labels = problem(settings, batch, classes)
        alone = settings.time({name: both_call(loss, scores, labels, 5, 1.0) for name, loss in losses.items()})
        timed = replace(settings, budget=3 * settings.budget).time(steps)  # to see one part in a hundred
        for name, columns in timed.items():
            extra = (alone[name]["seconds"] - alone[BASELINE]["seconds"]) / timed[BASELINE]["seconds"]
            fixed = {"model": model, "loss": name, "batch": batch, "pixels": pixels, "classes": classes}
            fixed["threads"] = max(settings.threads)
            rows.append({**fixed, **columns, "loss_seconds": alone[name]["seconds"], "extra": extra})
    return pd.DataFrame(rows)


def _step(settings: Settings, model: str, loss: Loss) -> Callable[[], None]:
    batch, pixels, classes = SIZES[model]
    torch.manual_seed(0)
    network = build_model(model, classes).to(settings.device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(batch, 3, pixels, pixels, device=settings.device)
    labels = torch.randint(classes, (batch,), device=settings.device)

    def step() -> None:
        optimizer.zero_grad()
        loss(network(images), labels, k=5, tau=1.0).backward()
        optimizer.step()

    return step

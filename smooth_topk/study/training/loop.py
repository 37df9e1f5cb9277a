"""The training loop of one run, with everything needed to stop at any step and continue with the same bits."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from smooth_topk.study.data.datasets import Data
from smooth_topk.study.experiments.run_config import FEATURES, RunConfig
from smooth_topk.study.records.endings import Stopped
from smooth_topk.study.records.machine import describe_machine
from smooth_topk.study.records.runs import packed
from smooth_topk.study.training.checkpoints import load_checkpoint, random_state, restore_random_state, save_checkpoint
from smooth_topk.study.training.evaluation import TOP, better_classes, evaluate
from smooth_topk.study.training.interruption import StopRequest
from smooth_topk.study.training.models import build_model
from smooth_topk.study.training.schedules import learning_rate_at, loss_at, tau_at
from smooth_topk.study.training.shared_batch_norm import share_batch_norm

if TYPE_CHECKING:
    from lightning_fabric import Fabric  # takes seconds to import, so only where a run starts

logger = logging.getLogger(__name__)
TEN_CROPS = [f"ten_crop_{way}_top{k}" for way in ("softmax", "marginals") for k in (1, 5)]
CHECK_EVERY = 16  # steps between two looks at the losses and at the other processes: each look stalls a GPU
VALIDATION_SEED = 2**31  # of the draws of a validation, apart from those of the training


class OutOfMemoryError(RuntimeError):
    """A step did not fit into memory; started again, the run continues from its last checkpoint."""


@dataclass
class Progress:
    """Where a run is. With the weights, the optimiser and the random state, it is all there is to save."""

    epoch: int = 0
    batch: int = 0  # steps of this epoch that are done
    sums: list[float] = field(default_factory=lambda: [0.0] * 4)  # loss, top-1, top-5, images of this epoch so far
    epoch_seconds: float = 0.0
    epoch_train_seconds: float = 0.0
    seconds: float = 0.0
    train_seconds: float = 0.0
    resumes: int = 0
    diverged: bool = False
    best_epoch: int | None = None
    best_weights: dict | None = None
    epoch_rows: list[dict] = field(default_factory=list)


class Run:
    """One run on this process's share of the data; restored from its folder after an interruption.

    Args:
        data: what `load_data` returns.
        fabric: launched already.
        folder: where the checkpoints of this run are.
        checkpoint_minutes: the time between two checkpoints.
    """

    def __init__(self, config: RunConfig, data: Data, fabric: Fabric, folder: Path, checkpoint_minutes: float = 1.0):
        self.config, self.data, self.fabric, self.folder = config, data, fabric, folder
        self.batches = data.batches_per_epoch
        self.checkpoint_seconds = 60 * checkpoint_minutes
        self.share: dict[str, Any] = {
            "rank": fabric.global_rank,
            "world_size": fabric.world_size,
            "device": fabric.device,
        }
        self.unread: list[tuple[Tensor, Tensor]] = []  # of the last steps: mean loss, and better classes per sample
        self.stop = StopRequest()
        self.progress = Progress()
        _seed_everything(config.seed)
        self.network = build_model(config.model, data.num_classes, FEATURES.get(config.dataset, 0))
        if fabric.world_size > 1:
            self.network = share_batch_norm(self.network, fabric.device)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            nesterov=config.nesterov,
            weight_decay=config.weight_decay,
        )
        self.parameters = list(self.network.parameters())
        wrapped_network, wrapped_optimizer = fabric.setup(self.network, self.optimizer)
        self.forward: Callable[[Tensor], Tensor] = wrapped_network
        self.backward: Callable[[Tensor], None] = fabric.backward
        self.update: Callable[[], Any] = wrapped_optimizer.step
        if fabric.world_size == 1 and config.precision == "32-true":
            # There Fabric's wrappers change no number, and they cost a quarter of the step of a small network.
            self.forward, self.backward, self.update = self.network, Tensor.backward, self.optimizer.step
        self._restore()
        self.ticked = self.saved = time.monotonic()

    def train(self, show: bool, on_epoch: Callable[[dict], None]) -> tuple[dict, list[dict]]:
        """Trains what is left of the run; returns its row and those of its epochs."""
        progress, config = self.progress, self.config
        bar = tqdm(
            total=config.epochs * self.batches,
            initial=progress.epoch * self.batches + progress.batch,
            desc=config.describe(),
            unit="step",
            leave=False,
            disable=not (show and self.fabric.is_global_zero),
        )
        with self.stop, bar:
            while progress.epoch < config.epochs and not progress.diverged:
                self.train_epoch(bar)
                if not progress.diverged:
                    on_epoch(self._finish_epoch(self._evaluate(self.data.validation_batches, with_loss=True)))
                    bar.set_postfix_str(f"validation top-5 {progress.epoch_rows[-1]['validation_top5']:.4f}")
            return self._row(), progress.epoch_rows

    def train_epoch(self, bar: tqdm) -> None:
        """Trains the batches that are left of the current epoch."""
        progress, config = self.progress, self.config
        loss = loss_at(config, progress.epoch, self.data.class_counts)
        dtype = next(self.network.parameters()).dtype
        self.network.train()
        for images, labels in self.data.train_batches(progress.epoch, start_batch=progress.batch, **self.share):
            rate = learning_rate_at(config, progress.epoch, progress.batch, self.batches)
            with self._explained_memory_errors(f"step {progress.batch}"):
                self._step(images.to(dtype), labels, loss, rate)
            progress.batch += 1
            if progress.batch % CHECK_EVERY == 0 or progress.batch == self.batches or self._is_urgent():
                bar.update(len(self.unread))
                self._check_state()
                if progress.diverged:
                    return

    def _step(self, images: Tensor, labels: Tensor, loss: Callable, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        scores = self.forward(images)
        mean_loss = loss(scores, labels)
        # Averaged over processes, whose shares are equally large: the gradient of the mean over the global batch.
        self.backward(mean_loss)
        self.update()
        for parameter in self.parameters:
            parameter.grad = None
        self.unread.append((mean_loss.detach(), better_classes(scores.detach(), labels)))

    def _is_urgent(self) -> bool:
        """Whether a process that is alone should look up now: a request to stop, or a checkpoint that is due."""
        late = time.monotonic() - self.saved > self.checkpoint_seconds
        return self.fabric.world_size == 1 and (late or self.stop.received is not None)

    def _read_steps(self) -> None:
        """Adds the losses and hits of the steps since the last look to the sums of the epoch."""
        if not self.unread:
            return
        losses, better = (list(column) for column in zip(*self.unread, strict=True))
        sums, images = self.progress.sums, [len(part) for part in better]
        for loss, count in zip(torch.stack(losses).tolist(), images, strict=True):  # one by one, in float64
            sums[0] += loss * count
        counts = torch.cat(better)
        for place, k in ((1, 1), (2, 5)):
            sums[place] += int((counts < k).sum())
        sums[3] += sum(images)
        self.unread.clear()

    def _check_state(self) -> None:
        """Looks for divergence, a request to stop and a checkpoint that is due, in any process."""
        self._read_steps()
        due = time.monotonic() - self.saved > self.checkpoint_seconds
        diverged, due, stop = self._any(not math.isfinite(self.progress.sums[0]), due, self.stop.received is not None)
        if diverged:
            self.progress.diverged = True
            logger.warning(
                "Run %s diverged: the loss became infinite or NaN in epoch %d, at or before step %d (rate %g, tau %g).",
                self.config.run_id,
                self.progress.epoch,
                self.progress.batch,
                self.optimizer.param_groups[0]["lr"],
                tau_at(self.config, self.progress.epoch),
            )
        elif due or stop:
            self._tick(training=True)
            self._save()
        if stop:
            raise self._stopped()

    def _finish_epoch(self, validation: dict[str, float]) -> dict:
        progress = self.progress
        loss, top1, top5, images = self._total(progress.sums)
        self._tick(training=False)
        row = {
            "run_id": self.config.run_id,
            "epoch": progress.epoch,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "tau": tau_at(self.config, progress.epoch),
            "train_loss": loss / images,
            "train_top1": top1 / images,
            "train_top5": top5 / images,
            **{f"validation_{name}": validation[name] for name in ("loss", *(f"top{k}" for k in TOP))},
            "seconds": progress.epoch_seconds,
            "images_per_second": images / progress.epoch_train_seconds,
        }
        progress.epoch_rows.append(row)
        best, metric = progress.best_epoch, f"validation_{self.config.chosen_by}"
        if best is None or row[metric] > progress.epoch_rows[best][metric]:
            progress.best_epoch = progress.epoch
            progress.best_weights = {name: value.cpu().clone() for name, value in self.network.state_dict().items()}
        progress.epoch, progress.batch = progress.epoch + 1, 0
        progress.epoch_seconds = progress.epoch_train_seconds = 0.0
        progress.sums = [0.0] * 4
        logger.info("%s", _epoch_line(self.config, row))
        stop, due = self._any(self.stop.received is not None, time.monotonic() - self.saved > self.checkpoint_seconds)
        if stop or due:
            self._save()
        if stop:
            raise self._stopped()
        return row

    def _row(self) -> dict:
        """Returns the row of the record; testing happens here, once, with the best weights and with the last."""
        config, progress = self.config, self.progress
        results = {} if progress.diverged else self._results()
        self._tick(training=False)
        images = len(progress.epoch_rows) * self.batches * self.data.batch_size
        return {
            "run_id": config.run_id,
            **config.to_dict(),
            "status": "diverged" if progress.diverged else "finished",
            **results,
            "train_images": self.data.train_size,
            "num_classes": self.data.num_classes,
            "parameters": sum(parameter.numel() for parameter in self.network.parameters()),
            "processes": self.fabric.world_size,
            "threads": torch.get_num_threads(),
            "resumes": progress.resumes,
            "seconds": progress.seconds,
            "images_per_second": images / progress.train_seconds if images else None,
            **describe_machine(self.fabric.device),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _results(self) -> dict:
        rows, best, weights = self.progress.epoch_rows, self.progress.best_epoch, self.progress.best_weights
        if best is None or weights is None:
            raise RuntimeError(f"Run {self.config.run_id} has no epoch to take its results from.")
        hits: list[Tensor] = []
        last_test = self._evaluate(self.data.test_batches, hits=hits)
        test = last_test
        if best != len(rows) - 1:
            network = copy.deepcopy(self.network)  # a run that is stopped here saves its last weights
            network.load_state_dict(weights)
            hits.clear()
            test = self._evaluate(self.data.test_batches, network=network, hits=hits)
        return {
            "best_epoch": best,
            **{name: rows[best][name] for name in ("validation_top1", "validation_top5")},
            **{name: value for name, value in test.items() if name in TEN_CROPS},
            **{f"test_top{k}": test[f"top{k}"] for k in TOP},
            **{f"last_{name}": rows[-1][name] for name in ("validation_top1", "validation_top5")},
            **{f"last_test_{name}": last_test[name] for name in ("top1", "top5")},
            **({"test_hits": packed(torch.cat(hits))} if self.fabric.world_size == 1 else {}),
        }

    def _evaluate(
        self,
        batches: Callable[..., Iterable],
        *,
        with_loss: bool = False,
        network: nn.Module | None = None,
        hits: list[Tensor] | None = None,
    ) -> dict[str, float]:
        self._tick(training=self.progress.batch > 0)
        alone = self.fabric.world_size == 1  # others may have fewer batches and cannot be asked in between
        on_gpu = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        try:
            with self._explained_memory_errors("while it was evaluated"), torch.random.fork_rng(on_gpu):
                # A loss with noise draws from a generator of its own: a resumed run repeats the whole evaluation.
                torch.manual_seed(VALIDATION_SEED + self.progress.epoch)
                return evaluate(
                    network or self.network,
                    batches(**self.share),
                    fabric=self.fabric,
                    loss=loss_at(self.config, self.progress.epoch, self.data.class_counts) if with_loss else None,
                    k=self.config.k,
                    after_batch=self._stop_if_asked if alone else lambda: None,
                    hits=hits,
                )
        except Stopped:
            self._save()
            raise

    def _stop_if_asked(self) -> None:
        if self.stop.received:
            raise self._stopped()

    def _stopped(self) -> Stopped:
        received = self.stop.received
        return Stopped(
            f"Run {self.config.run_id} was stopped by {received or 'another process'} in epoch "
            f"{self.progress.epoch} after step {self.progress.batch}, with a checkpoint. Start it again to continue.",
            128 + signal.Signals[received or "SIGINT"],
        )

    @contextlib.contextmanager
    def _explained_memory_errors(self, when: str) -> Iterator[None]:
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
            if not out_of_memory:
                raise
            raise OutOfMemoryError(
                f"Run {self.config.run_id} ran out of memory on {self.fabric.device} in epoch {self.progress.epoch}, "
                f"{when}, with {self.data.batch_size // self.fabric.world_size} images per process. Free memory, or "
                "start more processes with torchrun, which share the batch; the run continues from its checkpoint."
            ) from error

    def _tick(self, *, training: bool) -> None:
        """Adds the time since the last tick."""
        now = time.monotonic()
        elapsed, self.ticked = now - self.ticked, now
        self.progress.seconds += elapsed
        self.progress.epoch_seconds += elapsed
        if training:
            self.progress.train_seconds += elapsed
            self.progress.epoch_train_seconds += elapsed

    def _any(self, *flags: bool) -> list[bool]:
        """Returns which flags are set in any process, so that all of them do the same."""
        if self.fabric.world_size == 1:
            return list(flags)
        return [total > 0 for total in self._total([float(flag) for flag in flags])]

    def _total(self, values: list[float]) -> list[float]:
        """Returns the sums of these values over all processes."""
        own = torch.tensor(values, dtype=torch.float64, device=self.fabric.device)
        return torch.as_tensor(self.fabric.all_reduce(own, reduce_op="sum")).tolist()

    def _save(self) -> None:
        states, sums = [random_state()], self._total(self.progress.sums)
        if self.fabric.world_size > 1:
            states *= self.fabric.world_size
            torch.distributed.all_gather_object(states, random_state())
        if self.fabric.is_global_zero:
            state = {
                "progress": vars(self.progress) | {"sums": sums},
                "network": self.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "precision": self.fabric.strategy.precision.state_dict(),
                "random": states,
            }
            save_checkpoint(self.folder, state)
        self.saved = time.monotonic()

    def _restore(self) -> None:
        """Continues from the newest whole checkpoint; it may come from another number of processes."""
        state = load_checkpoint(self.folder) if self.fabric.is_global_zero else None
        state = self.fabric.broadcast(state)
        if state is None:
            return
        try:
            self.progress = Progress(**state["progress"])
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.fabric.strategy.precision.load_state_dict(state["precision"])
            restore_random_state(state["random"][self.fabric.global_rank % len(state["random"])])
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise ValueError(
                f"The checkpoint in {self.folder} was written by another version of this program and does not fit "
                f"({type(error).__name__}: {str(error).splitlines()[0]}). Delete that folder to train the run again."
            ) from error
        self.progress.resumes += 1
        if not self.fabric.is_global_zero:  # the sums are those of all processes, to be counted once
            self.progress.sums = [0.0] * 4
        logger.info(
            "Run %s continues at epoch %d, step %d.", self.config.run_id, self.progress.epoch, self.progress.batch
        )


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the global generator is what a library might draw from
    torch.manual_seed(seed)


def _epoch_line(config: RunConfig, row: dict) -> str:
    return (
        f"{config.run_id} epoch {row['epoch'] + 1}/{config.epochs}: learning rate {row['learning_rate']:.4g}, "
        f"loss {row['train_loss']:.4f}, train top-5 {row['train_top5']:.4f}, "
        f"validation top-1 {row['validation_top1']:.4f} top-5 {row['validation_top5']:.4f}, "
        f"{row['images_per_second']:.0f} images/s"
    )

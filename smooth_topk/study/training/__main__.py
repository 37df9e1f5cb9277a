"""The command line of one run, alone or after torchrun: python -m smooth_topk.study.training '{"loss": "smooth"}'."""

import argparse
import json
import logging
import os
import sys

import torch

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.endings import ended_in_order
from smooth_topk.study.records.files import LockHeldError
from smooth_topk.study.training.fit import fit
from smooth_topk.study.training.loop import OutOfMemoryError

logger = logging.getLogger("smooth_topk.study.training")


def main(arguments: list[str] | None = None) -> int:
    """The command line: python -m smooth_topk.study.training '{"loss": "smooth"}', alone or after torchrun -m."""
    parser = argparse.ArgumentParser(description="Train one run; start it again to go on after an interruption.")
    parser.add_argument("config", help="the fields of a RunConfig that differ from their defaults, as JSON")
    parser.add_argument("--records", default="runs/records", help="folder of the records")
    parser.add_argument("--checkpoints", default="runs/checkpoints", help="folder of the checkpoints")
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--keep-best", action="store_true", help="keep the best weights")
    parser.add_argument("--checkpoint-minutes", type=float, default=1.0, help="time between two checkpoints")
    options = parser.parse_args(arguments)
    if not options.checkpoint_minutes >= 0:  # nor NaN
        parser.error(f"--checkpoint-minutes must be zero or more, got {options.checkpoint_minutes}.")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        record = fit(
            read_config(options.config),
            records_folder=options.records,
            checkpoints_folder=options.checkpoints,
            data_folder=options.data,
            progress=sys.stderr.isatty(),
            keep_best=options.keep_best,
            checkpoint_minutes=options.checkpoint_minutes,
        )
    except (OSError, ValueError, LockHeldError, OutOfMemoryError) as error:
        logger.error("%s", error)
        return 1
    except RuntimeError:
        if not torch.distributed.is_initialized():
            raise
        logger.exception("The processes of the run lost each other; start them again to go on from the checkpoint.")
        return 1
    if int(os.environ.get("RANK", 0)) == 0:
        print(json.dumps(record))
    return 0


def read_config(text: str) -> RunConfig:
    """Returns the configuration that a command line gives as JSON."""
    try:
        return RunConfig.from_dict(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"The configuration cannot be read as JSON ({error}), got {text[:60]!r}.") from None


if __name__ == "__main__":
    sys.exit(ended_in_order(main))

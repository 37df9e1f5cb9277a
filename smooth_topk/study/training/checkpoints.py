"""The state of an unfinished run on disk: written whole, checked on reading, the last two kept.

A checkpoint file is the SHA-256 of what follows, then what `torch.save` wrote: `torch.load` reads some damaged files
without an error. A file that fails its sum is reported, and the checkpoint before it is used.
"""

import contextlib
import hashlib
import io
import logging
import pickle
import random
from pathlib import Path

import numpy as np
import torch

from smooth_topk.study.records.files import write_whole

logger = logging.getLogger(__name__)
KEPT = 2
SUM_BYTES = hashlib.sha256().digest_size


def save_checkpoint(folder: Path, state: dict) -> Path:
    """Writes `state` (tensors and plain Python values) as the newest checkpoint and removes all but the last two."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    older = _checkpoints(folder)
    path = folder / f"checkpoint-{_number(older[-1]) + 1 if older else 0:08d}.pt"
    content = _serialised(state)
    write_whole(path, hashlib.sha256(content).digest() + content)
    for old in older[: 1 - KEPT]:
        old.unlink()
    return path


def load_checkpoint(folder: Path, map_location: torch.device | str = "cpu") -> dict | None:
    """Returns the newest whole checkpoint, or None where there is none: the run then starts from the beginning.

    Raises:
        ValueError: a file is whole, but not a checkpoint that may be loaded.
    """
    for path in reversed(_checkpoints(folder)):
        content = memoryview(path.read_bytes())
        if hashlib.sha256(content[SUM_BYTES:]).digest() == content[:SUM_BYTES]:
            return _deserialised(content[SUM_BYTES:], path, map_location)
        logger.warning("%s is damaged and is left out; the checkpoint before it is used.", path)
        path.unlink()
    return None


def save_weights(path: Path, weights: dict) -> None:
    """Writes weights as a plain file for `torch.load`."""
    write_whole(path, _serialised(weights))


def remove_checkpoints(folder: Path) -> None:
    """Removes everything that a recorded run no longer needs; weights kept on request stay."""
    for path in Path(folder).glob("*"):
        if path.name != "best.pt":
            path.unlink()
    with contextlib.suppress(OSError):  # best.pt is in it, or there is no folder
        Path(folder).rmdir()


def random_state() -> dict:
    """Returns the state of every generator that could be drawn from, as tensors and plain values."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002 - the state others may draw from
    return {
        "python": random.getstate(),
        "numpy": (kind, np.asarray(keys).tolist(), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_state(state: dict) -> None:
    """Sets every generator to what `random_state` returned."""
    version, values, gauss = state["python"]
    random.setstate((version, tuple(values), gauss))
    np.random.set_state(tuple(state["numpy"]))  # noqa: NPY002
    torch.set_rng_state(state["torch"].cpu())
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([device_state.cpu() for device_state in state["cuda"]])


def _serialised(state: dict) -> memoryview:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getbuffer()


def _deserialised(content: memoryview, path: Path, map_location: torch.device | str) -> dict:
    try:
        return torch.load(io.BytesIO(content), map_location=map_location, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError):
        # Without torch's own message, which advises to load the file unsafely.
        raise ValueError(f"{path} is no checkpoint of this program: delete {path.parent} to train the run.") from None


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(Path(folder).glob("checkpoint-*.pt"), key=_number)


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("checkpoint-"))

"""One JSON file per finished run, RUN_ID.json with its row and its epochs: a run is recorded if its file exists.

A file is written whole and never changed, so local workers and Ray tasks record alike and nothing is merged.
Accuracies are shares between 0 and 1. Times are in seconds of computing, without the time between a kill and a restart.
"""

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records.files import make_folder, write_whole

ACCURACIES = [f"top{k}" for k in (1, 3, 5, 10, 20)]
# The columns of results, with their types; `test_*` are the accuracies of the best epoch, `last_*` of the last one.
RUN_TYPES: dict[str, Any] = {
    "status": str,  # "finished" or "diverged"
    "best_epoch": int,
    **dict.fromkeys(("validation_top1", "validation_top5"), float),
    **dict.fromkeys((f"test_{name}" for name in ACCURACIES), float),
    **dict.fromkeys((f"last_{part}_top{k}" for part in ("validation", "test") for k in (1, 5)), float),
    **dict.fromkeys((f"ten_crop_{way}_top{k}" for way in ("softmax", "marginals") for k in (1, 5)), float),
    **dict.fromkeys(("train_images", "num_classes", "parameters", "processes", "threads", "resumes"), int),
    **dict.fromkeys(("seconds", "images_per_second"), float),
    "test_hits": str,  # which test images have their label among the first five, see `packed`
}
EPOCH_TYPES: dict[str, Any] = {
    "run_id": str,
    "epoch": int,
    **dict.fromkeys(("learning_rate", "tau", "train_loss", "train_top1", "train_top5", "validation_loss"), float),
    **dict.fromkeys((f"validation_{name}" for name in ACCURACIES), float),
    **dict.fromkeys(("seconds", "images_per_second"), float),
}
CONFIG_TYPES: dict[str, Any] = {"run_id": str, **{field.name: field.type for field in fields(RunConfig)}}
TYPES = CONFIG_TYPES | RUN_TYPES | EPOCH_TYPES
DTYPES: dict[Any, str] = {int: "Int64", float: "float64", float | None: "float64", bool: "boolean"}


def write_record(folder: str | Path, row: dict, epochs: Sequence[dict]) -> dict:
    """Records a finished run and returns its recorded row: the earlier one where the run was recorded already."""
    folder, run_id = make_folder(Path(folder)), row["run_id"]
    if (known := read_record(folder, run_id)) is not None:
        return known
    record: dict[str, Any] = {"row": _strict(row), "epochs": [_strict(epoch) for epoch in epochs]}
    write_whole(folder / f"{run_id}.json", json.dumps(record, allow_nan=False).encode())
    return record["row"]


def read_record(folder: str | Path, run_id: str) -> dict | None:
    """Returns the recorded row of a run, with None where there is no value; or None where the run is not recorded."""
    path = Path(folder) / f"{run_id}.json"
    return _read(path)["row"] if path.exists() else None


def recorded_ids(folder: str | Path) -> set[str]:
    """Returns the ids of all runs that are recorded in a folder."""
    return {path.stem for path in Path(folder).glob("*.json")}


def read_records(folder: str | Path) -> list[dict]:
    """Returns every record of a folder, as {"row": ..., "epochs": [...]}, in the order in which they were written."""
    records = [_read(path) for path in sorted(Path(folder).glob("*.json"))]
    return sorted(records, key=lambda record: record["row"].get("date") or "")


def read_runs(folder: str | Path) -> pd.DataFrame:
    """Returns one row per recorded run: run_id, the fields of RunConfig, results, `describe_machine`, and date."""
    rows = [record["row"] for record in read_records(folder)]
    return typed_runs(pd.DataFrame(rows, dtype=object))  # a column of whole numbers and shares keeps both


def read_epochs(folder: str | Path) -> pd.DataFrame:
    """Returns one row per epoch of every recorded run."""
    return typed_epochs(pd.DataFrame([epoch for record in read_records(folder) for epoch in record["epochs"]]))


def packed(hits: Tensor) -> str:
    """Returns booleans (N,) as text of N / 6 characters: base64 of eight to a byte."""
    return base64.b64encode(np.packbits(hits.cpu().numpy()).tobytes()).decode()


def unpacked(text: str, count: int) -> NDArray[np.bool_]:
    """Returns the first `count` booleans of a text that `packed` wrote.

    Example:
        >>> import torch
        >>> unpacked(packed(torch.tensor([True, False, True])), 3).tolist()
        [True, False, True]
    """
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count).astype(bool)


def typed_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Returns rows of runs with every column, right types, and the defaults of fields that are newer than a row."""
    table = _typed(table, [*CONFIG_TYPES, *RUN_TYPES])
    for field in fields(RunConfig):
        blank = table[field.name].isna()
        if field.default is not None and blank.any():
            values = [field.default if b else value for value, b in zip(table[field.name], blank, strict=True)]
            table[field.name] = pd.Series(values, dtype=table[field.name].dtype)
    return table


def typed_epochs(table: pd.DataFrame) -> pd.DataFrame:
    """Returns rows of epochs with every column and right types."""
    return _typed(table, list(EPOCH_TYPES))


def _typed(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    missing = {name: pd.Series([None] * len(table), dtype=object) for name in names if name not in table}
    table = pd.concat([table, pd.DataFrame(missing)], axis=1)
    ordered = [*names, *(name for name in table if name not in names)]
    return pd.DataFrame({name: _column(table[name], DTYPES.get(TYPES.get(name))) for name in ordered})


def _column(values: pd.Series, dtype: str | None) -> pd.Series:
    """The values as a column of this type, or as the Python values that they are: text, tuples, None for blanks."""
    if dtype:
        return values.astype(dtype)
    known = zip(values, values.notna(), strict=True)
    return pd.Series([tuple_if_list(value) if there else None for value, there in known], dtype=object)


def tuple_if_list(value: Any) -> Any:
    """Returns lists of JSON as the tuples that they were."""
    return tuple(tuple_if_list(part) for part in value) if isinstance(value, list) else value


def _strict(row: dict) -> dict:
    """The row as strict JSON knows it: tuples as lists, NaN and infinity as null."""
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in row.items()}


def _read(path: Path) -> dict:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not a record of a run ({error}): delete it to train the run again.") from None

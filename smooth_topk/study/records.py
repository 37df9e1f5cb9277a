"""Results as two CSV files that only grow: `runs.csv`, one row a finished run, and `epochs.csv`, one row an epoch.

Rows are appended whole or not at all, from any number of processes: each append holds a lock on the file, is one write
followed by fsync, and is undone when the write fails. A key that is already there is not added again, so a resumed run
never appears twice. What a crash of the machine can leave is a half-written last line: readers leave it out and say so,
and the next append removes it. A column that the file does not have yet is added to it, blank in the older rows; a
column that a row does not have is blank in that row.

Accuracies are shares between 0 and 1. Times are in seconds of computing, without the time between a kill and a restart.
"""

import csv
import errno
import fcntl
import io
import json
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pandas as pd

from smooth_topk.study.files import cannot_write, write_whole
from smooth_topk.study.run_config import RunConfig

RUNS, EPOCHS = "runs.csv", "epochs.csv"
# The types of the columns that are not fields of RunConfig. A column named in neither place is read as text.
RESULT_TYPES = {
    "best_epoch": int,
    **dict.fromkeys(("validation_top1", "validation_top5", "test_top1", "test_top5"), float),
    **dict.fromkeys(("last_validation_top1", "last_validation_top5", "last_test_top1", "last_test_top5"), float),
    **dict.fromkeys((f"ten_crop_{way}_top{k}" for way in ("softmax", "marginals") for k in (1, 5)), float),
    **dict.fromkeys(("train_images", "num_classes", "parameters", "processes", "resumes"), int),
    **dict.fromkeys(("seconds", "images_per_second"), float),
    "epoch": int,
    **dict.fromkeys(("train_loss", "train_top1", "train_top5", "validation_loss"), float),
}


def append_run(folder: Path, row: dict, epoch_rows: Sequence[dict] = ()) -> bool:
    """Appends the epochs of a finished run, then the run itself: a run that is recorded has all its epochs.

    Returns:
        False where the run had been recorded before.
    """
    append_rows(Path(folder) / EPOCHS, epoch_rows, key=("run_id", "epoch"))
    return append_rows(Path(folder) / RUNS, [row], key=("run_id",)) == 1


def append_rows(path: Path, rows: Sequence[dict], *, key: Sequence[str]) -> int:
    """Appends the rows whose `key` columns are not in the file yet, all of them or none; returns how many were new."""
    path = Path(path)
    rows = [{name: _to_text(value) for name, value in row.items()} for row in rows]
    with _open_locked(path) as file:
        columns, old_rows, end = _parse(file.read(), path)
        recorded = {tuple(row.get(name, "") for name in key) for row in old_rows}
        new_rows = [row for row in rows if tuple(row.get(name, "") for name in key) not in recorded]
        new_columns = list(dict.fromkeys(name for row in new_rows for name in row if name not in columns))
        if new_columns and old_rows:
            columns += new_columns
            write_whole(path, _lines(columns, [*old_rows, *new_rows], header=True))
        elif new_rows:
            columns += new_columns
            _append(file, end, _lines(columns, new_rows, header=bool(new_columns)), path)
    return len(new_rows)


def read_runs(folder: Path) -> pd.DataFrame:
    """Returns `runs.csv` with the right types; an empty table where nothing is recorded.

    The columns are run_id, the fields of RunConfig, status ("finished" or "diverged"), the results of RESULT_TYPES,
    those of `describe_machine`, and date. `test_*` are the figures of the epoch with the best validation top-5,
    `last_test_*` those of the last epoch.
    """
    return _read(Path(folder) / RUNS, first=["run_id", *(field.name for field in fields(RunConfig))])


def read_epochs(folder: Path) -> pd.DataFrame:
    """Returns `epochs.csv` with the right types; an empty table where nothing is recorded."""
    return _read(Path(folder) / EPOCHS, first=["run_id", "epoch"])


def find_run(folder: Path, run_id: str) -> dict | None:
    """Returns the recorded row of a run with Python values, or None."""
    runs = read_runs(folder)
    found = runs[runs["run_id"] == run_id]
    return None if found.empty else {name: _plain(value) for name, value in found.iloc[0].items()}


def _open_locked(path: Path) -> io.FileIO:
    """Opens `path` under an exclusive lock on the file itself, which closing it, or dying, frees."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = open(path, "a+b", buffering=0)  # noqa: SIM115 - the caller closes it; unbuffered: one write, one call
            fcntl.flock(file, fcntl.LOCK_EX)
            # Adding a column replaces the file, and a lock on the replaced one protects nothing.
            if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                file.seek(0)
                return file
            file.close()
    except OSError as error:
        raise cannot_write(path, error) from error


def _append(file, end: int, content: bytes, path: Path) -> None:
    try:
        file.truncate(end)  # removes a half-written last line
        written = file.write(content)
        if written != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())
    except OSError as error:
        file.truncate(end)
        raise cannot_write(path, error) from error


def _parse(content: bytes, path: Path) -> tuple[list[str], list[dict], int]:
    """Returns the columns, the whole rows and the number of bytes that hold them."""
    end = content.rfind(b"\n") + 1
    if end < len(content):
        warnings.warn(
            f"The last line of {path} is half-written and is left out: {content[end:][:60]!r}. "
            "The run it belongs to is not recorded.",
            stacklevel=4,
        )
    lines = list(csv.reader(io.StringIO(content[:end].decode(), newline="")))
    columns = lines[0] if lines else []
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(columns):
            raise ValueError(f"Line {number} of {path} has {len(line)} fields, its header has {len(columns)}.")
    return columns, [dict(zip(columns, line, strict=True)) for line in lines[1:]], end


def _lines(columns: list[str], rows: list[dict], *, header: bool) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def _read(path: Path, first: list[str]) -> pd.DataFrame:
    columns, rows, _ = _parse(path.read_bytes(), path) if path.exists() else ([], [], 0)
    columns = columns or first
    types = {field.name: field.type for field in fields(RunConfig)} | RESULT_TYPES
    return pd.DataFrame({name: _column([row[name] for row in rows], types.get(name, str)) for name in columns})


def _column(texts: list[str], kind: type) -> pd.Series:
    dtypes = {int: "Int64", float: "float64", float | None: "float64", bool: "boolean"}
    if kind in dtypes:
        return pd.Series([None if text == "" else json.loads(text) for text in texts], dtype=dtypes[kind])
    if kind is str:
        return pd.Series([text or None for text in texts], dtype="object")
    values = [None if text == "" else json.loads(text) for text in texts]
    return pd.Series([tuple(value) if isinstance(value, list) else value for value in values], dtype="object")


def _to_text(value) -> str:
    """Numbers keep every digit; None and NaN are blank; one row is one line."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return " ".join(value.splitlines())
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _plain(value):
    if isinstance(value, float | str | tuple) or value is None:
        return value
    return None if value is pd.NA else value.item() if hasattr(value, "item") else value

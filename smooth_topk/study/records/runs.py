"""Results as two CSV files that only grow: `runs.csv`, one row per finished run, and `epochs.csv`, one row per epoch.

Rows are added whole or not at all, from any number of processes: whoever adds holds a lock, writes the file with its
new rows beside the old file and puts it in its place in one step. A key that is already there is not added again, so
that a resumed run never appears twice. A column that the file does not have yet is added to it, blank in the older
rows; a column that a row does not have is blank in that row.

People open these files in editors, and merge them. What can be read without doubt is read: a byte order mark, line ends
of Windows, blank lines, spaces around a value, a last row without its line end, a row that appears twice.
Everything else is refused with the file, the line, the column and what to do about it, and nothing is written. Only a
last line that was cut off in the middle, which a crash of the machine can leave, is left out with a warning.

Accuracies are shares between 0 and 1. Times are in seconds of computing, without the time between a kill and a restart.
"""

import contextlib
import csv
import io
import json
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from smooth_topk.study.experiments.run_config import ADDED_LATER, RunConfig
from smooth_topk.study.records.files import exclusive, make_folder, remove_leftovers, write_whole

RUNS, EPOCHS = "runs.csv", "epochs.csv"
RUN_KEY, EPOCH_KEY = ("run_id",), ("run_id", "epoch")
LAST_COLUMN = "date"  # of runs.csv: always 25 characters, so that a row that was cut off can be told from a whole one
STATUSES = ("finished", "diverged")  # of a run that is recorded; one that failed is not
LONGEST_SHOWN = 60  # characters of a value in a message
RESTORE = "Mend it in a text editor, or take the file from a backup or from version control."
# The types of the columns that are not fields of RunConfig. A column named in neither place is read as text.
RESULT_TYPES = {
    "best_epoch": int,
    **dict.fromkeys(("validation_top1", "validation_top5", "test_top1", "test_top5"), float),
    **dict.fromkeys(("test_top3", "test_top10", "test_top20"), float),
    **dict.fromkeys(("last_validation_top1", "last_validation_top5", "last_test_top1", "last_test_top5"), float),
    **dict.fromkeys((f"ten_crop_{way}_top{k}" for way in ("softmax", "marginals") for k in (1, 5)), float),
    **dict.fromkeys(("train_images", "num_classes", "parameters", "processes", "resumes"), int),
    **dict.fromkeys(("seconds", "images_per_second"), float),
    "epoch": int,
    **dict.fromkeys(("train_loss", "train_top1", "train_top5", "validation_loss"), float),
    **dict.fromkeys(("validation_top3", "validation_top10", "validation_top20"), float),
}
TYPES: dict[str, Any] = {field.name: field.type for field in fields(RunConfig)} | RESULT_TYPES
DTYPES: dict[Any, str] = {int: "Int64", float: "float64", float | None: "float64", bool: "boolean"}
IN_WORDS: dict[Any, str] = {
    int: "an integer of at most 64 bits",
    float: "a number",
    float | None: "a number",
    bool: "true or false",
    str: "text in UTF-8",
}


def append_run(folder: Path, row: dict, epoch_rows: Sequence[dict] = ()) -> dict:
    """Adds the epochs of a finished run, then the run itself: a run that is recorded has all its epochs.

    Returns:
        The recorded row as `find_run` gives it: the earlier one where the run was recorded already.
    """
    path = Path(folder) / RUNS
    with both_files(folder):
        known = any(known["run_id"] == row["run_id"] for known in _read(path, RUN_KEY).rows)
        append_rows(Path(folder) / EPOCHS, epoch_rows, key=EPOCH_KEY, instead=not known)
        table, _ = _add(path, [row], RUN_KEY)
    return _record(next(known for known in table.rows if known["run_id"] == row["run_id"]), path)


def both_files(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Keeps other processes from adding runs to the folder: a run and its epochs must come from one training."""
    return exclusive(make_folder(folder) / ".records.lock", wait=True)


def append_rows(path: Path, rows: Sequence[dict], *, key: Sequence[str], instead: bool = False) -> int:
    """Adds the rows whose `key` columns are not in the file yet, all of them or none; returns how many were new.

    With `instead`, they replace every row with the same first key column: what is left in epochs.csv of a run that was
    deleted from runs.csv belongs to another training.
    """
    return _add(Path(path), rows, key, instead)[1]


def read_runs(folder: Path) -> pd.DataFrame:
    """Returns `runs.csv` with the right types; an empty table where nothing is recorded.

    The columns are run_id, the fields of RunConfig, status ("finished" or "diverged"), the results of RESULT_TYPES,
    those of `describe_machine`, and date. `test_*` are the figures of the epoch with the best validation top-5,
    `last_test_*` those of the last epoch.

    Raises:
        ValueError: a value, a row or the header cannot be understood; the message names file, line and column.
    """
    runs = _frame(_read(Path(folder) / RUNS, RUN_KEY), ["run_id", *(field.name for field in fields(RunConfig))])
    defaults = {field.name: field.default for field in fields(RunConfig) if field.name in ADDED_LATER}
    for name, default in defaults.items():  # runs recorded before there was such a field had its default
        if name not in runs:
            runs[name] = [default] * len(runs)
        elif default is not None and default != ():
            runs[name] = runs[name].fillna(default)
    return runs


def read_epochs(folder: Path) -> pd.DataFrame:
    """Returns `epochs.csv` with the right types; an empty table where nothing is recorded."""
    return _frame(_read(Path(folder) / EPOCHS, EPOCH_KEY), ["run_id", "epoch"])


def find_run(folder: Path, run_id: str) -> dict | None:
    """Returns the recorded row of a run with Python values, None where a value is blank; or None without such a row."""
    path = Path(folder) / RUNS
    found = [row for row in _read(path, RUN_KEY).rows if row["run_id"] == run_id]
    return _record(found[0], path) if found else None


@dataclass
class _Table:
    """A CSV file as texts. `in_doubt` is the last row if it has no line end: whole, as far as one can see."""

    path: Path
    columns: list[str]
    rows: list[dict[str, str]]
    lines: list[int]  # the line of the file in which each row stands
    in_doubt: dict[str, str] | None = None


def _add(path: Path, rows: Sequence[dict], key: Sequence[str], instead: bool = False) -> tuple[_Table, int]:
    """Adds rows with a new key to the file; returns the file as it then is, and how many rows were new."""
    rows = [{name: _to_text(value) for name, value in row.items()} for row in rows]
    make_folder(path.parent)
    with exclusive(path.with_name(f".{path.name}.lock"), wait=True):
        remove_leftovers(path.parent, path.name)
        table = _read(path, key)
        if table.in_doubt and any(_key(row, key) == _key(table.in_doubt, key) for row in rows):
            table.rows.remove(table.in_doubt)  # the same row comes again, and this time it is whole for certain
        if instead:
            replaced = {row[key[0]] for row in rows}
            table.rows = [row for row in table.rows if row[key[0]] not in replaced]
        recorded = {_key(row, key) for row in table.rows}
        new_rows = [row for row in rows if _key(row, key) not in recorded]
        if new_rows:
            new_columns = dict.fromkeys(name for row in new_rows for name in row if name not in table.columns)
            place = len(table.columns) - (table.columns[-1:] == [LAST_COLUMN])
            table.columns[place:place] = new_columns
            table.rows += new_rows
            write_whole(path, _as_csv(table))
    return table, len(new_rows)


def _read(path: Path, key: Sequence[str]) -> _Table:
    """Reads a CSV file as texts; raises ValueError with file and line where there is a doubt about a row."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file: put the records there, or remove it.")
    content = path.read_bytes() if path.exists() else b""
    _refuse_other_encodings(content, path)
    _refuse_other_line_ends(content, path)
    # A byte that is no UTF-8 becomes a lone surrogate, which `_value` finds in its column.
    text = content.decode("utf-8", "surrogateescape")
    # Of files that were put together, each may have begun with a byte order mark.
    lines = enumerate((line.lstrip("\ufeff") for line in text.split("\n")), start=1)
    numbered = [(number, _fields(line, number, path)) for number, line in lines if line.strip()]
    whole = content.endswith(b"\n")
    if numbered and not whole and (len(numbered) == 1 or not _is_whole(numbered[-1][1], numbered[0][1])):
        warnings.warn(
            f"The last line of {path} is half-written and is left out: {','.join(numbered.pop()[1])[:60]!r}. "
            "What it belongs to is not recorded.",
            stacklevel=3,
        )
    if not numbered:
        return _Table(path, [], [], [])
    columns = numbered[0][1]
    _check_header(columns, key, path)
    table = _Table(path, columns, [], [])
    for number, line in numbered[1:]:
        if len(line) != len(columns):
            raise ValueError(
                f"Line {number} of {path} has {len(line)} fields, its header has {len(columns)} columns. {RESTORE}"
            )
        table.rows.append(dict(zip(columns, line, strict=True)))
        table.lines.append(number)
    _merge_duplicates(table, key)
    table.in_doubt = None if whole or not table.rows else table.rows[-1]
    return table


def _fields(line: str, number: int, path: Path) -> list[str]:
    """The fields of one line, without the spaces around them. A row is one line, so an open quote ends with it."""
    try:
        reader = csv.reader([line], skipinitialspace=True)
        return [field.strip() for field in next(reader)]
    except csv.Error as error:
        raise ValueError(f"Line {number} of {path} is not CSV: {error}. {RESTORE}") from None


def _refuse_other_encodings(content: bytes, path: Path) -> None:
    """UTF-16, known by its byte order mark or by the NUL bytes in it: no text in UTF-8 has either."""
    mark = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    if mark or b"\0" in content:
        number = 1 if mark else content.count(b"\n", 0, content.index(b"\0")) + 1
        what = "the byte order mark of UTF-16" if mark else "a NUL byte, as text in UTF-16 does"
        raise ValueError(
            f"Line {number} of {path} holds {what}. Save the file as CSV in UTF-8, or take it from a backup or from "
            "version control."
        )


def _refuse_other_line_ends(content: bytes, path: Path) -> None:
    if lone := re.search(rb"\r(?!\n)", content):
        number = content.count(b"\n", 0, lone.start()) + 1
        raise ValueError(
            f"Line {number} of {path} ends in a carriage return alone, as old spreadsheets write it. Save the file as "
            "CSV with line feeds, or take it from a backup or from version control."
        )


def _check_header(columns: list[str], key: Sequence[str], path: Path) -> None:
    if missing := [name for name in key if name not in columns]:
        text = ",".join(columns)
        other = next((name for mark, name in ((";", "semicolons"), ("\t", "tabs")) if mark in text), None)
        cause = f"it seems to be separated by {other}: save it with commas" if other else "a column is missing"
        raise ValueError(f"Line 1 of {path} names no column {', '.join(missing)}; {cause}. {RESTORE}")
    if "" in columns:
        raise ValueError(f"Line 1 of {path} has a column without a name, column {columns.index('') + 1}. {RESTORE}")
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise ValueError(f"Line 1 of {path} names the column {', '.join(twice)} more than once. {RESTORE}")


def _is_whole(line: list[str], columns: list[str]) -> bool:
    """Whether a last line without a line end is a whole row: every field is there, and the last one can be read.

    Where all fields are there, only the last one can have been cut off.
    """
    if len(line) != len(columns):
        return False
    try:
        _value(line[-1], TYPES.get(columns[-1], str))
        return columns[-1] != LAST_COLUMN or datetime.fromisoformat(line[-1]).isoformat(timespec="seconds") == line[-1]
    except ValueError:
        return False


def _merge_duplicates(table: _Table, key: Sequence[str]) -> None:
    """Keeps one of several equal rows, with a warning; rows with one key and different values are refused."""
    first: dict[tuple, int] = {}
    for place, row in enumerate(table.rows):
        name = _key(row, key)
        if not all(name):
            raise ValueError(f"Line {table.lines[place]} of {table.path} has a blank {' or '.join(key)}. {RESTORE}")
        known = table.rows[first.setdefault(name, place)]
        if differing := [column for column in table.columns if row[column] != known[column]]:
            raise ValueError(
                f"{table.path} has two rows of {_named(name, key)}, in lines {table.lines[first[name]]} and "
                f"{table.lines[place]}, which differ in {', '.join(differing)}. Delete the one that is wrong."
            )
    if len(first) < len(table.rows):
        kept = set(first.values())
        again = [_key(row, key) for place, row in enumerate(table.rows) if place not in kept]
        names = list(dict.fromkeys(_named(name, key) for name in again))
        warnings.warn(
            f"{table.path} has rows that appear more than once; each counts once: {', '.join(names[:5])}"
            f"{', ...' if len(names) > 5 else '.'}",
            stacklevel=4,
        )
        table.lines = [table.lines[place] for place in first.values()]
        table.rows = [table.rows[place] for place in first.values()]


def _key(row: dict[str, str], key: Sequence[str]) -> tuple[str, ...]:
    return tuple(row.get(name, "") for name in key)


def _named(values: tuple[str, ...], key: Sequence[str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(key, values, strict=True))


def _as_csv(table: _Table) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, table.columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return buffer.getvalue().encode("utf-8", "surrogateescape")


def _frame(table: _Table, columns_of_nothing: list[str]) -> pd.DataFrame:
    columns = {}
    for name in table.columns or columns_of_nothing:
        kind = TYPES.get(name, str)
        values = [
            _checked(row[name], kind, f"Line {line} of {table.path}, column {name}")
            for line, row in zip(table.lines, table.rows, strict=True)
        ]
        columns[name] = pd.Series(values, dtype=DTYPES.get(kind, "object"))
    return pd.DataFrame(columns)


def _record(row: dict[str, str], path: Path) -> dict:
    where = f"{path}, run_id {row['run_id']}, column"
    return {name: _checked(text, TYPES.get(name, str), f"{where} {name}") for name, text in row.items()}


def _checked(text: str, kind: Any, where: str) -> Any:
    try:
        return _value(text, kind)
    except (ValueError, RecursionError):  # the second from thousands of brackets
        wanted = IN_WORDS.get(kind, "JSON")
        shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
        raise ValueError(f"{where}: {shown!r} is not {wanted}. {RESTORE}") from None


def _value(text: str, kind: Any) -> Any:
    """Returns what a field says, None for a blank one; raises ValueError where it is not of this type."""
    text.encode("utf-8")  # a broken byte raises UnicodeEncodeError, which is a ValueError
    if text == "":
        return None
    if kind is str:
        return text
    value = json.loads(text)
    expected: Any = {int: int, float: (int, float), float | None: (int, float), bool: bool}.get(kind, object)
    if not isinstance(value, expected) or (isinstance(value, bool) and kind in (int, float, float | None)):
        raise ValueError(text)
    if kind is int and not -(2**63) <= value < 2**63:  # pandas has no room for it
        raise ValueError(text)
    if kind in (float, float | None):
        return float(text)  # not of the value: an integer of 400 digits would be too large for it
    return tuple(value) if isinstance(value, list) else value


def _to_text(value) -> str:
    """Numbers keep every digit; None and NaN are blank; one row is one line."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return " ".join(value.splitlines())
    return json.dumps(list(value) if isinstance(value, tuple) else value)

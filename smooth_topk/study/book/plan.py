"""What a study runs: profile and overrides in, a list of tasks out, or a refusal before anything starts.

A chapter is `notebooks/NAME.py`. Its cell tagged `parameters` holds literal assignments: its parameters and defaults.
A second tag on that cell, `alone`, makes the chapter run by itself after all the others (timings, final summaries).
"""

import ast
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from smooth_topk.study.experiments import profiles
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.experiments.selections import runs_of_chapters
from smooth_topk.study.records.files import write_whole
from smooth_topk.study.records.paths import data_folder_or_default, project_root, published_folder, runs_folder

PREPARE = "python scripts/prepare_data.py {name}"  # what puts a data set into the data folder
PACKAGE_FILES = {".py", ".js", ".mplstyle"}
LONGEST_SHOWN = 60  # characters of a value in a message
RESULT_FILES = {".csv", ".npz", ".json"}
# Parameters that mean a field of RunConfig; `dataset` and `model` depend on each other and are left out.
FIELDS = {known.name: known.name for known in fields(RunConfig) if known.name not in ("dataset", "model")}
FIELDS["grouping"] = "noise_grouping"
MAY_BE_ZERO = ("series_order",)  # other whole numbers count something, and at least one of it
SEEN = "results_seen.json"  # what book/results was when a study of this profile last looked


class Refusal(ValueError):
    """The study cannot start: the message says why, and what to do."""


@dataclass(frozen=True)
class Task:
    """One chapter of a study.

    Attributes:
        parameters: those that differ from the chapter's own.
        values: all parameters.
        seconds: the expected time, None where it is unknown.
        needs: the data sets that must be prepared.
        key: changes with everything that the outputs depend on.
        executed: what an earlier run left, as `executed` returns it.
    """

    name: str
    source: Path
    parameters: dict
    alone: bool = False
    seconds: float | None = None
    needs: tuple[str, ...] = ()
    values: dict = field(default_factory=dict, compare=False)
    key: str = field(default="", compare=False)
    executed: dict = field(default_factory=dict, compare=False)

    @property
    def is_done(self) -> bool:
        return bool(self.key) and self.executed.get("key") == self.key


def chapters() -> dict[str, Path]:
    """Returns name -> source of every chapter, in reading order."""
    return {path.stem: path for path in sorted((project_root() / "notebooks").glob("[0-9][0-9]_*.py"))}


def make_plan(profile: str, names: Sequence[str] = (), overrides: Sequence[str] = ()) -> list[Task]:
    """Returns the tasks of a study, or raises a Refusal.

    Args:
        profile: one of `experiments/profiles.py`.
        names: chapters, whole names or unambiguous beginnings ("09"); none means all.
        overrides: texts NOTEBOOK.NAME=VALUE, stronger than the profile.
    """
    sources = chapters()
    settings = load_profile(profile)
    chosen = list(dict.fromkeys(resolve(name, sources) for name in names)) or list(sources)
    values = {name: dict(settings.get(name, {}).get("parameters") or {}) for name in sources}
    for text in overrides:
        name, parameter, value = parse_override(text, sources)
        if name not in chosen:
            raise Refusal(f"-p {text} sets a parameter of {name}, which is not among the notebooks to run.")
        if parameter == "profile":
            raise Refusal(f"-p {text} sets the profile of one chapter; a study has one profile: --profile {value}.")
        values[name][parameter] = value
    shared = digest_of(package_files()) + results_key(profile)
    tasks = [make_task(profile, sources[name], settings.get(name, {}), values[name], shared) for name in chosen]
    return sorted(tasks, key=lambda task: (task.alone, task.name))


def load_profile(profile: str) -> dict[str, dict]:
    """Returns the settings by notebook of `experiments/profiles.py`."""
    try:
        settings = profiles.chapter_settings(profile)
    except ValueError as error:
        raise Refusal(str(error)) from None
    for name, given in settings.items():
        if unknown := set(given) - {"minutes", "needs", "parameters"}:
            raise Refusal(f"Profile {profile}, {name}: {sorted(unknown)} is not one of minutes, needs, parameters.")
    return settings


def resolve(name: str, sources: Mapping[str, Path]) -> str:
    """Returns the chapter that a whole name or the unambiguous beginning of one stands for."""
    name = Path(name).stem if name.endswith((".py", ".ipynb")) else name
    matches = [name] if name in sources else [known for known in sources if known.startswith(name)]
    if not name or len(matches) != 1:
        reason = f"could be {', '.join(matches)}" if matches and name else f"is not one of {', '.join(sources)}"
        raise Refusal(f"The notebook {name!r} {reason}.")
    return matches[0]


def parse_override(text: str, sources: Mapping[str, Path]) -> tuple[str, str, Any]:
    """NOTEBOOK.NAME=VALUE -> (chapter, parameter, value); a value that is no Python literal is a string."""
    target, equals, value = text.partition("=")
    notebook, dot, parameter = target.rpartition(".")
    if not (equals and dot and parameter):
        raise Refusal(f"-p {text} is not of the form NOTEBOOK.NAME=VALUE, for example 09.epochs=3.")
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two from thousands of brackets
        literal = value.strip()
    return resolve(notebook, sources), parameter.strip(), literal


def read_parameters(source: Path) -> tuple[dict[str, Any], list[str]]:
    """Returns the parameters of a chapter with their defaults, and the tags of their cell."""
    cells = [cell for cell in jupytext.read(source).cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise Refusal(f"{source.name} has {len(cells)} cells with the tag parameters, it must have exactly one.")
    parameters = {}
    for statement in ast.parse(cells[0].source).body:
        try:
            (target,) = statement.targets
            parameters[target.id] = ast.literal_eval(statement.value)
        except (AttributeError, ValueError):
            text = ast.unparse(statement)
            raise Refusal(
                f"{source.name}: the parameters cell holds `{text}`, where only NAME = LITERAL is allowed."
            ) from None
    if not isinstance(parameters.get("profile"), str):
        raise Refusal(f'{source.name} has no parameter profile: write profile = "quick" in its parameters cell.')
    return parameters, cells[0].metadata["tags"]


def make_task(profile: str, source: Path, settings: dict, given: dict, shared: str) -> Task:
    """Returns the task of one chapter; `shared` is the part of its key that all chapters have in common."""
    defaults, tags = read_parameters(source)
    given = {**given, "profile": profile}
    for name, value in given.items():
        if name not in defaults:
            raise Refusal(f"{source.stem} has no parameter {name!r}: it has {', '.join(defaults)}.")
        check_value(profile, source.stem, name, defaults[name], value)
    values = defaults | given
    if "classes" in values and (values["classes"] or 0) <= values.get("k", 0):
        raise Refusal(f"{source.stem} needs more classes than k, got k={values['k']} and classes={values['classes']}.")
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    parts = [shared, source.read_text(encoding="utf-8"), json.dumps(changed, sort_keys=True)]
    found = executed(profile, source.stem)
    seconds = found.get("seconds", 60 * settings["minutes"] if "minutes" in settings else None)
    return Task(
        name=source.stem,
        source=source,
        parameters=changed,
        alone="alone" in tags,
        seconds=seconds,
        needs=tuple(settings.get("needs", ())),
        values=values,
        key=digest("\n".join(parts).encode()),
        executed=found,
    )


def check_value(profile: str, chapter: str, name: str, default: Any, value: Any) -> None:
    """Raises a Refusal where a value cannot replace a default: another type, or one that nothing can be computed with.

    A default of None stands for what the profile says: a number, or, where the name is the plural of a field of
    RunConfig, a list of those values that its runs have.
    """
    where, several = f"{chapter}.{name}", None if name in FIELDS else FIELDS.get(name.removesuffix("s"))
    if value is None and default is None:
        return
    check_kind(where, default, value, may_be_none=name in FIELDS, must_be_list=several is not None)
    if name in FIELDS:
        check_field(where, FIELDS[name], value)
    elif several:
        for each in value:
            check_field(where, several, each)
        runs = runs_of_chapters(profile, [chapter]).values() if default is None else ()
        known = {getattr(run, several) for part in runs for run in part}
        if known and (unknown := sorted(set(value) - known)):
            raise Refusal(f"{where} has {unknown}, but the runs of the profile {profile} have {sorted(known)}.")
    elif numbers(value):
        counts = all(isinstance(each, int) and each > 0 for each in as_list(default)) and name not in MAY_BE_ZERO
        if not all(counts <= each < math.inf for each in as_list(value)):
            raise Refusal(f"{where} must be finite and at least {counts:d}, got {value!r}.")


def check_kind(where: str, default: Any, value: Any, *, may_be_none: bool, must_be_list: bool) -> None:
    """Raises a Refusal where a value has another type than a parameter takes, or is an empty list."""
    if value is None and may_be_none:
        return
    if default is None:
        fits = numbers(value) and (isinstance(value, (list, tuple)) or not must_be_list)
        wanted = "a list of numbers" if must_be_list else "a number or a list of numbers"
    else:
        fits, wanted = same_kind(default, value), f"of the same type as {default!r}"
    if not fits:
        raise Refusal(f"{where} must be {wanted}, got {shortened(value)}.")
    if isinstance(value, (list, tuple)) and not value:
        raise Refusal(f"{where} must name at least one value, got {value!r}.")


def check_field(where: str, name: str, value: Any) -> None:
    """Raises a Refusal where no run can have this value of a field; how fields go together is checked elsewhere."""
    try:
        RunConfig(**{name: value} | ({"k": 1} if name == "classes" else {}))
    except ValueError as error:
        raise Refusal(f"{where} cannot be {value!r}: {error}") from None


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def as_list(value: Any) -> Sequence:
    return value if isinstance(value, (list, tuple)) else [value]


def numbers(value: Any) -> bool:
    """Whether a value is a number or a list of numbers."""
    return all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in as_list(value))


def same_kind(default: Any, value: Any) -> bool:
    """Whether a value may replace a default: the same type, or an int for a float; of a list, each element."""
    if isinstance(default, list) and isinstance(value, (list, tuple)):
        return all(same_kind(default[0], each) for each in value) if default else True
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(default) is type(value)


def missing_data(names: Iterable[str]) -> dict[str, str]:
    """Returns which of these data sets are not in the data folder, each with the command that prepares it."""
    folder = data_folder_or_default()
    needed = sorted(set(names) - {"synthetic", "cifar100_features"})  # these two are built in
    absent = [name for name in needed if not (folder / name).is_dir() or not any((folder / name).iterdir())]
    return {name: PREPARE.format(name=name) for name in absent}


def refuse_missing_data(tasks: Sequence[Task]) -> None:
    """Raises a Refusal where a chapter needs data that is not there."""
    for name, command in missing_data(need for task in tasks for need in task.needs).items():
        users = ", ".join(task.name for task in tasks if name in task.needs)
        raise Refusal(f"{users} need {name}, which is not in {data_folder_or_default()}: run `{command}` first.")


def executed(profile: str, name: str) -> dict:
    """Returns the metadata that a finished run left in its executed notebook; empty if there is none.

    A notebook that cannot be read has the reason under "damage": the chapter is run again.
    """
    path = runs_folder(profile) / "notebooks" / f"{name}.ipynb"
    if not path.exists():
        return {}
    try:
        return dict(nbformat.read(path, as_version=4).metadata.get("smooth_topk", {}))
    except (OSError, ValueError, KeyError, AttributeError, TypeError, nbformat.ValidationError) as error:
        return {"damage": f"{path} cannot be read ({type(error).__name__}); the chapter is run again."}


def results_key(profile: str) -> str:
    """Returns a text that changes when somebody else than a study of this profile changes book/results.

    Studies with the profiles laptop and paper write there themselves. What they wrote does not make their chapters run
    again, what came from elsewhere does: `remember_results` tells the two apart.
    """
    now = digest_of(result_files())
    try:
        state = json.loads((runs_folder(profile) / SEEN).read_text(encoding="utf-8"))
        return state["key"] if state["seen"] == now else now
    except (OSError, ValueError, KeyError, TypeError):
        return now


def remember_results(profile: str, key: str) -> None:
    """Notes that book/results, as it is now, belongs to `key`; called when a chapter of this study has ended."""
    state = {"seen": digest_of(result_files()), "key": key}
    write_whole(runs_folder(profile) / SEEN, json.dumps(state).encode())


def package_files() -> list[Path]:
    return [path for path in sorted((project_root() / "smooth_topk").rglob("*")) if path.suffix in PACKAGE_FILES]


def result_files() -> list[Path]:
    return [path for path in sorted(published_folder().rglob("*")) if path.suffix in RESULT_FILES]


def digest_of(files: Iterable[Path]) -> str:
    return digest(b"".join(path.name.encode() + path.read_bytes() for path in files))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]

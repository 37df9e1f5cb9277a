"""The chapters that a study executes, with their parameters; whatever cannot run is refused before anything starts.

A chapter is `notebooks/NAME.py`. Its cell tagged `parameters` holds literal assignments: its parameters and defaults.
A second tag on that cell, `alone`, makes the chapter run by itself after all the others, because it measures times.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext

from smooth_topk.study.experiments.profiles import chapter_parameters
from smooth_topk.study.records.paths import data_folder_or_default, project_root

PREPARED = ("cifar100", "imagenet")  # the other data sets are built in
LONGEST_SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True)
class Chapter:
    """One chapter of a study.

    Attributes:
        values: all parameters.
        changed: those that differ from the chapter's own.
        trains_itself: whether -p changed a parameter, so that its runs may be others than those of the profile.
        alone: whether it runs by itself, after the others.
    """

    name: str
    source: Path
    values: dict[str, Any]
    changed: dict[str, Any]
    trains_itself: bool = False
    alone: bool = False


def chapters() -> dict[str, Path]:
    """Returns name -> source of every chapter, in reading order."""
    return {path.stem: path for path in sorted((project_root() / "notebooks").glob("[0-9][0-9]_*.py"))}


def make_plan(profile: str, names: Sequence[str] = (), overrides: Sequence[str] = ()) -> list[Chapter]:
    """Returns the chapters of a study; raises ValueError where one cannot run.

    Args:
        profile: one of `experiments/profiles.py`.
        names: chapters, whole names or unambiguous beginnings ("09"); none means all.
        overrides: texts NOTEBOOK.NAME=VALUE, stronger than the profile.
    """
    sources = chapters()
    chosen = list(dict.fromkeys(resolve(name, sources) for name in names)) or list(sources)
    given: dict[str, dict] = {name: {} for name in chosen}
    for text in overrides:
        name, parameter, value = parse_override(text, sources)
        if name not in given:
            raise ValueError(f"-p {text} sets a parameter of {name}, which is not among the notebooks to run.")
        if parameter == "profile":
            raise ValueError(f"-p {text} sets the profile of one chapter; a study has one profile: --profile {value}.")
        given[name][parameter] = value
    return [make_chapter(sources[name], profile, given[name]) for name in sorted(chosen)]


def resolve(name: str, sources: Mapping[str, Path]) -> str:
    """Returns the chapter that a whole name or the unambiguous beginning of one stands for."""
    name = Path(name).stem if name.endswith((".py", ".ipynb")) else name
    matches = [name] if name in sources else [known for known in sources if known.startswith(name)]
    if not name or len(matches) != 1:
        reason = f"could be {', '.join(matches)}" if matches and name else f"is not one of {', '.join(sources)}"
        raise ValueError(f"The notebook {name!r} {reason}.")
    return matches[0]


def parse_override(text: str, sources: Mapping[str, Path]) -> tuple[str, str, Any]:
    """NOTEBOOK.NAME=VALUE -> (chapter, parameter, value); a value that is no Python literal is a string."""
    target, equals, value = text.partition("=")
    notebook, dot, parameter = target.rpartition(".")
    if not (equals and dot and parameter):
        raise ValueError(f"-p {text} is not of the form NOTEBOOK.NAME=VALUE, for example 09.epochs=3.")
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        literal = value.strip()
    return resolve(notebook, sources), parameter.strip(), literal


def make_chapter(source: Path, profile: str, overrides: dict[str, Any]) -> Chapter:
    """Returns a chapter with the parameters of the profile and those given on the command line."""
    defaults, tags = read_parameters(source)
    given = {**chapter_parameters(profile).get(source.stem, {}), **overrides, "profile": profile}
    for name, value in given.items():
        if name not in defaults:
            raise ValueError(f"{source.stem} has no parameter {name!r}: it has {', '.join(defaults)}.")
        if not may_replace(defaults[name], value):
            wanted = "a number or numbers" if defaults[name] is None else f"of the same type as {defaults[name]!r}"
            raise ValueError(f"{source.stem}.{name} must be {wanted}, got {repr(value)[:LONGEST_SHOWN]}.")
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    return Chapter(source.stem, source, defaults | given, changed, bool(overrides), "alone" in tags)


def read_parameters(source: Path) -> tuple[dict[str, Any], list[str]]:
    """Returns the parameters of a chapter with their defaults, and the tags of their cell."""
    cells = [cell for cell in jupytext.read(source).cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ValueError(f"{source.name} has {len(cells)} cells with the tag parameters, it must have exactly one.")
    parameters = {}
    for statement in ast.parse(cells[0].source).body:
        try:
            (target,) = statement.targets
            parameters[target.id] = ast.literal_eval(statement.value)
        except (AttributeError, ValueError):
            raise ValueError(
                f"{source.name}: the parameters cell holds `{ast.unparse(statement)}`, where only NAME = LITERAL is "
                "allowed."
            ) from None
    return parameters, cells[0].metadata["tags"]


def may_replace(default: Any, value: Any) -> bool:
    """Whether a value may replace a default: the same type, an int for a float; numbers for None, which means the
    profile's; of a list, every element."""
    if isinstance(default, list):
        return isinstance(value, list | tuple) and all(may_replace(default[0], each) for each in value)
    if default is None:
        numbers = value if isinstance(value, list | tuple) else [value]
        return value is None or all(isinstance(each, int | float) for each in numbers)
    return type(value) is type(default) or (isinstance(default, float) and type(value) is int)


def missing_data(datasets: Iterable[str]) -> dict[str, str]:
    """Returns which of these data sets are not in the data folder, each with the command that prepares it."""
    folder = data_folder_or_default()
    needed = sorted(set(datasets) & set(PREPARED))
    absent = [name for name in needed if not (folder / name).is_dir() or not any((folder / name).iterdir())]
    return {name: f"python scripts/prepare_data.py {name}" for name in absent}

"""What a study runs: profile and overrides in, a list of tasks out, or a refusal before anything starts.

A chapter is `notebooks/NAME.py`. Its cell tagged `parameters` holds literal assignments: its parameters and defaults.
A second tag on that cell, `alone`, makes the chapter run by itself after all the others (timings, final summaries).
"""

import ast
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import jupytext
import nbformat
import yaml

# Where prepare_data.py puts a data set, below $SMOOTH_TOPK_DATA or data/.
PREPARE = "python scripts/prepare_data.py {name}"


class Refusal(ValueError):
    """The study cannot start: the message says why, and what to do."""


@dataclass(frozen=True)
class Task:
    """One chapter with the parameters that differ from its own."""

    name: str
    source: Path
    parameters: dict
    alone: bool = False
    seconds: float | None = None  # expected
    needs: tuple[str, ...] = ()
    key: str = field(default="", compare=False)


def project_root():
    """The project's folder: $SMOOTH_TOPK_ROOT, or the one this file lies in."""
    return Path(os.environ.get("SMOOTH_TOPK_ROOT") or Path(__file__).parents[1]).resolve()


def chapters(root):
    """Name -> source of every chapter, in reading order."""
    return {path.stem: path for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.py"))}


def make_plan(root, profile, names=(), overrides=()):
    """The tasks of a study, or a Refusal.

    Args:
        root: the project's folder.
        profile: name of a file in scripts/profiles.
        names: chapters, whole names or unambiguous beginnings ("09"); none means all.
        overrides: texts NOTEBOOK.NAME=VALUE, stronger than the profile.
    """
    sources = chapters(root)
    settings = load_profile(root, profile)
    chosen = [resolve(name, sources) for name in names] or list(sources)
    for name in settings:
        if name not in sources:
            raise Refusal(f"Profile {profile} names the notebook {name}, which is not in notebooks/.")
    values = {name: dict(settings.get(name, {}).get("parameters") or {}) for name in sources}
    for text in overrides:
        name, parameter, value = parse_override(text, sources)
        if name not in chosen:
            raise Refusal(f"-p {text} sets a parameter of {name}, which is not among the notebooks to run.")
        values[name][parameter] = value
    shared = shared_key(root, profile)
    tasks = [make_task(root, profile, sources[name], settings.get(name, {}), values[name], shared) for name in chosen]
    refuse_missing_data(root, tasks)
    return sorted(tasks, key=lambda task: (task.alone, task.name))


def load_profile(root, profile):
    """The settings by notebook of scripts/profiles/PROFILE.yaml."""
    folder = root / "scripts" / "profiles"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if profile not in known:
        raise Refusal(f"There is no profile {profile!r}: choose one of {', '.join(known)}.")
    content = yaml.safe_load((folder / f"{profile}.yaml").read_text(encoding="utf-8"))
    settings = {name: given or {} for name, given in (content.get("notebooks") or {}).items()}
    for name, given in settings.items():
        if unknown := set(given) - {"minutes", "needs", "parameters"}:
            raise Refusal(f"Profile {profile}, {name}: {sorted(unknown)} is not one of minutes, needs, parameters.")
    return settings


def resolve(name, sources):
    """The chapter a whole name or the unambiguous beginning of one stands for."""
    name = Path(name).stem if name.endswith((".py", ".ipynb")) else name
    matches = [name] if name in sources else [known for known in sources if known.startswith(name)]
    if not name or len(matches) != 1:
        reason = f"could be {', '.join(matches)}" if matches and name else f"is not one of {', '.join(sources)}"
        raise Refusal(f"The notebook {name!r} {reason}.")
    return matches[0]


def parse_override(text, sources):
    """NOTEBOOK.NAME=VALUE -> (chapter, parameter, value); a value that is no Python literal is a string."""
    target, equals, value = text.partition("=")
    notebook, dot, parameter = target.rpartition(".")
    if not (equals and dot and parameter):
        raise Refusal(f"-p {text} is not of the form NOTEBOOK.NAME=VALUE, for example 09.epochs=3.")
    try:
        value = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        value = value.strip()
    return resolve(notebook, sources), parameter.strip(), value


def read_parameters(source):
    """The parameters of a chapter with their defaults, and the tags of their cell."""
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
                f"{source.name}: the parameters cell holds `{text}`, only NAME = LITERAL may stand there."
            ) from None
    if not isinstance(parameters.get("profile"), str):
        raise Refusal(f'{source.name} has no parameter profile: write profile = "quick" in its parameters cell.')
    return parameters, cells[0].metadata["tags"]


def make_task(root, profile, source, settings, values, shared):
    defaults, tags = read_parameters(source)
    values = {**values, "profile": profile}
    for name, value in values.items():
        if name not in defaults:
            raise Refusal(f"{source.stem} has no parameter {name!r}: it has {', '.join(defaults)}.")
        if not same_kind(defaults[name], value):
            hint = " In YAML write 1.0e-3, not 1e-3." if isinstance(value, str) else ""
            raise Refusal(f"{source.stem}.{name} is like {defaults[name]!r}, got {value!r}.{hint}")
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    parts = [shared, source.read_text(encoding="utf-8"), json.dumps(changed, sort_keys=True)]
    seconds = measured_seconds(root, profile, source.stem)
    if seconds is None and "minutes" in settings:
        seconds = 60 * settings["minutes"]
    needs = tuple(settings.get("needs", ()))
    return Task(source.stem, source, changed, "alone" in tags, seconds, needs, digest("\n".join(parts).encode()))


def same_kind(default, value):
    """Whether a value may replace a default: same type, int for float, anything for None."""
    if default is None or value is None:
        return True
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(default) is type(value)


def refuse_missing_data(root, tasks):
    folder = Path(os.environ.get("SMOOTH_TOPK_DATA") or root / "data")
    for name in sorted({need for task in tasks for need in task.needs}):
        if not (folder / name).is_dir() or not any((folder / name).iterdir()):
            users = ", ".join(task.name for task in tasks if name in task.needs)
            raise Refusal(f"{users} need {name}, which is not in {folder}: run `{PREPARE.format(name=name)}` first.")


def runs_folder(root, profile):
    """Where a profile's notebooks, logs and summary go: below $SMOOTH_TOPK_RUNS or runs/."""
    return Path(os.environ.get("SMOOTH_TOPK_RUNS") or root / "runs").resolve() / profile


def executed(root, profile, name):
    """The metadata a finished run left in its executed notebook; empty if there is none."""
    path = runs_folder(root, profile) / "notebooks" / f"{name}.ipynb"
    if not path.exists():
        return {}
    return nbformat.read(path, as_version=4).metadata.get("smooth_topk", {})


def measured_seconds(root, profile, name):
    return executed(root, profile, name).get("seconds")


def shared_key(root, profile):
    """Changes when the package does, or the recorded results that the chapters show.

    The profiles laptop and paper write these results themselves, so for them the results do not count.
    """
    files = [path for path in sorted((root / "smooth_topk").rglob("*")) if path.suffix in {".py", ".js", ".mplstyle"}]
    if profile not in {"laptop", "paper"}:
        files += sorted((root / "book" / "results").rglob("*.csv"))
    return digest(b"".join(path.name.encode() + path.read_bytes() for path in files))


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]

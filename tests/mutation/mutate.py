"""Mutants of the losses: the code with one small change, such as + for -, and whether any test notices.

    python tests/mutation/mutate.py --mutants 20                            of every file, by seed 0
    python tests/mutation/mutate.py --mutants 99 --only pivot/torch         of the files whose path contains this
    python tests/mutation/mutate.py --mutants 20 --again survived           those that were not noticed, once more

The changes come from Cosmic Ray (pip install cosmic-ray), which the project does not otherwise need. Places in a file
are drawn without repetition, one change per place, in an order that the seed alone decides: a larger --mutants goes on
where a smaller one ended, and a second call after an interruption does what is missing. The table of all mutants is
written to --output after every mutant, whole or not at all; `reason` is a column for the reader who has looked at a
survivor, and stays what it is.

Files are changed in a temporary copy of the project. This process imports torch and never the package: the tests of a
mutant run in a fork of it, so that a mutant costs its tests and no imports.
"""

import argparse
import ast
import contextlib
import csv
import fnmatch
import functools
import gc
import importlib
import importlib.machinery
import importlib.util
import io
import os
import platform
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

PROJECT = Path(__file__).parents[2]
COLUMNS = ["file", "line", "operator", "before", "after", "outcome", "seconds", "reason"]
ORIGIN = ["seed", "sites", "date", "python", "torch", "cosmic_ray"]
SECONDS_AT_LEAST = 10  # of processor time per mutant before it is a timeout, and three times those of the tests
Row = dict[str, str]


class Plan(NamedTuple):
    """Which tests look at a file; the quick and direct ones come first, because the first failure ends a mutant."""

    pattern: str
    tests: str
    selection: str = "not slow"
    in_memory: bool = False  # for what the name of the cached machine code depends on, but not the machine code


AT = "polynomials"
LEARNED_TAU = "test_losses.py::test_a_temperature_that_requires_a_gradient_is_learned"
WITH_NUMBA = "test_losses.py::test_the_paths_are_three_different_ones"  # the tests of Numba are skipped without it
SEVERAL_AT_ONCE = "test_transforms.py::test_several_derivatives_at_once"
BOUNDS = "pivot/test_numba.py::test_no_kernel_leaves_its_arrays"
UNUSUAL_TENSORS = " ".join(
    f"test_transforms.py::test_{name}"
    for name in (
        "views_whose_memory_holds_other_numbers",
        "a_hook_that_gives_back_other_scores_is_refused",
        "labels_and_derivatives_without_memory_of_their_own_are_not_read_as_memory",
    )
)
PLANS = [  # the first that fits
    Plan("smooth_topk/pivot/numba_large_k*.py", f"pivot/test_large_k.py {BOUNDS}", selection=""),
    Plan("smooth_topk/pivot/numba_kernels.py", "pivot/test_numba.py", selection=""),
    Plan("smooth_topk/pivot/numba_runtime.py", f"{WITH_NUMBA} pivot/test_numba.py {UNUSUAL_TENSORS}", selection=""),
    Plan("smooth_topk/pivot/numba_*.py", f"{SEVERAL_AT_ONCE} pivot/test_numba.py {UNUSUAL_TENSORS}", in_memory=True),
    Plan("smooth_topk/pivot/triton_*.py", "pivot/test_triton_interpreted.py", ""),
    Plan("smooth_topk/pivot/every_label.py", f"{LEARNED_TAU} test_soft_labels.py test_losses.py"),
    Plan("smooth_topk/pivot/composition.py", "pivot/test_row_losses.py test_transforms.py"),
    Plan("smooth_topk/pivot/torch_large_k.py", "pivot/test_large_k.py"),
    Plan("smooth_topk/pivot/torch_backend.py", "pivot/test_row_losses.py"),
    Plan("smooth_topk/pivot/*.py", f"{SEVERAL_AT_ONCE} pivot/test_row_losses.py test_losses.py test_transforms.py"),
    Plan("smooth_topk/polynomials/__init__.py", "polynomials"),
    Plan("smooth_topk/polynomials/pivot.py", f"{AT}/test_pivot.py {AT}/test_algorithms.py {LEARNED_TAU}"),
    *(
        Plan(f"smooth_topk/polynomials/{name}.py", f"{AT}/test_{name}.py {AT}/test_algorithms.py")
        for name in ("backward", "divide_and_conquer", "enumeration", "summation")
    ),
    Plan("smooth_topk/distributed.py", "test_distributed.py"),
    Plan("smooth_topk/noisy_labels.py", "test_noisy_labels.py test_doctests.py"),
    Plan("smooth_topk/prediction.py", "test_prediction.py test_random_cases.py test_doctests.py"),
    Plan("smooth_topk/arguments.py", "test_arguments.py test_losses.py test_soft_labels.py test_transforms.py"),
    Plan("smooth_topk/*.py", "test_losses.py test_soft_labels.py test_transforms.py"),
]


class Mutant(NamedTuple):
    line: int
    operator: str
    before: str  # the line
    after: str  # the line with the change
    source: str  # the whole file with the change; empty where the change is not Python


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=10, help="per file, at most (default: 10)")
    parser.add_argument("--only", default="", help="files whose path contains this text (default: all)")
    parser.add_argument("--again", choices=["survived", "timeout"], help="run recorded mutants of this outcome again")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    parser.add_argument("--limit", type=float, help="seconds per mutant; without it, the tests first run unchanged")
    parser.add_argument("--output", type=Path, default=Path("mutants.csv"), help="table (default: mutants.csv)")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="what the tests print (default: nowhere)")
    options = parser.parse_args(arguments)
    files = [
        path.relative_to(PROJECT).as_posix()
        for folder in ("", "pivot", "polynomials")
        for path in sorted((PROJECT / "smooth_topk" / folder).glob("*.py"))
    ]
    rows = read_table(options.output)
    import_heavy_packages()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copied_project(Path(folder))
        for file in files:
            if options.only in file:
                test_file(copy, file, rows, options)
    print(summary(rows))
    return 0


def test_file(copy: Path, file: str, rows: list[Row], options: argparse.Namespace) -> None:
    """Runs the tests on a sample of one file's mutants that have no row yet; the rows and their file grow."""
    source, seed = PROJECT.joinpath(file).read_text(encoding="utf-8"), f"{options.seed} {file}"
    mutants, places = sample(source, seed, options.mutants)
    done = {(row["file"], row["line"], row["after"]): row for row in rows}
    wanted = []
    for mutant in mutants:
        row = done.get((file, str(mutant.line), mutant.after))
        if row is None or (options.again and row["outcome"] == options.again and not row["reason"]):
            wanted.append((mutant, row))
    if not wanted:
        return
    plan = next(plan for plan in PLANS if fnmatch.fnmatch(file, plan.pattern))
    limit = options.limit or SECONDS_AT_LEAST + 3 * seconds_of_tests(copy, plan, options.log)
    print(f"{file}: {places} places, {len(wanted)} mutants, {limit:.0f} s per mutant at most", flush=True)
    origin = dict(zip(ORIGIN, [str(options.seed), str(places), "", *versions()], strict=True))
    for mutant, row in wanted:
        outcome, seconds = outcome_of_mutant(copy, file, mutant, plan, limit, options.log)
        if row is None:
            row = dict.fromkeys(COLUMNS, "")
            rows.append(row)
        row |= {"file": file, "line": str(mutant.line), "operator": mutant.operator, "before": mutant.before}
        row |= {"after": mutant.after, "outcome": outcome, "seconds": f"{seconds:.1f}"}
        row |= origin | {"date": datetime.now(UTC).isoformat(timespec="seconds")}
        write_table(options.output, rows)
        print(f"  {outcome:9}{seconds:6.1f} s  line {mutant.line}: {mutant.before}  ->  {mutant.after}", flush=True)


@functools.cache
def seconds_of_tests(copy: Path, plan: Plan, log: Path) -> float:
    """How long the tests take, and pass, on code that is not changed."""
    outcome, seconds = outcome_of_tests(copy, plan, 3_600, log, bytecode=True)
    if outcome != "survived":
        raise SystemExit(f"These tests must pass before the code is changed, but they did not: {plan.tests}")
    return seconds


def sample(source: str, seed: str, count: int) -> tuple[list[Mutant], int]:
    """Up to `count` mutants of a source, one per place, in random order; and the number of places.

    A place is a part of the code that can be changed in one way or several. Annotations are no places.
    """
    try:
        from cosmic_ray.ast import ast_nodes, get_ast
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator, operator_names
    except ImportError:
        raise SystemExit("Mutants need Cosmic Ray: pip install cosmic-ray") from None
    places: dict[tuple, list[tuple[str, int]]] = {}
    nodes, types = list(ast_nodes(get_ast(source))), list(annotations(source))
    for name in sorted(operator_names()):
        if get_operator(name).arguments():  # names of variables, which nobody has given
            continue
        found = (place for node in nodes for place in get_operator(name)().mutation_positions(node))
        for occurrence, (start, end) in enumerate(found):
            if not any(first <= start and end <= last for first, last in types):
                places.setdefault((start, end), []).append((name, occurrence))
    generator = random.Random(seed)
    chosen = [(place, generator.choice(changes)) for place, changes in sorted(places.items())]
    generator.shuffle(chosen)
    mutants, lines = [], source.splitlines()
    for ((line, _), _), (name, occurrence) in chosen[:count]:
        changed = mutate_code(source, get_operator(name)(), occurrence)
        changed_lines = changed.splitlines()
        after = changed_lines[line - 1].strip() if len(changed_lines) == len(lines) else ""  # a line is gone
        operator = name.removeprefix("core/")
        mutants.append(Mutant(line, operator, lines[line - 1].strip(), after, changed if is_python(changed) else ""))
    return mutants, len(places)


def annotations(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Start and end, as (line, column), of every annotation of an argument, a result or a variable."""
    for node in ast.walk(ast.parse(source)):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if part is not None:
                yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)


def is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def outcome_of_mutant(copy: Path, file: str, mutant: Mutant, plan: Plan, limit: float, log: Path) -> tuple[str, float]:
    """Killed, survived, timeout, or no-test where the change is not Python; and the seconds that the tests took."""
    if not mutant.source:
        return "no-test", 0.0
    Path(importlib.util.cache_from_source(str(copy / file))).unlink(missing_ok=True)  # bytecode of the unchanged file
    if plan.in_memory:
        return outcome_of_tests(copy, plan, limit, log, {str(copy / file): mutant.source.encode()})
    original = (copy / file).read_bytes()
    (copy / file).write_text(mutant.source, encoding="utf-8")
    try:
        return outcome_of_tests(copy, plan, limit, log)
    finally:
        (copy / file).write_bytes(original)


def outcome_of_tests(
    copy: Path, plan: Plan, limit: float, log: Path, in_memory: dict[str, bytes] | None = None, bytecode: bool = False
) -> tuple[str, float]:
    """The outcome of a run of the tests in a fork, and its seconds of processor time, of which `limit` are allowed.

    The limit of ten times as many seconds by the clock is for tests that wait. All that the fork started ends with it.
    """
    started, before = time.monotonic(), os.times()
    child = os.fork()
    if not child:
        run_tests(copy, plan, limit, log, in_memory or {}, bytecode)
    status = None
    while status is None and time.monotonic() - started < 10 * limit:
        ended, found = os.waitpid(child, os.WNOHANG)
        status = found if ended else None
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return "timeout", seconds
    return "killed" if status else "survived", seconds


def run_tests(copy: Path, plan: Plan, limit: float, log: Path, in_memory: dict[str, bytes], bytecode: bool) -> NoReturn:
    """Runs in the fork, as the leader of a group of its own."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1), os.dup2(output, 2)
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": str(copy / "numba"), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.path.insert(0, str(copy))
    # Bytecode of the tests is kept. A mutant leaves none: the next, of the same size and second, would be taken for it.
    sys.dont_write_bytecode = not bytecode
    loader, read = importlib.machinery.SourceFileLoader, importlib.machinery.SourceFileLoader.get_data
    loader.get_data = lambda self, path: in_memory.get(path) or read(self, path)  # type: ignore[method-assign]
    code = 1
    try:
        tests = [f"tests/{test}" for test in plan.tests.split()]
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", plan.selection, *tests]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def import_heavy_packages() -> None:
    """What the tests import in any case, and forks then have; threads of OpenMP would not live on in them."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for package in ("torch", "numba", "mpmath", "hypothesis", "_hypothesis_pytestplugin", "pytest_timeout", "pandas"):
        importlib.import_module(package)
    gc.freeze()  # a fork does not search what it has from here for garbage


def copied_project(folder: Path) -> Path:
    """A copy of the code and the tests in the folder, without anything compiled."""
    for part in ("smooth_topk", "tests"):
        shutil.copytree(PROJECT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("pyproject.toml", "README.md"):
        shutil.copy(PROJECT / part, folder / part)
    return folder


def versions() -> list[str]:
    return [platform.python_version(), metadata.version("torch"), metadata.version("cosmic-ray")]


def read_table(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Writes the table whole or not at all; the package's own way to do this may be the mutant."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS + ORIGIN, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: (row["file"], int(row["line"]), row["operator"], row["after"])))
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text.getvalue(), encoding="utf-8")
    os.replace(temporary, path)


def summary(rows: Sequence[Row]) -> str:
    """The number of mutants per file and outcome, as a table of text."""
    outcomes = ["killed", "survived", "timeout", "no-test"]
    lines = [f"{'file':50}{'places':>8}{'drawn':>8}" + "".join(f"{outcome:>10}" for outcome in outcomes)]
    for file in sorted({row["file"] for row in rows}):
        mine = [row for row in rows if row["file"] == file]
        counts = [sum(row["outcome"] == outcome for row in mine) for outcome in outcomes]
        lines.append(f"{file:50}{mine[0]['sites']:>8}{len(mine):>8}" + "".join(f"{count:>10}" for count in counts))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

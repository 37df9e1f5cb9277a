"""The tool that changes the code: what its tests notice is killed, and what they do not notice survives."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import mutate
import pytest

SOURCE = "def twice(x):\n    return x + x\n"
TEST = "from smooth_topk.toy import twice\n\ndef test_twice():\n    assert twice(2) == 4\n"
CHANGES = ["return x - x", "return x * x", "while True: x += 0", "return x + + * x"]
DRIVER = """
import sys
from pathlib import Path
import mutate

mutate.PROJECT = Path(sys.argv[1])
mutate.PLANS = [mutate.Plan("smooth_topk/toy.py", "test_toy.py", in_memory=IN_MEMORY)]
mutate.import_heavy_packages = lambda: None
mutate.versions = lambda: ["3", "2", "8"]
mutate.SECONDS_AT_LEAST = 2
sources = [SOURCE.replace("return x + x", change) for change in CHANGES]
mutants = [
    mutate.Mutant(2, "change", "return x + x", change, source if mutate.is_python(source) else "")
    for change, source in zip(CHANGES, sources)
]
mutate.sample = lambda source, seed, count: (mutants[:count], len(mutants))
sys.exit(mutate.main(sys.argv[2:]))
"""


@pytest.fixture
def toy(tmp_path):
    """Calls the tool on a project with one function and one test; returns its table and what it printed."""
    project = tmp_path / "project"
    texts = {"smooth_topk/toy.py": SOURCE, "tests/test_toy.py": TEST}
    for name in (*texts, "smooth_topk/__init__.py", "README.md", "pyproject.toml"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(texts.get(name, ""))

    def run(*arguments, in_memory=False):
        constants = f"SOURCE, CHANGES, IN_MEMORY = {SOURCE!r}, {CHANGES!r}, {in_memory}\n"
        command = [sys.executable, "-c", constants + DRIVER, str(project), "--only", "toy"]
        command += ["--output", str(tmp_path / "mutants.csv"), *arguments]
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the toy needs none
        folder = Path(mutate.__file__).parent
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert (project / "smooth_topk/toy.py").read_text() == SOURCE
        with open(tmp_path / "mutants.csv", newline="") as file:
            return {row["after"]: row["outcome"] for row in csv.DictReader(file)}, done.stdout

    return run


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_change_is_killed_survives_never_ends_or_is_not_python(toy, in_memory):
    outcomes, printed = toy("--mutants", "4", in_memory=in_memory)
    assert outcomes == dict(zip(CHANGES, ["killed", "survived", "timeout", "no-test"], strict=True))
    assert printed.splitlines()[-1].split() == ["smooth_topk/toy.py", "4", "4", "1", "1", "1", "1"]


def test_a_second_call_runs_only_what_is_missing(toy):
    assert toy("--mutants", "1")[0] == {CHANGES[0]: "killed"}
    outcomes, printed = toy("--mutants", "2")
    assert outcomes == {CHANGES[0]: "killed", CHANGES[1]: "survived"}
    assert ", 1 mutants," in printed
    assert ", 1 mutants," in toy("--mutants", "2", "--again", "survived")[1]


def test_annotations_are_no_places():
    found = list(mutate.annotations("def f(a: int | None) -> str | None:\n    b: int | str = 1 | 2\n"))
    assert sorted(found) == [((1, 9), (1, 19)), ((1, 24), (1, 34)), ((2, 7), (2, 16))]


def test_without_cosmic_ray_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cosmic_ray.ast", None)
    with pytest.raises(SystemExit, match=r"^Mutants need Cosmic Ray: pip install cosmic-ray$"):
        mutate.sample(SOURCE, "0", 1)


def test_a_sample_depends_on_its_seed_alone_and_a_larger_one_begins_with_it():
    pytest.importorskip("cosmic_ray", reason="needs Cosmic Ray: pip install cosmic-ray")
    few, places = mutate.sample(SOURCE * 3, "0", 2)
    more, _ = mutate.sample(SOURCE * 3, "0", 3)
    assert places == 3
    assert more[:2] == few
    assert mutate.sample(SOURCE * 3, "0", 2) == (few, places)
    assert {mutant.line for mutant in more} == {2, 4, 6}
    assert all(mutant.before == "return x + x" != mutant.after for mutant in more)

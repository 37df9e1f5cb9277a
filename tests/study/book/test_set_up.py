"""Setting up on a server: setup.sh with a chosen build of torch, and the Dockerfile, which is not built here."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
PATIENCE = 400  # seconds until a script that should have ended is given up
# Stands in for Python: notes what it is asked to do, and makes a .venv that holds nothing but itself, where AWAITED
# names a text only when the file PRINTED holds it.
PYTHON = """#!/bin/bash
echo "$@" >> "$LOG"
if [ "$1 $2" = "-m venv" ]; then
    for _ in {1..2000}; do grep --quiet "${AWAITED:-}" "${PRINTED:-$LOG}" && break; sleep 0.1; done
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
fi
if [ "$1" = "-c" ]; then
    if [[ "$2" == *cuda* ]]; then exit "$WITHOUT_GPU"; fi
    echo "some version"
fi
"""


def set_up(folder, **variables):
    """Runs setup.sh with a stand-in for Python; returns what it printed and what it asked Python for."""
    (folder / "scripts").mkdir(parents=True)
    for name in ("scripts/setup.sh", "requirements.lock"):
        shutil.copy(PROJECT / name, folder / name)
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    environment = os.environ | {"PYTHON": str(python), "LOG": str(folder / "log"), "WITHOUT_GPU": "1"}
    environment.pop("TORCH_INDEX_URL", None)
    command, environment = ["bash", "scripts/setup.sh"], environment | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in (folder / "log").read_text().splitlines() if "pip install" in line]


def test_the_index_of_torch_is_used_for_torch_alone_and_first(tmp_path):
    pins = re.findall(r"^torch(?:vision)?==\S+", (PROJECT / "requirements.lock").read_text(), re.MULTILINE)
    assert len(pins) == 2
    _, installed = set_up(tmp_path / "chosen", TORCH_INDEX_URL="https://example.org/cuda")
    assert installed[0].endswith(f"--index-url https://example.org/cuda {' '.join(pins)}")
    assert [("example.org" in line) for line in installed] == [True, False, False]
    _, installed = set_up(tmp_path / "usual")
    assert len(installed) == 2


@pytest.mark.parametrize(("without", "warned"), [("1", True), ("0", False)])
def test_a_gpu_that_torch_cannot_use_is_said(tmp_path, without, warned):
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "nvidia-smi").write_text("#!/bin/bash\n")
    (commands / "nvidia-smi").chmod(0o755)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    printed, _ = set_up(tmp_path / "project", PATH=path, WITHOUT_GPU=without)
    assert ("the installed torch cannot use it" in printed) == warned


def test_two_scripts_at_once_make_one_environment(tmp_path):
    set_up(tmp_path)
    (tmp_path / "log").unlink()
    shutil.rmtree(tmp_path / ".venv")
    variables = {"PYTHON": str(tmp_path / "python"), "LOG": str(tmp_path / "log")}
    variables |= {"PRINTED": str(tmp_path / "printed"), "AWAITED": "Waiting"}  # the first ends when the second waits
    command, environment = ["bash", "scripts/setup.sh"], os.environ | variables
    with open(tmp_path / "printed", "a") as printed:
        both = [subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=printed) for _ in "ab"]
    assert [process.wait(timeout=PATIENCE) for process in both] == [0, 0]
    lines = (tmp_path / "printed").read_text().splitlines()
    assert sum("Making .venv" in line for line in lines) == 1
    assert sum("Waiting for another process that is making .venv" in line for line in lines) == 1
    assert (tmp_path / "log").read_text().count("-m venv") == 1


def test_the_dockerfile_sets_up_and_runs_what_the_readme_says():
    lines = (PROJECT / "Dockerfile").read_text().splitlines()
    assert "COPY . ." in lines
    assert "RUN bash scripts/setup.sh" in lines
    assert 'CMD ["bash", "scripts/study.sh"]' in lines
    assert lines.index("COPY . .") < lines.index("RUN bash scripts/setup.sh")
    assert any(line.startswith("ARG TORCH_INDEX_URL") for line in lines)
    assert "$ bash scripts/study.sh " in (PROJECT / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"scripts/\w+\.sh", "\n".join(lines)):
        assert (PROJECT / name).is_file()


def test_what_a_machine_made_for_itself_stays_out_of_the_image():
    kept_out = (PROJECT / ".dockerignore").read_text().split()
    assert {".venv", "runs", "data", "book/_build"} <= set(kept_out)
    assert not {"requirements.lock", "scripts", "smooth_topk", "notebooks", "book"} & set(kept_out)

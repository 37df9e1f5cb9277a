"""How commands end that a signal stops, or whose output nobody reads: one sentence, the right code, nothing left."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

PROJECT = Path(__file__).parents[3]
PATIENCE = 400  # seconds until a process that should have reacted is given up
LONG_TEST = f"""
import subprocess, sys, time
from pathlib import Path

def test_long():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep({PATIENCE})"])
    try:
        Path("begun").touch()
        time.sleep({PATIENCE})
    finally:
        time.sleep(7)  # longer than xdist waits before it interrupts a worker by itself
        child.kill()
        child.wait()
        Path("ended").write_text("in order")
"""


@pytest.fixture(autouse=True)
def hears_of_its_terminal():
    """Also where the tests themselves were started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def wait_until(happened):
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.1)


@pytest.fixture
def checks(tmp_path):
    """A project whose test.sh makes no .venv, finds no fault in the code, and has the tests that a test writes."""
    for folder in ("scripts", "bin", "tests"):
        (tmp_path / folder).mkdir()
    shutil.copy(PROJECT / "scripts" / "test.sh", tmp_path / "scripts")
    head, _, _ = (PROJECT / "scripts" / "setup.sh").read_text().partition("\npython=")
    (tmp_path / "scripts" / "setup.sh").write_text(head)
    for name in ("ruff", "lint-imports", "mypy"):
        (tmp_path / "bin" / name).write_text("#!/bin/bash\n")
        (tmp_path / "bin" / name).chmod(0o755)
    shutil.copy(PROJECT / "tests" / "conftest.py", tmp_path / "tests")
    return tmp_path


def start_checks(folder, *arguments):
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.Popen(
        ["bash", folder / "scripts" / "test.sh", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "send", "code"),
    [(signal.SIGINT, os.killpg, 130), (signal.SIGINT, os.kill, 130), (signal.SIGTERM, os.kill, 143)],
    ids=["Ctrl-C in a terminal", "SIGINT to the shell alone", "SIGTERM to the shell alone"],
)
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_signal_to_the_script_of_the_tests_ends_them_in_order(checks, workers, number, send, code):
    (checks / "tests" / "test_long.py").write_text(LONG_TEST)
    script = start_checks(checks, "-n", workers)
    wait_until((checks / "begun").exists)
    started = psutil.Process(script.pid).children(recursive=True)
    send(script.pid, number)
    printed, errors = script.communicate(timeout=PATIENCE)
    assert script.returncode == code
    assert errors.endswith(f"\n!! Stopped by {number.name}.\n")
    assert "Some tests failed" not in printed + errors
    assert (checks / "ended").read_text() == "in order"
    assert len(started) >= 2, "pytest and what the test started"
    assert not psutil.wait_procs(started, timeout=PATIENCE)[1]


def test_sigterm_during_a_check_of_the_code_ends_the_check(checks):
    (checks / "bin" / "mypy").write_text(
        f"#!/bin/bash\necho $$ > begun.new; mv begun.new begun\nexec sleep {PATIENCE}\n"
    )
    script = start_checks(checks)
    wait_until((checks / "begun").exists)
    mypy = psutil.Process(int((checks / "begun").read_text()))
    script.send_signal(signal.SIGTERM)
    errors = script.communicate(timeout=PATIENCE)[1]
    assert script.returncode == 143
    assert errors == "\n!! Stopped by SIGTERM.\n"
    assert not psutil.wait_procs([mypy], timeout=PATIENCE)[1]


@pytest.mark.parametrize(("test", "code", "last"), [("pass", 0, "== All tests passed"), ("assert 0", 1, "")])
def test_the_script_of_the_tests_says_at_the_end_whether_all_passed(checks, test, code, last):
    (checks / "tests" / "test_short.py").write_text(f"def test_short():\n    {test}\n")
    script = start_checks(checks, "-n", "0")
    printed, errors = script.communicate(timeout=PATIENCE)
    assert script.returncode == code, printed + errors
    assert printed.rstrip().endswith(last)
    assert ("!! Some tests failed." in errors) == bool(code)

"""How commands end that a signal stops, or whose output nobody reads: one sentence, the right code, nothing left."""

import os
import pickle
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from smooth_topk.study.book import build, pictures
from smooth_topk.study.measure import calibration
from smooth_topk.study.records import endings

PROJECT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("hears_of_its_terminal")
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
    [
        (signal.SIGINT, os.killpg, 130),
        (signal.SIGINT, os.kill, 130),
        (signal.SIGTERM, os.kill, 143),
        (signal.SIGHUP, os.killpg, 129),
    ],
    ids=["Ctrl-C in a terminal", "SIGINT to the shell alone", "SIGTERM to the shell alone", "a closed terminal"],
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


SCRIPTS = sorted(path for path in (PROJECT / "scripts").glob("*.py") if path.name != "start.py")
SLOW = f"import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep({PATIENCE})\n"


def copied_script(folder, script, *, while_importing="", main=""):
    """Copies a script; the module that it calls is imported, and its function main called, with this code."""
    (folder / "scripts").mkdir()
    shutil.copy(PROJECT / "scripts" / "start.py", folder / "scripts")
    shutil.copy(script, folder / "scripts")
    module = script.read_text().partition('start("')[2].partition('"')[0].replace(".", "/")
    for path in ("smooth_topk/study/records/endings.py", f"{module}.py"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        for package in list(Path(path).parents)[:-1]:  # a folder without it gives way to an installed package
            (folder / package / "__init__.py").touch()
    shutil.copy(PROJECT / "smooth_topk/study/records/endings.py", folder / "smooth_topk/study/records")
    (folder / f"{module}.py").write_text(f"{while_importing}\ndef main():\n" + textwrap.indent(main or "pass", "    "))
    return [sys.executable, folder / "scripts" / script.name]


def stopped(command, folder, number):
    """Starts a command, sends it a signal when it has begun, and returns its exit code and what it said."""
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
    wait_until((folder / "begun").exists)
    process.send_signal(number)
    errors = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, errors


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_the_imports_of_a_script_is_one_sentence(tmp_path, script, number, code):
    command = copied_script(tmp_path, script, while_importing=SLOW)
    assert stopped(command, tmp_path, number) == (code, "\n!! Stopped before anything was started.\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_a_script_at_work_is_one_sentence(tmp_path, script, number, code):
    sentence = f"\n!! Stopped by {number.name}; the same command goes on with what is missing.\n"
    assert stopped(copied_script(tmp_path, script, main=SLOW), tmp_path, number) == (code, sentence)


@pytest.mark.parametrize("lines", [1, 100_000], ids=["all at the end", "in the middle"])
def test_an_output_that_cannot_be_written_is_one_sentence(tmp_path, lines):
    command = copied_script(tmp_path, SCRIPTS[0], main=f"for _ in range({lines}): print('a line')\nreturn 0")
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr == (
        "\n!! The output cannot be written (No space left on device); the same command goes on with what is missing.\n"
    )


@pytest.mark.parametrize("lines", [1, 100_000], ids=["all at the end", "in the middle"])
def test_an_output_that_nobody_reads_is_one_sentence(tmp_path, lines):
    command = copied_script(tmp_path, SCRIPTS[0], main=f"for _ in range({lines}): print('a line')\nreturn 0")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == (
        "\n!! Nobody reads the output any more (Broken pipe); the same command goes on with what is missing.\n"
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full"])
def test_a_script_without_an_output_or_without_room_for_errors_keeps_its_code(tmp_path, closed):
    command = copied_script(tmp_path, SCRIPTS[0], main="import sys\nprint(1)\nprint(2, file=sys.stderr)\nreturn 2")
    line = f"{' '.join(shlex.quote(str(word)) for word in command)} {closed}"
    assert subprocess.run(line, shell=True, stdout=subprocess.DEVNULL, timeout=PATIENCE).returncode == 2


def test_a_signal_while_python_ends_does_not_say_that_nothing_was_started(tmp_path):
    main = f"""
import atexit, pathlib, time

def late():
    pathlib.Path("begun").touch()
    time.sleep({PATIENCE})

atexit.register(late)
return 0
"""
    assert stopped(copied_script(tmp_path, SCRIPTS[0], main=main), tmp_path, signal.SIGINT) == (-signal.SIGINT, "")


def test_the_reason_of_a_stop_travels_between_processes():
    copy = pickle.loads(pickle.dumps(endings.Stopped("Stopped by SIGTERM", 143)))
    assert (endings.why(copy), endings.exit_code(copy)) == ("Stopped by SIGTERM", 143)


def test_a_terminal_that_goes_away_is_one_signal_however_often_it_is_sent(capsys):
    def main():
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(signal.SIGHUP)  # the shell sends one, and the system another when the shell has ended

    before = signal.getsignal(signal.SIGHUP)
    assert endings.ended_in_order(main) == 129
    assert capsys.readouterr().err.count("Stopped by SIGHUP") == 1
    assert signal.getsignal(signal.SIGHUP) is before


def test_the_signal_is_known_also_where_a_library_raises_an_interrupt_of_its_own(capsys):
    """As Ray does while it waits for a task."""

    def main():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None

    assert endings.ended_in_order(main) == 143
    assert "Stopped by SIGTERM" in capsys.readouterr().err


def test_after_nohup_a_command_goes_on():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert endings.ended_in_order(lambda: signal.raise_signal(signal.SIGHUP) or 0) == 0


def test_what_is_said_after_a_signal_may_be_lost(tmp_path):
    main = "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGHUP)\nfinally:\n    print(1, flush=True)\n"
    command = copied_script(tmp_path, SCRIPTS[0], main=main)
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr.count("!! Stopped by SIGHUP;")) == (129, 1)


def test_a_file_that_a_script_could_not_write_is_one_sentence(tmp_path):
    command = copied_script(tmp_path, SCRIPTS[0], main="open('/nowhere/file', 'w')")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (1, "\n!! /nowhere/file: No such file or directory.\n")


def test_a_letter_that_the_terminal_does_not_have_is_no_reason_to_fail(tmp_path):
    command = copied_script(tmp_path, SCRIPTS[0], main="print('\\u03c4 and \\udcff')\nreturn 0")
    environment = {"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "\\u03c4 and \\udcff\n"), done.stderr


def test_a_script_started_in_a_folder_that_is_gone_says_so(tmp_path):
    command = " ".join(shlex.quote(str(word)) for word in copied_script(tmp_path, SCRIPTS[0]))
    (tmp_path / "gone").mkdir()
    line = f"cd {shlex.quote(str(tmp_path / 'gone'))} && rmdir ../gone && {command}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr == "!! The folder that this command was started in is gone: go to another one.\n"


@pytest.mark.parametrize(
    ("command", "arguments", "sentence"),
    [
        (calibration, ["--output", "/proc/x"], "Could not write /proc/x"),
        (pictures, ["--notebooks", "{tmp_path}"], "{tmp_path} holds no executed notebook"),
        (build, ["--notebooks", "{tmp_path}/books", "--output", "{tmp_path}/loop"], "{tmp_path}/loop is not a folder"),
    ],
    ids=["calibration", "pictures", "book"],
)
def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path, capsys, command, arguments, sentence):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "01_a.ipynb").touch()
    arguments = [argument.format(tmp_path=tmp_path) for argument in arguments]
    assert endings.ended_in_order(lambda: command.main(arguments)) in (1, 2)
    assert f"!! {sentence.format(tmp_path=tmp_path)}" in capsys.readouterr().err

"""How commands end that a signal stops, or whose files cannot be used."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from smooth_topk.study.records.endings import ended_in_order

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_with_its_code_and_one_line(number, code, capsys):
    before = signal.getsignal(number)
    assert ended_in_order(lambda: signal.raise_signal(number)) == code
    assert signal.Signals(number).name in capsys.readouterr().err
    assert signal.getsignal(number) is before


def test_the_signal_is_known_where_a_library_raises_an_interrupt_of_its_own():
    """As Ray does while it waits for a task."""

    def main():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None

    assert ended_in_order(main) == 143


def test_a_file_that_cannot_be_used_is_named(capsys):
    assert ended_in_order(Path("/nowhere/file").read_text) == 1
    assert "/nowhere/file" in capsys.readouterr().err


def test_an_output_that_nobody_reads_ends_a_command_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, PROJECT / "scripts" / "sync_notebooks.py", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=400)
    os.close(writer)
    assert "Traceback" not in done.stderr


def test_a_signal_during_the_imports_of_a_script_is_no_traceback(tmp_path):
    (tmp_path / "slow.py").write_text("import signal\nsignal.raise_signal(signal.SIGTERM)\n")
    program = "import sys; sys.path[:0] = sys.argv[1:]; from start import start; start('slow')"
    command = [sys.executable, "-c", program, PROJECT / "scripts", tmp_path]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=400)
    assert (done.returncode, done.stderr) == (143, "")

"""How a command ends: after a signal, or when its output cannot be written, with one sentence and the matching code.

Both are raised as a KeyboardInterrupt in whatever code is running, so that everything is cleaned up as after Ctrl-C.
"""

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO

GOES_ON = "the same command goes on with what is missing"


class Stopped(KeyboardInterrupt):
    """A command is to end; `code` is its exit code, and as a text it says why."""

    def __init__(self, why: str, code: int):
        super().__init__(why)
        self.code = code

    def __reduce__(self) -> tuple:  # so that it travels between processes
        return type(self), (str(self), self.code)


def ended_in_order(main: Callable[[], int]) -> int:
    """Calls a command and returns its exit code, or 128 plus the number of the signal that stopped it.

    An output that nobody reads any more counts as SIGPIPE; one that cannot be written, on a full disk say, is code 1,
    as is a file that the command could not read or write and said nothing about.
    """
    with outputs_that_may_fail():
        try:
            with signals_as_interrupts():
                try:
                    return main()
                finally:
                    print(end="", flush=True)
        except KeyboardInterrupt as stopped:
            print(f"\n!! {why(stopped)}; {GOES_ON}.", file=sys.stderr, flush=True)
            return exit_code(stopped)
        except OSError as error:  # a full disk, a folder that cannot be written to
            print(f"\n!! {as_sentence(error)}", file=sys.stderr, flush=True)
            return 1


def as_sentence(error: OSError | ValueError) -> str:
    """Returns what failed, with the file; our own errors say it themselves."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}."
    return str(error)


def why(stopped: KeyboardInterrupt) -> str:
    """Returns the reason of an interrupt as the beginning of a sentence."""
    return str(stopped) if isinstance(stopped, Stopped) else "Stopped by SIGINT"


def exit_code(stopped: KeyboardInterrupt) -> int:
    """Returns the exit code of a command that was interrupted."""
    return stopped.code if isinstance(stopped, Stopped) else 128 + signal.SIGINT


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """SIGTERM, and SIGHUP when a terminal goes away, stop a command as Ctrl-C does; the exception says which it was.

    After `nohup`, which lets a command ignore SIGHUP, it goes on.
    """

    def stop(number: int, frame: object) -> None:
        if number == signal.SIGHUP:  # comes twice, from the shell and from the system: no sign of impatience
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if isinstance(sys.stdout, _Output):
            sys.stdout.stops = False  # one reason is enough, and what is said on the way to the end may be lost
        received.append(Stopped(f"Stopped by {signal.Signals(number).name}", 128 + number))
        raise received[-1]

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[Stopped] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if received and not isinstance(interrupt, Stopped):  # Ray raises one of its own in place of ours
            raise received[-1] from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def outputs_that_may_fail() -> Iterator[None]:
    """Stops the command when standard output cannot be written; a failure of standard error is ignored.

    A character that the terminal's encoding lacks is printed as its escape code.
    """
    before: Any = sys.stdout, sys.stderr
    for name, stream in zip(("stdout", "stderr"), before, strict=True):
        if stream is not None:  # as it is where the command was started without one
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, _Output(stream, stops=name == "stdout"))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Output:
    """Wraps a stream: the first failed write stops the command or is ignored, and all later output is discarded."""

    def __init__(self, stream: TextIO, stops: bool):
        self._stream, self.stops = stream, stops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._watched():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._watched():
            self._stream.flush()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())  # else Python fails once more when it ends
            if self.stops:
                self.stops = False
                gone = error.errno == errno.EPIPE
                reason = "Nobody reads the output any more" if gone else "The output cannot be written"
                code = 128 + signal.SIGPIPE if gone else 1
                raise Stopped(f"{reason} ({error.strerror})", code) from None

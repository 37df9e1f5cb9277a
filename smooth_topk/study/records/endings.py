"""How a command ends: SIGTERM stops it as Ctrl-C does, with one sentence and the matching exit code."""

import os
import signal
import sys
from collections.abc import Callable

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A command is to end; `code` is its exit code, and as a text it says why."""

    def __init__(self, why: str, code: int):
        super().__init__(why)
        self.code = code

    def __reduce__(self) -> tuple:  # so that it travels between processes
        return type(self), (str(self), self.code)


def ended_in_order(main: Callable[[], int]) -> int:
    """Calls a command and returns its exit code: 130 after Ctrl-C, 143 after SIGTERM, 1 where a file cannot be used."""
    received: list[Stopped] = []

    def stop(number: int, frame: object) -> None:
        received.append(Stopped(f"Stopped by {signal.Signals(number).name}", 128 + number))
        raise received[-1]

    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        code = main()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as interrupt:
        stopped = received[-1] if received else interrupt  # Ray raises one of its own in place of ours
        reason, code = str(stopped) or "Stopped by SIGINT", getattr(stopped, "code", 128 + signal.SIGINT)
        print(f"\n!! {reason}; the same command continues with what is missing.", file=sys.stderr)
        return code
    except BrokenPipeError:  # nobody reads the output any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python fails once more when it ends
        return 128 + signal.SIGPIPE
    except OSError as error:
        print(f"\n!! {error}", file=sys.stderr)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

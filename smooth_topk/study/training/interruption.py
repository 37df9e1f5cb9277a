"""Ctrl-C, a termination signal and a lost terminal, as a request that the training loop meets at a safe place."""

import contextlib
import signal
import threading

from smooth_topk.study.records.endings import Stopped


class StopRequest(contextlib.AbstractContextManager):
    """The first signal sets `received`; the second interrupts at once. Outside the main thread it does nothing.

    SIGHUP comes when a terminal goes away, and stays ignored after `nohup`. It can come twice, from the shell and from
    the system, so a second one is no sign of impatience.

    Example:
        >>> with StopRequest() as stop:
        ...     signal.raise_signal(signal.SIGTERM)
        >>> stop.received
        'SIGTERM'
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self):
        self.received: str | None = None
        self._previous: dict = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            numbers = [number for number in self.SIGNALS if not (hangup_ignored and number == signal.SIGHUP)]
            self._previous = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number, frame) -> None:
        if self.received and number != signal.SIGHUP:
            raise Stopped(f"Stopped by {signal.Signals(number).name}", 128 + number)
        self.received = self.received or signal.Signals(number).name

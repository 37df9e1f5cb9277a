"""Ctrl-C and SIGTERM as a request that the training loop meets between two steps."""

import contextlib
import signal
import threading

from smooth_topk.study.records.endings import Stopped


class StopRequest(contextlib.AbstractContextManager):
    """The first signal sets `received`; the second interrupts at once. Outside the main thread it does nothing.

    Example:
        >>> with StopRequest() as stop:
        ...     signal.raise_signal(signal.SIGTERM)
        >>> stop.received
        'SIGTERM'
    """

    def __init__(self):
        self.received: str | None = None
        self._previous: dict = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGINT, signal.SIGTERM]
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as it is after nohup
                numbers.append(signal.SIGHUP)
            self._previous = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number, frame) -> None:
        if self.received and number != signal.SIGHUP:  # which comes twice, from the shell and from the system
            raise Stopped(f"Stopped by {signal.Signals(number).name}", 128 + number)
        self.received = self.received or signal.Signals(number).name

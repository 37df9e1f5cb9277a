"""Ctrl-C and a cluster's termination signal, turned into a request that the training loop meets at a safe place."""

import contextlib
import signal
import threading


class StopRequest(contextlib.AbstractContextManager):
    """The first signal sets `received`; the second interrupts at once. Outside the main thread it does nothing.

    Example:
        >>> with StopRequest() as stop:
        ...     signal.raise_signal(signal.SIGTERM)
        >>> stop.received
        'SIGTERM'
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self):
        self.received: str | None = None
        self._previous: dict = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._receive) for number in self.SIGNALS}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number, frame) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name

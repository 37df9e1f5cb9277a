"""Settings of the whole suite: hypothesis, and Ctrl-C."""

import signal

from hypothesis import settings

# The same examples on every run, no files beside the tests, and no limit of time on a machine that is shared.
settings.register_profile("suite", derandomize=True, database=None, deadline=None)
settings.load_profile("suite")

# A shell starts its background jobs deaf to Ctrl-C, and so would be the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

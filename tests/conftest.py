"""Settings of hypothesis for the whole suite."""

from hypothesis import settings

# The same examples on every run, no files beside the tests, and no limit of time on a machine that is shared.
settings.register_profile("suite", derandomize=True, database=None, deadline=None)
settings.load_profile("suite")

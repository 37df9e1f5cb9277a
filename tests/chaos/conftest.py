import pytest


def pytest_collection_modifyitems(config, items):
    """The long test runs only if asked for, whatever other marks are chosen."""
    if "chaos" not in config.getoption("markexpr"):
        for item in items:
            if item.get_closest_marker("chaos"):
                item.add_marker(pytest.mark.skip(reason="takes 20 minutes: pytest -m chaos"))

"""What the tests of the engine share: the small images, and one run that nobody disturbed. No test changes them."""

import pytest
from small_runs import fit_small, write_small_data


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_small_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def reference(tmp_path_factory, data):
    """The folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("reference")
    fit_small(folder, data, keep_best=True)
    return folder

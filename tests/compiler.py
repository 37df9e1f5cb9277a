"""What torch.compile needs beside torch."""

import os
import shutil

import pytest

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="torch.compile needs g++: on Debian, apt-get install g++"
)

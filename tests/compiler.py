"""What torch.compile needs beside torch: a compiler and the headers of this Python."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

compiler = shutil.which(os.environ.get("CXX", "g++"))
headers = Path(sysconfig.get_path("include")) / "Python.h"
needs_compiler = pytest.mark.skipif(
    compiler is None or not headers.exists(),
    reason="torch.compile needs g++ and Python's headers: on Debian, apt-get install g++ python3-dev",
)

#!/usr/bin/env bash
# Tests the losses with the oldest Python and torch that pyproject.toml promises, in a virtual environment of their own.
# Other versions: bash scripts/test_oldest.sh python3.12 2.9 (or newest). Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-python$(sed -n 's/^requires-python = ">=\(.*\)"$/\1/p' pyproject.toml)}
torch=${2:-$(sed -n 's/^dependencies = \["torch>=\(.*\)"\]$/\1/p' pyproject.toml)}
[ "$torch" != newest ] || torch=
shift $(($# < 2 ? $# : 2))

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder"
# Old versions of torch may exist as CUDA builds only, which take several gigabytes.
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check numpy numba pytest pytest-timeout hypothesis \
    mpmath psutil "torch${torch:+==$torch.*}"
printf '== The tests of the losses with %s and torch %s\n' "$("$folder/bin/python" --version)" "${torch:-newest}"
export OMP_NUM_THREADS=1 PYTHONPATH=$PWD
tests=(tests/polynomials tests/kernels tests/loss tests/test_linear.py tests/test_prediction.py tests/test_noisy_labels.py
    tests/test_compat.py)
"$folder/bin/python" -m pytest -q "${tests[@]}" -m "not slow and not gpu" "$@"

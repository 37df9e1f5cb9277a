#!/usr/bin/env bash
# Lint, format, types, imports, tests. Further arguments go to pytest: bash scripts/test.sh tests/test_losses.py -k gradient
# With --fast, the tests are those of the losses alone, without the slow ones: an answer in under a minute.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

tests=()
if [[ ${1:-} == --fast ]]; then
    shift
    tests=(tests --ignore=tests/study --ignore=tests/browser --ignore=tests/chaos --ignore=tests/test_notebooks.py -m "not slow")
fi

say "Checking lint and format (ruff)"
ruff check --quiet . || fail "ruff check found the problems above."
ruff format --quiet --check . || fail "ruff format would change the files above: run .venv/bin/ruff format ."
say "Checking who imports whom (import-linter)"
lint-imports >/dev/null || { lint-imports; fail "An import breaks a contract of pyproject.toml."; }
say "Checking types (mypy)"
mypy || fail "mypy found the problems above."

say "Running the tests (pytest)"
[[ ${#tests[@]} -gt 0 ]] || command -v chromium >/dev/null ||
    say "Chromium is missing, so the browser tests are skipped: on Debian, apt-get install chromium"
# One process per core with one thread each: two threads of one process lose badly on a shared machine. Tests that share
# a server (xdist_group) stay on one process.
export OMP_NUM_THREADS=1
workers=(--numprocesses auto --dist loadgroup)
for argument in "$@"; do [[ $argument == -n* || $argument == --numprocesses* ]] && workers=(); done
python -m pytest "${workers[@]}" "${tests[@]}" "$@" || fail "Some tests failed."
say "All tests passed"

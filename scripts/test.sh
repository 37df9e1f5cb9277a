#!/usr/bin/env bash
# Lint, format, tests. Further arguments go to pytest: bash scripts/test.sh tests/test_losses.py -k gradient
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

say "Checking lint and format (ruff)"
ruff check --quiet . || fail "ruff check found the problems above."
ruff format --quiet --check . || fail "ruff format would change the files above: run .venv/bin/ruff format ."
command -v chromium >/dev/null || say "Chromium is missing, so the browser tests are skipped: on Debian, apt-get install chromium"

say "Running the tests (pytest)"
# One process per core with one thread each: two threads of one process lose badly on a shared machine.
export OMP_NUM_THREADS=1
workers=(--numprocesses auto --dist worksteal)
for argument in "$@"; do [[ $argument == -n* || $argument == --numprocesses* ]] && workers=(); done
python -m pytest "${workers[@]}" "$@" || fail "Some tests failed."
say "All tests passed"

# Sourced by the other scripts: goes to the project's root, makes .venv if it is missing or stale, and puts it on PATH.
# PYTHON chooses another interpreter: PYTHON=python3.12 bash scripts/test.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '== %s\n' "$*"; }
fail() { printf '!! %s\n' "$*" >&2; exit 1; }

python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "No $python on PATH: install Python 3.11 or newer, or set PYTHON."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed, $("$python" --version) was found: set PYTHON."
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "Python's venv module is missing: on Debian, apt-get install python3-venv."

wanted=$("$python" -c 'import hashlib, sys; print(sys.version, hashlib.sha256(sys.stdin.buffer.read()).hexdigest())' < requirements.lock)
if [ "$(cat .venv/complete 2>/dev/null || true)" != "$wanted" ]; then
    say "Making .venv from requirements.lock (a few minutes, once)"
    rm -rf .venv
    "$python" -m venv .venv || fail "Could not make .venv here."
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock || fail "Could not install what requirements.lock names: the lines above say why."
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . || fail "Could not install smooth_topk itself."
    printf '%s\n' "$wanted" > .venv/complete
fi
export PATH="$PWD/.venv/bin:$PATH"

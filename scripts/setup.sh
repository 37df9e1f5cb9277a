# Sourced by the other scripts: goes to the project's root, makes .venv if it is missing or stale, and puts it on PATH.
# PYTHON chooses another interpreter: PYTHON=python3.12 bash scripts/test.sh
# TORCH_INDEX_URL chooses another build of torch, such as one for a CUDA version: the address of its package index.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '== %s\n' "$*"; }
fail() { printf '!! %s\n' "$*" >&2; exit 1; }

python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "No $python on PATH: install Python 3.11 or newer, or set PYTHON."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed, $("$python" --version) was found: set PYTHON."
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "Python's venv module is missing: on Debian, apt-get install python3-venv."

wanted=$("$python" -c 'import hashlib, sys; print(sys.version, hashlib.sha256(sys.stdin.buffer.read()).hexdigest())' < requirements.lock)
stale() { [ "$(cat .venv/complete 2>/dev/null || true)" != "$wanted" ]; }
# One at a time: another script may be making it, or what a killed one left behind may still be writing to it.
if stale; then
    exec 9>> requirements.lock # nothing is written: network drives lock only what is open for writing
    flock --nonblock 9 || { say "Waiting for another process that is making .venv"; flock 9 || true; }
fi
if stale; then
    say "Making .venv from requirements.lock (a few minutes, once)"
    rm -rf .venv
    "$python" -m venv .venv || fail "Could not make .venv here."
    if [ -n "${TORCH_INDEX_URL:-}" ]; then # first: what is installed already satisfies the lock, whatever its build
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --index-url "$TORCH_INDEX_URL" $(grep -E '^torch(vision)?==' requirements.lock) || fail "Could not install torch from TORCH_INDEX_URL=$TORCH_INDEX_URL: the lines above say why."
    fi
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock || fail "Could not install what requirements.lock names: the lines above say why."
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . || fail "Could not install smooth_topk itself."
    if command -v nvidia-smi >/dev/null && ! .venv/bin/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
        say "This machine has an NVIDIA GPU, but the installed torch cannot use it: book/gpu_server.md says how to choose its build"
    fi
    printf '%s\n' "$wanted" > .venv/complete
fi
exec 9>&-
export PATH="$PWD/.venv/bin:$PATH"

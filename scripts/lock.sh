#!/usr/bin/env bash
# Makes a new requirements.lock from the ranges in pyproject.toml. TORCH and TORCHVISION choose that pair.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet "torch==${TORCH:-2.13.0}" "torchvision==${TORCHVISION:-0.28.0}"
# Debian 12 has Python 3.11.2, and later releases of this package need 3.11.5. A test looks for others of that kind.
echo "soupsieve<3" > "$folder/constraints"
"$folder/bin/python" -m pip install --quiet --constraint "$folder/constraints" ".[study,book,test,fused,cluster,peers]"
# The CPU and CUDA builds of torch share one version number, and their CUDA parts are torch's own to choose.
"$folder/bin/python" -m pip freeze --all --exclude pip --exclude smooth-topk | sed -E 's/\+cpu$//; /^nvidia-/d' > "$folder/lock"
mv "$folder/lock" requirements.lock

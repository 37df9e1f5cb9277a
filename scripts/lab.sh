#!/usr/bin/env bash
# Opens chapter 0 in JupyterLab, for this machine only. Further arguments go to jupyter lab: bash scripts/lab.sh --no-browser
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

say "Opening JupyterLab in notebooks/ (stop with Ctrl-C; the address with its token is printed below)"
# In a container one is often root, which Jupyter accepts only with this option.
[ "$(id -u)" != 0 ] || set -- --allow-root "$@"
export JUPYTER_PREFER_ENV_PATH=1
# Lists the chapters without their .py twins, shows Markdown pages rendered, and asks nothing about news.
export JUPYTER_CONFIG_PATH="$PWD/scripts/jupyter${JUPYTER_CONFIG_PATH:+:$JUPYTER_CONFIG_PATH}"
# The root is the project, so that links from a chapter to a page of the book lead somewhere.
exec jupyter lab --ServerApp.ip=127.0.0.1 --ServerApp.root_dir="$PWD" --ServerApp.preferred_dir="$PWD/notebooks" \
    --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb "$@"

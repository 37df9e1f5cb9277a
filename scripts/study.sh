#!/usr/bin/env bash
# Runs the study and builds the book. Further arguments go to scripts/run_study.py: bash scripts/study.sh --profile laptop
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

say "Running the notebooks"
# In the place of this shell: a signal sent to it alone, as docker stop does, reaches the study, which stops in order.
exec python scripts/run_study.py "$@"

#!/usr/bin/env bash
# Runs the study and builds the book. Further arguments go to scripts/run_study.py: bash scripts/study.sh --profile laptop
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

say "Running the notebooks"
python scripts/run_study.py "$@" || fail "The study did not finish: run the same command again to go on with what is missing."

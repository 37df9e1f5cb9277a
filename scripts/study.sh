#!/usr/bin/env bash
# Runs the study and builds the book. Further arguments go to scripts/run_study.py: bash scripts/study.sh --profile laptop
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

say "Running the notebooks"
code=0
python scripts/run_study.py "$@" || code=$?
case $code in
    0) ;;
    2) exit 2 ;; # refused: the reason is printed, nothing was started
    130 | 143) exit "$code" ;; # stopped by Ctrl-C or SIGTERM: that is printed, too
    *) fail "The study did not finish: run the same command again to go on with what is missing." ;;
esac

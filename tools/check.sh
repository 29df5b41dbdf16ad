#!/bin/sh
# check.sh - sets up, builds everything (also under the sanitizers) and runs every test. Arguments go to tools/test.py.
# Without a network the packages of build/venv cannot be installed: the tests that need them are then reported as skipped.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh
tools/setup_python.sh || echo "check.sh: without build/venv"
ninja all tests san
exec python3 tools/test.py "$@"

#!/bin/sh
# check.sh - sets up, builds everything (also under the sanitizers) and runs every test. Arguments go to tools/test.py.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh
ninja all tests san
exec python3 tools/test.py "$@"

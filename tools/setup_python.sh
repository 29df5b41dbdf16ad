#!/bin/sh
# setup_python.sh - makes build/venv with the packages of tests/serve/requirements.txt, pinned by hash, for the checks that use the server
# through third-party clients (lm-evaluation-harness, the OpenAI client, inspect-ai, pydantic-ai). Does nothing if it exists; exits with
# status 1 if it fails, and those checks are then skipped. 190 MB from PyPI, about a minute; 800 MB on disk. Read next:
# tests/serve/README.md.
set -eu
cd "$(dirname "$0")/.."

requirements=tests/serve/requirements.txt
venv=build/venv
cmp -s "$requirements" "$venv/made-from.txt" && exit 0

if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "setup_python.sh: please run  sudo apt-get install --no-install-recommends python3-venv"
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update
  apt-get -q install -y --no-install-recommends python3-venv
fi

rm -rf "$venv"
mkdir -p build
python3 -m venv "$venv"
if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 --no-deps --require-hashes --only-binary=:all: \
  --requirement "$requirements"; then
  echo "setup_python.sh: the packages of $requirements could not be installed"
  exit 1
fi
cp "$requirements" "$venv/made-from.txt"

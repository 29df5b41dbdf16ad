#!/bin/sh
# try.sh - builds Verbatim, plans the shipped model and runs its 440 tasks, on the GPU if there is one and else on the CPU; shows
# some answers. Then compares the receipt, which holds every token and a digest of every logits row, with the one recorded on an
# NVIDIA H200, but for its second line, which names the machine. Arguments go to `verbatim run`: none may change a bit but the
# sampling parameters.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh
ninja
mkdir -p build/try
build/verbatim plan tests/tiny --config tests/tiny/deploy.yaml -o build/try/tiny.plan --force
build/verbatim run build/try/tiny.plan tests/tiny --jsonl tests/tiny/items.jsonl --max-tokens 96 --output jsonl \
  --receipt build/try/tiny.receipt "$@" > build/try/tiny.jsonl
echo "Some of the tokens and answers (all are in build/try/tiny.jsonl):"
awk 'NR % 40 == 1' build/try/tiny.jsonl | sed 's/,"logprobs":[^]]*\]//'
sed 2d build/try/tiny.receipt > build/try/made
sed 2d tests/golden/tiny.receipt > build/try/recorded
if ! cmp build/try/made build/try/recorded; then
  echo "try.sh: the receipt build/try/tiny.receipt is not the recorded one, tests/golden/tiny.receipt" >&2
  exit 1
fi
echo "The same bits as recorded on an NVIDIA H200 (tests/golden/tiny.receipt)."

#!/bin/sh
# try.sh - builds Verbatim, plans the shipped model and evaluates it, on the GPU if there is one, else on the CPU: 1,040 items of six tasks,
# with scores, their margins and a report. Then compares the digest of the evaluation, which covers every answer, every log-probability and
# the receipt, with the one recorded on an NVIDIA H200; and verifies a receipt that an H100 wrote for a model with grouped-query attention.
# Arguments go to `verbatim eval`: options that divide the work differently change nothing.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh
case $(uname -s)-$(uname -m) in
  Darwin-*) build=build/macos target=arm64-apple-macos ;;
  Linux-aarch64) build=build/aarch64 target=aarch64-linux-gnu ;;
  *) build=build target="" ;;
esac
file=build.ninja
if [ -n "$target" ]; then
  file=$build/build.ninja
  ./configure.py --target $target
fi
ninja -f $file
mkdir -p build/try
rm -rf build/try/out
$build/verbatim plan tests/tiny --config tests/tiny/deploy.yaml -o build/try/tiny.plan --force --quiet
$build/verbatim eval tests/tiny/tasks/*.yaml --plan build/try/tiny.plan --model tests/tiny --output build/try/out "$@"
echo
echo "Answers, margins and the receipt are in build/try/out; open build/try/out/report.html in a browser. To repeat the run and compare:"
echo "  $build/verbatim replay build/try/out/manifest.json"
made=$(sed -n 's/^ *"manifest_digest": *"\([0-9a-f]*\)".*/\1/p' build/try/out/manifest.json | head -n 1)
recorded=$(cat tests/golden/tiny.manifest)
if [ "$made" != "$recorded" ]; then
  echo "try.sh: this run is $made, the recorded one (tests/golden/tiny.manifest) is $recorded" >&2
  exit 1
fi
echo "The same bits as recorded on an NVIDIA H200 (tests/golden/tiny.manifest)."
echo
echo "A model with grouped-query attention and random weights: the receipt that an NVIDIA H100 wrote, token by token."
$build/random_model tests/oracle/small-llama.json build/try/llama --seed 1
$build/verbatim plan build/try/llama --chunk-tokens 64 --max-model-len 1024 --max-num-seqs 16 -o build/try/llama.plan --force --quiet
$build/verbatim verify tests/golden/llama.receipt build/try/llama.plan build/try/llama

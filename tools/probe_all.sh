#!/bin/bash
# Measures the GEMM shapes of the models that a shipped profile is for: tools/probe_all.sh OUT.json [FIGURES.json] [MODEL...]
#
# Makes plans of the configurations in tests/data/configs with few layers (each shape is measured once, whatever layers have it) and steps
# of up to 4096 tokens, and runs `verbatim probe` on all of them. Needs the GPU; takes about two minutes.
# Afterwards: cp OUT.json planner/profiles/nvidia-h200.json
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: tools/probe_all.sh OUT.json [FIGURES.json] [MODEL...]}
figures=${2:-$out.figures}
shift; shift || true
models=("$@")
[ ${#models[@]} -gt 0 ] || models=(deepseek-v2-lite moonlight glm-4.7-flash deepseek-v3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'max-num-seqs: 64\nmax-num-batched-tokens: 4096\nmax_logit_rows: 256\nmax-model-len: 1024\nkv_pages: 64\n' > "$work/deploy.yaml"
plans=()
for model in "${models[@]}"; do
  mkdir "$work/$model"
  python3 - "tests/data/configs/$model.json" "$work/$model/config.json" <<'P'
import json, sys
config = json.load(open(sys.argv[1]))
config["num_hidden_layers"] = config.get("first_k_dense_replace", 1) + 1
config.pop("quantization_config", None)
config.pop("num_nextn_predict_layers", None)
json.dump(config, open(sys.argv[2], "w"))
P
  build/verbatim plan "$work/$model" --config "$work/deploy.yaml" -o "$work/$model.plan" --quiet
  plans+=("$work/$model.plan")
done
build/verbatim probe "${plans[@]}" -o "$out" --json "$figures"

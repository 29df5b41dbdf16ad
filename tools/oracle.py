#!/usr/bin/env python3
"""oracle.py - compares logits with Hugging Face transformers: is Verbatim closer to exact arithmetic than HF in bf16?

Owns: the comparison and the recorded small references in tests/oracle/ (format: tests/oracle/README.md).
Must not know: the engine's internals; it only calls the two programs, with the command lines at the top of this file.

  python3 tools/oracle.py --verbatim build/verbatim --random-model build/random_model --out /tmp/oracle [--device cuda]
  python3 tools/oracle.py --golden --random-model build/random_model --out /tmp/oracle --device cpu

The reference is HF in fp32 with eager attention and the same bf16 weights. Two candidates are measured against it: HF in bf16, and
Verbatim. Every model is made with several weight seeds and judged over all their positions. Prints a Markdown table and writes
OUT/oracle.json; exit status 1 if Verbatim is worse than HF-bf16 on any model: in mean KL, top-1 agreement, the largest logit difference, or
the median over positions of a position's largest difference. A single token whose router decides a near-tie differently can set the largest
difference of all. Without --verbatim only HF's own figures appear.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys

import numpy
import torch
import transformers
from safetensors import safe_open


def random_model_command(program, config, folder, seed):
    command = [program, config, folder, "--seed", str(seed), "--vocab-tokenizer"]
    return command + ["--stacked-experts"] * (read_json(config)["model_type"] == "mistral4")  # the only form that HF reads


def plan_command(program, folder, deploy, parity, plan):
    return [program, "plan", folder, "--config", deploy, "--parity", parity, "-o", plan]


def run_command(program, plan, folder, prompts, logits, machine):
    return [program, "run", plan, folder, "--jsonl", prompts, "--max-tokens", "1", "--ignore-eos", "--device", machine,
            "--logits", logits, "--output", "jsonl", "--quiet"]


FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "oracle")
DEPLOY = os.path.join(FOLDER, "deploy.yaml")
MODELS = ["v3", "v3-noyarn", "v2lite", "v2", "moonlight", "kimi-k2", "glm4-moe-lite", "youtu", "minicpm3", "minicpm3-long", "mistral4",
          "llama", "llama-80", "llama-64-heads", "llama-bias", "mistral", "qwen2", "qwen2-moe", "qwen2-moe-60", "qwen3", "qwen3-192",
          "qwen3-moe", "glm4", "glm4-256", "glm4-moe", "olmo2", "phi3", "smollm3"]
LENGTHS = [7, 33, 64, 129, 257, 500]
SEEDS = [1, 2, 3]
GOLDEN_MODELS = ["v3", "v2lite", "glm4-moe-lite", "youtu", "minicpm3", "mistral4", "llama", "llama-bias", "mistral", "qwen2", "qwen2-moe",
                 "qwen2-moe-60", "qwen3", "qwen3-moe", "glm4", "glm4-moe", "olmo2", "phi3", "smollm3"]
GOLDEN_LENGTHS = [7, 33, 60]


def sequences(vocab, lengths):
    """Random ids after the special ones, always the same."""
    return [[random.Random(f"oracle/{n}/{i}").randrange(3, vocab) for i in range(n)] for n in lengths]


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_text(path, text):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_prompts(path, ids_of):
    write_text(path, "".join(json.dumps({"id": f"length-{len(ids)}", "prompt_ids": ids}) + "\n" for ids in ids_of))


def fnv1a64(path):
    """A digest that the C test can recompute in three lines."""
    value = 0xcbf29ce484222325
    with open(path, "rb") as file:
        for byte in file.read():
            value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{value:016x}"


def make_model(args, config_path, name, seed):
    folder = os.path.join(args.out, name)
    os.makedirs(folder, exist_ok=True)
    subprocess.run(random_model_command(args.random_model, config_path, folder, seed), check=True)
    return folder

# ---------------------------------------------------------------- Hugging Face


def loaded_tensor(state, name):
    """The tensor of a checkpoint name inside HF's state; HF 5 stacks the experts: gate_up_proj [experts, 2 inner, hidden]."""
    if name in state:
        return state[name]
    stem, rest = name.split(".mlp.experts.")
    expert, part = int(rest.split(".")[0]), rest.split(".")[1]
    if part == "down_proj":
        return state[f"{stem}.mlp.experts.down_proj"][expert]
    both = state[f"{stem}.mlp.experts.gate_up_proj"][expert]
    inner = both.shape[0] // 2
    return both[:inner] if part == "gate_proj" else both[inner:]


def assert_loaded(model, folder):
    """Every tensor of the file is in the model, bit for bit (fp32 holds every bf16 exactly); returns how many."""
    state, count = model.state_dict(), 0
    with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
        for name in file.keys():
            stored, loaded = file.get_tensor(name), loaded_tensor(state, name).cpu()
            assert loaded.dtype in (stored.dtype, torch.float32), f"{name} was loaded as {loaded.dtype}"
            assert torch.equal(stored.float(), loaded.float()), f"{name} differs from the file"
            count += stored.numel()
    tied = model.config.tie_word_embeddings
    assert not tied or model.lm_head.weight is model.model.embed_tokens.weight, "the head is not the embedding"
    held = sum(t.numel() for name, t in state.items() if not (tied and name == "lm_head.weight"))
    assert held == count, f"the model holds {held} values, the file {count}"
    return count


def rope_of(config):
    return config.get("rope_scaling") or config.get("rope_parameters") or {}


def assert_same_list(config, lengths):
    """HF chooses LongRoPE's lists by the length of a prompt, Verbatim by max-model-len: they must agree for every prompt."""
    with open(DEPLOY, encoding="utf-8") as file:
        max_len = int(re.search(r"^max-model-len: (\d+)", file.read(), re.M)[1])
    original = rope_of(config).get("original_max_position_embeddings")
    if rope_of(config).get("type") == "longrope":
        assert {n > original for n in lengths} == {max_len > original}, "prompts on both sides of the original length"


def assert_scale(model, config):
    """The softmax scale includes the squared YaRN factor, which older transformers omit for deepseek_v2."""
    grouped = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    columns = config["qk_nope_head_dim"] + config["qk_rope_head_dim"] if "kv_lora_rank" in config else grouped
    wanted = columns ** -0.5
    rope = rope_of(config)
    if rope.get("type") == "yarn" and "kv_lora_rank" in config:
        wanted *= (0.1 * rope["mscale_all_dim"] * numpy.log(rope["factor"]) + 1) ** 2
    for layer in model.model.layers:
        found = layer.self_attn.scaling
        assert abs(found - wanted) < 1e-6 * wanted, f"softmax scale {found}, expected {wanted}"


@torch.no_grad()
def hf_logits(folder, config, ids_of, dtype, device):
    """[positions, vocab] float64, sequences one after the other."""
    assert_same_list(config, map(len, ids_of))
    kind = getattr(transformers, config["architectures"][0])
    settings = kind.config_class.from_dict({**config, "model_type": kind.config_class.model_type})  # kimi_k2 is deepseek_v3 to HF
    model = kind.from_pretrained(folder, config=settings, dtype=dtype, attn_implementation="eager", experts_implementation="eager")
    assert model.config._attn_implementation == "eager"
    count = assert_loaded(model, folder)
    assert_scale(model, config)
    model = model.to(device).eval()
    rows = [model(torch.tensor([ids], device=device), use_cache=False).logits[0].double().cpu().numpy() for ids in ids_of]
    return numpy.concatenate(rows), count

# ---------------------------------------------------------------- Verbatim


def verbatim_logits(args, folder, name, ids_of, vocab):
    at = os.path.join(args.out, name)
    plan, prompts, logits = at + ".plan", at + ".jsonl", at + ".logits.f32"
    write_prompts(prompts, ids_of)
    subprocess.run(plan_command(args.verbatim, folder, DEPLOY, args.parity, plan), check=True, stdout=subprocess.DEVNULL)
    subprocess.run(run_command(args.verbatim, plan, folder, prompts, logits, args.machine), check=True, stdout=subprocess.DEVNULL)
    values = numpy.fromfile(logits, dtype="<f4")
    assert values.size == sum(map(len, ids_of)) * vocab, f"{logits}: expected one row of {vocab} for every prompt position"
    return values.reshape(-1, vocab).astype(numpy.float64)

# ---------------------------------------------------------------- comparison


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(axis=1, keepdims=True))


def figures(reference, candidate):
    """KL(reference || candidate) in nats per position, logit differences, share of equal arg-max (lowest id among equals)."""
    p, q = log_softmax(reference), log_softmax(candidate)
    kl = (numpy.exp(p) * (p - q)).sum(axis=1)
    difference = numpy.abs(reference - candidate)
    return {"mean_kl": float(kl.mean()), "max_kl": float(kl.max()), "max_logit_difference": float(difference.max()),
            "median_logit_difference": float(numpy.median(difference.max(axis=1))),
            "rms_logit_difference": float(numpy.sqrt((difference ** 2).mean())),
            "top1_agreement": float((reference.argmax(axis=1) == candidate.argmax(axis=1)).mean())}


def worse(ours, theirs):
    """Names of the judged figures in which ours is worse; NaN is worse."""
    names = [key for key in ("mean_kl", "max_logit_difference", "median_logit_difference") if not ours[key] <= theirs[key]]
    if not ours["top1_agreement"] >= theirs["top1_agreement"]:
        names.append("top1_agreement")
    return names


def versions(device):
    return {"transformers": transformers.__version__, "torch": torch.__version__, "numpy": numpy.__version__,
            "device": torch.cuda.get_device_name() if device == "cuda" else "CPU"}


def markdown(results, facts):
    lines = [f"HF transformers {facts['transformers']}, torch {facts['torch']}, {facts['device']}; reference: HF fp32, eager.", "",
             "| model | candidate | mean KL | max KL | max abs dlogit | median of a position's max | rms dlogit | top-1 agrees |",
             "|---|---|---|---|---|---|---|---|"]
    for result in results:
        for candidate in ("hf_bf16", "verbatim"):
            f = result.get(candidate)
            if f:
                label = {"hf_bf16": "HF bf16", "verbatim": "Verbatim"}[candidate]
                lines.append(f"| {result['model']} | {label} | {f['mean_kl']:.3e} | {f['max_kl']:.3e} | {f['max_logit_difference']:.4f} "
                             f"| {f['median_logit_difference']:.5f} | {f['rms_logit_difference']:.5f} | {100 * f['top1_agreement']:.2f}% |")
    return "\n".join(lines)


def compare_model(args, name):
    config_path = os.path.join(FOLDER, name + ".json")
    config = read_json(config_path)
    ids_of = sequences(config["vocab_size"], LENGTHS)
    rows = {"reference": [], "hf_bf16": [], "verbatim": []}
    for seed in args.seeds:
        folder = make_model(args, config_path, f"{name}-{seed}", seed)
        logits, count = hf_logits(folder, config, ids_of, torch.float32, args.device)
        rows["reference"].append(logits)
        rows["hf_bf16"].append(hf_logits(folder, config, ids_of, torch.bfloat16, args.device)[0])
        if args.verbatim:
            rows["verbatim"].append(verbatim_logits(args, folder, f"{name}-{seed}", ids_of, config["vocab_size"]))
        print(f"{name} seed {seed}: {count:,} values in HF equal to the file, 0 differ; {len(logits)} positions", flush=True)
    result = {"model": name, "parameters": count, "positions": sum(map(len, rows["reference"])), "seeds": {}}
    for candidate in ("hf_bf16", "verbatim") if args.verbatim else ("hf_bf16",):
        result[candidate] = figures(numpy.concatenate(rows["reference"]), numpy.concatenate(rows[candidate]))
        for i, seed in enumerate(args.seeds):
            result["seeds"].setdefault(str(seed), {})[candidate] = figures(rows["reference"][i], rows[candidate][i])
    if args.verbatim:
        result["worse"] = worse(result["verbatim"], result["hf_bf16"])
    return result


def compare(args):
    facts = versions(args.device)
    results = [compare_model(args, name) for name in args.models]
    print("\n" + markdown(results, facts) + "\n")
    write_text(os.path.join(args.out, "oracle.json"), json.dumps({"versions": facts, "results": results}, indent=2) + "\n")
    failed = [(r["model"], key) for r in results for key in r.get("worse", [])]
    for model, key in failed:
        print(f"FAIL: {model}: Verbatim is worse than HF bf16 in {key}")
    return 1 if failed else 0


def record_golden(args):
    """tests/oracle/golden-NAME.{json,jsonl,f32} from small-NAME.json."""
    for name in set(GOLDEN_MODELS) & set(args.models):
        config_path = os.path.join(FOLDER, f"small-{name}.json")
        config, folder = read_json(config_path), make_model(args, config_path, f"small-{name}", 1)
        ids_of = sequences(config["vocab_size"], GOLDEN_LENGTHS)
        reference, _ = hf_logits(folder, config, ids_of, torch.float32, args.device)
        bf16, _ = hf_logits(folder, config, ids_of, torch.bfloat16, args.device)
        at = os.path.join(FOLDER, f"golden-{name}")
        reference.astype("<f4").tofile(at + ".f32")
        write_prompts(at + ".jsonl", ids_of)
        digest = fnv1a64(os.path.join(folder, "model.safetensors"))
        record = {"config": f"small-{name}.json", "seed": 1, "weights_fnv1a64": digest, "vocab": config["vocab_size"],
                  "positions": len(reference), "lengths": GOLDEN_LENGTHS, "versions": versions(args.device),
                  "hf_bf16": figures(reference.astype("<f4").astype(numpy.float64), bf16)}
        write_text(at + ".json", json.dumps(record, indent=2) + "\n")
        print(name, json.dumps(record["hf_bf16"]))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random-model", required=True, help="the random_model program")
    parser.add_argument("--verbatim", help="the verbatim program; without it only HF is measured")
    parser.add_argument("--out", required=True, help="folder for models, plans and oracle.json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where HF runs")
    parser.add_argument("--machine", default="auto", choices=["auto", "gpu", "cpu"], help="where Verbatim runs")
    parser.add_argument("--parity", default="strict", choices=["strict", "fast-prefill"], help="of Verbatim's plans")
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="NAME", help="models, among " + " ".join(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, metavar="N", help="weight seeds, " + " ".join(map(str, SEEDS)))
    parser.add_argument("--golden", action="store_true", help="record tests/oracle/golden-* instead")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(min(torch.get_num_threads(), 8))
    os.makedirs(args.out, exist_ok=True)
    return record_golden(args) if args.golden else compare(args)


if __name__ == "__main__":
    sys.exit(main())

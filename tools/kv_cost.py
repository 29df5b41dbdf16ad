#!/usr/bin/env python3
"""kv_cost.py - what a KV cache in fp8 costs in accuracy: mean KL and top-1 agreement of the logits, by kv-cache-dtype.

  python3 tools/kv_cost.py [--verbatim build/verbatim] [--random-model build/random_model] [--device cpu]
  python3 tools/kv_cost.py --model MODEL_DIR --jsonl PROMPTS     one model, with prompts as `verbatim run` reads them

Without --model: the small random models whose logits in fp32 are recorded (tests/oracle/golden-*: HF's), the shipped model on prompts and
answers of its tasks, and two random sparse models with e4m3 weights. Where there is no fp32 the reference is the same model with a bf16
cache, so its row says what the format adds. Prints a Markdown table of every kv-cache-dtype that the model can have. Needs only the
standard library; takes a minute on two cores. fp8 needs scales, which are measured with the same prompts, in a copy of links to the model.
"""
import argparse
import array
import glob
import json
import math
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORACLE = os.path.join(ROOT, "tests", "oracle")
TINY = os.path.join(ROOT, "tests", "tiny")
CACHES = ["bf16", "fp8", "fp8_ds_mla"]
SPARSE = ["small-v32-fp8", "small-glm52-fp8"]
SPARSE_LENGTHS = [129, 257, 500]
TASK_STEP = 4  # every fourth item of the shipped model's tasks


def call(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(" ".join(command) + "\n" + result.stderr)


def can(*command):
    """False where the model cannot have the cache; the program says so with its status for what is not supported."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode not in (0, 5):
        raise SystemExit(" ".join(command) + "\n" + result.stderr)
    return result.returncode == 0


def read_floats(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    if sys.byteorder == "big":
        values.byteswap()
    return values


def links(model, folder):
    """A folder of links to the model's files, in which scales can be written."""
    os.makedirs(folder)
    for path in glob.glob(os.path.join(model, "*")):
        if os.path.basename(path) != "kv_scales.safetensors":
            os.symlink(os.path.abspath(path), os.path.join(folder, os.path.basename(path)))
    return folder


def logits_by_cache(args, model, prompts, deploy, folder):
    """{kv-cache-dtype: logits of every prompt position}; bf16 comes first, because calibration needs its plan."""
    model, found = links(model, folder), {}
    for cache in CACHES:
        plan, out = os.path.join(folder, cache + ".plan"), os.path.join(folder, cache + ".f32")
        if not can(args.verbatim, "plan", model, *deploy, "--kv-cache-dtype", cache, "-o", plan, "--quiet"):
            continue
        if cache == "fp8":
            call(args.verbatim, "calibrate", os.path.join(folder, "bf16.plan"), model, "--jsonl", prompts, "--device", args.device,
                 "--quiet")
        call(args.verbatim, "run", plan, model, "--jsonl", prompts, "--max-tokens", "1", "--ignore-eos", "--device", args.device,
             "--logits", out, "--output", "jsonl", "--quiet")
        found[cache] = read_floats(out)
    return found


def log_softmax(row):
    top = max(row)
    norm = top + math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - norm for x in row]


def compare(reference, candidate, vocab):
    """(mean KL(reference || candidate) in nats, share of positions with the same arg-max)"""
    rows, kl, same = len(reference) // vocab, 0.0, 0
    for at in range(0, rows * vocab, vocab):
        a, b = reference[at:at + vocab], candidate[at:at + vocab]
        kl += math.fsum(math.exp(p) * (p - q) for p, q in zip(log_softmax(a), log_softmax(b)))
        same += a.index(max(a)) == b.index(max(b))
    return kl / rows, same / rows


def show(name, reference, reference_name, by_cache, vocab):
    base = None
    for cache, logits in by_cache.items():
        if cache == reference_name:
            continue
        kl, same = compare(reference, logits, vocab)
        times = "" if base is None else "%.0f" % (kl / base)
        base = kl if cache == "bf16" else base
        print("| %s | %s | %s | %d | %.1e | %s | %.1f %% |" % (name, cache, reference_name, len(reference) // vocab, kl, times, 100 * same),
              flush=True)


def read_vocab(model):
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    return config.get("vocab_size") or config["text_config"]["vocab_size"]


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return path


def measure_golden(args, name, folder):
    model, config = os.path.join(folder, name), os.path.join(ORACLE, "small-%s.json" % name)
    stacked = ["--stacked-experts"] * (name == "mistral4")  # as recorded
    call(args.random_model, config, model, "--seed", "1", "--vocab-tokenizer", *stacked)
    prompts = os.path.join(ORACLE, "golden-%s.jsonl" % name)
    deploy = ["--config", os.path.join(ORACLE, "deploy.yaml")]
    by_cache = logits_by_cache(args, model, prompts, deploy, os.path.join(folder, name + "-links"))
    show("small " + name, read_floats(os.path.join(ORACLE, "golden-%s.f32" % name)), "fp32", by_cache, read_vocab(model))


def measure_tiny(args, folder):
    with open(os.path.join(TINY, "items.jsonl"), encoding="utf-8") as file:
        items = [json.loads(line) for line in file][::TASK_STEP]
    prompts = write_lines(os.path.join(folder, "tiny.jsonl"), [{"prompt": item["prompt"] + item["answer"]} for item in items])
    by_cache = logits_by_cache(args, TINY, prompts, ["--config", os.path.join(TINY, "deploy.yaml")], os.path.join(folder, "tiny"))
    show("shipped, trained", by_cache["bf16"], "bf16", by_cache, read_vocab(TINY))


def measure_sparse(args, name, folder):
    model = os.path.join(folder, name)
    call(args.random_model, os.path.join(ORACLE, name + ".json"), model, "--seed", "1", "--vocab-tokenizer")
    vocab = read_vocab(model)
    lines = [{"prompt_ids": [random.Random("kv/%d/%d" % (n, i)).randrange(3, vocab) for i in range(n)]} for n in SPARSE_LENGTHS]
    prompts = write_lines(os.path.join(folder, name + ".jsonl"), lines)
    by_cache = logits_by_cache(args, model, prompts, ["--config", os.path.join(ORACLE, "deploy.yaml")], model + "-links")
    show(name.replace("-", " "), by_cache["bf16"], "bf16", by_cache, vocab)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbatim", default=os.path.join(ROOT, "build", "verbatim"))
    parser.add_argument("--random-model", default=os.path.join(ROOT, "build", "random_model"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", help="a model folder to measure instead")
    parser.add_argument("--jsonl", help="its prompts")
    args = parser.parse_args()
    print("| model | cache | reference | positions | mean KL, nats | times bf16's | top-1 agrees |\n" + "|---" * 7 + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if args.model:
            by_cache = logits_by_cache(args, args.model, args.jsonl, [], os.path.join(folder, "links"))
            show(os.path.basename(os.path.normpath(args.model)), by_cache["bf16"], "bf16", by_cache, read_vocab(args.model))
            return
        for path in sorted(glob.glob(os.path.join(ORACLE, "golden-*.json"))):
            measure_golden(args, os.path.basename(path)[len("golden-"):-len(".json")], folder)
        measure_tiny(args, folder)
        for name in SPARSE:
            measure_sparse(args, name, folder)


if __name__ == "__main__":
    main()

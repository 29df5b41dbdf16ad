#!/usr/bin/env python3
"""Times grouped-query attention of torch's back ends and ours on this GPU.

peers_grouped.py [--verbatim PROGRAM] [--no-peers] [--heads H/KVxD ...] [--quick] [--json OUT.json]

Peers: scaled_dot_product_attention of cuDNN and of FlashAttention, over contiguous K and V; and the package flash_attn_3 or flashinfer,
where one is installed. Each is first compared with fp32 attention. Decode: one query row of each request; prompts: causal, of whole
contexts. A time is the median of 31 replays of a CUDA graph of at least 4 ms, as of `bench`, over inputs of at least 200 MB for decode.

PROGRAM, build/verbatim, is asked for the same cells over pages: `bench` of plans with attention of these heads and little else, and enough
layers that KV rows come from memory; the split of the contexts, which is made once a step, is not counted, combining them is. If both were
timed, a line gives the ratio to the faster of torch's back ends.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

from peers import PAGE, geometric, graph_us, read_json, say

HEADS = ("32/8x128", "64/8x128", "32/4x128", "64/8x64")
BATCHES, CONTEXTS = (1, 16, 64, 128), (1024, 4096, 8192, 32768)
PROMPTS = (2048, 8192, 32768)
REPLAY_US, LAUNCHES_LEAST = 4000, 4  # as engine/bench/ops.c
COLD_BYTES = 200 << 20
ROOM_BYTES = 40 << 30  # of a cell's K and V


def parse(text):
    heads, rest = text.split("/")
    kv_heads, columns = rest.split("x")
    return int(heads), int(kv_heads), int(columns)


def replayed_us(torch, calls):
    us = graph_us(torch, calls, 3)
    return graph_us(torch, calls * math.ceil(max(LAUNCHES_LEAST, REPLAY_US / us) / len(calls)))


# === Peers ==================================================================================================================

def back_ends(torch):
    """name -> a function of q [b, heads, n, columns], k, v [b, kv_heads, m, columns] and whether it is causal."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    found = {}
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        def run(q, k, v, causal, backend=backend):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        found[backend.name.split("_")[0].lower()] = run
    try:
        from flash_attn_interface import flash_attn_func
        turned = lambda x: x.transpose(1, 2)
        found["flash_attn_3"] = lambda q, k, v, causal: turned(flash_attn_func(turned(q), turned(k), turned(v), causal=causal))
    except ImportError:
        pass
    return found


def inputs(torch, b, heads, kv_heads, columns, queries, context):
    make = lambda count, length: torch.randn(b, count, length, columns, device="cuda", dtype=torch.bfloat16)
    return make(heads, queries), make(kv_heads, context), make(kv_heads, context)


def check(torch, run):
    for heads, kv_heads, queries, context in ((8, 2, 1, 200), (8, 2, 96, 96)):
        q, k, v = inputs(torch, 2, heads, kv_heads, 128, queries, context)
        rows = torch.arange(queries, device="cuda")[:, None] + context - queries
        scores = q.float() @ k.float().repeat_interleave(heads // kv_heads, 1).transpose(2, 3) * 128 ** -0.5
        scores = scores.masked_fill(torch.arange(context, device="cuda")[None, :] > rows, -math.inf)
        wanted = scores.softmax(-1) @ v.float().repeat_interleave(heads // kv_heads, 1)
        if float((run(q, k, v, queries > 1).float() - wanted).abs().max()) > 0.02:
            raise RuntimeError("differs from fp32 attention")


def time_peers(torch, runs, shape, queries, b, context):
    heads, kv_heads, columns = shape
    bytes_ = 2 * b * kv_heads * context * columns * 2
    sets = [inputs(torch, b, heads, kv_heads, columns, queries, context) for _ in range(max(1, min(64, -(-COLD_BYTES // bytes_))))]
    if queries > 1:
        sets = sets[:1]
    times = {}
    for name, run in runs.items():
        try:
            times[name] = replayed_us(torch, [lambda s=s: run(*s, queries > 1) for s in sets])
        except RuntimeError as error:
            say("%s: %s" % (name, str(error).splitlines()[0]))
    return times


def measure_peers(shapes, batches, contexts, prompts):
    import torch
    runs, cells = {}, []
    for name, run in back_ends(torch).items():
        try:
            check(torch, run)
            runs[name] = run
        except RuntimeError as error:
            say("%s is left out: %s" % (name, str(error).splitlines()[0]))
    for text in shapes:
        shape = parse(text)
        for queries, b, context in [(1, b, c) for c in contexts for b in batches] + [(c, 1, c) for c in prompts]:
            if 2 * b * shape[1] * context * shape[2] * 2 > ROOM_BYTES:
                continue
            times = time_peers(torch, runs, shape, queries, b, context)
            cells.append({"heads": text, "kind": "prompt" if queries > 1 else "decode", "batch": b, "context": context, "us": times})
            say("%s %s b %3d at %5d: %s" % (text, cells[-1]["kind"], b, context, ", ".join("%s %.1f us" % t for t in times.items())))
            torch.cuda.empty_cache()
    return torch.cuda.get_device_name(0), cells


# === Ours ===================================================================================================================

# The attention's sizes are the cell's; the others are small.
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 512, "vocab_size": 384,
          "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rms_norm_eps": 1e-06, "rope_theta": 500000.0,
          "max_position_embeddings": 131072, "intermediate_size": 256, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1}
OPS = ("attn", "attn_fold")


class Verbatim:
    """`verbatim bench` of plans made in a folder."""

    def __init__(self, program, folder, chunk):
        self.program, self.folder, self.chunk = program, folder, chunk

    def plan(self, shape, layers, seqs, tokens, length):
        heads, kv_heads, columns = shape
        made = os.path.join(self.folder, "plan")
        with open(os.path.join(self.folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(dict(CONFIG, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=columns,
                           num_hidden_layers=layers), file)
        with open(os.path.join(self.folder, "deploy.yaml"), "w", encoding="utf-8") as file:
            file.write("max-num-seqs: %d\nmax-num-batched-tokens: %d\nmax-model-len: %d\nkv_pages: %d\nladder: [%s]\n" %
                       (seqs, tokens, length, seqs * length // PAGE, ", ".join(str(b) for b in BATCHES if b <= seqs)))
            if self.chunk:
                file.write("chunk-tokens: %d\n" % self.chunk)
        self.call("plan", self.folder, "--config", os.path.join(self.folder, "deploy.yaml"), "-o", made, "--force", "--quiet")
        return made

    def bench(self, plan, rows, context):
        out = os.path.join(self.folder, "bench.json")
        self.call("bench", plan, "--op", ",".join(OPS), "--rows", ",".join(map(str, rows)), "--context", str(context), "--json", out,
                  "--quiet")
        return read_json(out)["ops"]

    def call(self, *words):
        subprocess.run([self.program, *words], check=True, stdout=subprocess.DEVNULL)


def cells_of(ops, text, kind, context):
    cells = []
    for rows in sorted({op["rows"] for op in ops if op["us"]}):
        us = sum(op["us"] for op in ops if op["rows"] == rows and op["kernel"] in OPS and op["us"])
        batch = rows if kind == "decode" else 1
        heads, kv_heads, columns = parse(text)
        pairs = context * (context + 1) / 2
        speed = "%.0f GB/s" % (2 * batch * kv_heads * context * columns * 2 / us / 1e3) if kind == "decode" else \
            "%.0f TFLOP/s" % (4 * heads * columns * pairs / us / 1e6)
        say("ours %s %s b %3d at %5d: %.1f us, %s" % (text, kind, batch, context, us, speed))
        cells.append({"heads": text, "kind": kind, "batch": batch, "context": context, "us": us})
    return cells


def measure_ours(program, chunk, shapes, batches, contexts, prompts):
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        ours = Verbatim(program, folder, chunk)
        for text in shapes:
            heads, kv_heads, columns = shape = parse(text)
            for context in contexts:
                each = 2 * kv_heads * context * columns * 2
                for b in batches:
                    if b * each > ROOM_BYTES:
                        continue
                    layers = max(2, min(96, -(-COLD_BYTES // (b * each))))
                    cells += cells_of(ours.bench(ours.plan(shape, layers, b, max(b, 64), context), [b], context), text, "decode", context)
            for context in prompts:
                cells += cells_of(ours.bench(ours.plan(shape, 2, 1, context, context), [context], context), text, "prompt", context)
    return cells


def compare(theirs, ours):
    ratios = {"decode": [], "prompt": []}
    times = {(c["heads"], c["kind"], c["batch"], c["context"]): c["us"] for c in ours}
    for cell in theirs:
        own = times.get((cell["heads"], cell["kind"], cell["batch"], cell["context"]))
        if own and cell["us"]:
            name, best = min(cell["us"].items(), key=lambda item: item[1])
            ratios[cell["kind"]].append(own / best)
            say("%s %s b %3d at %5d: ours %.1f, %s %.1f us: %.3f" % (cell["heads"], cell["kind"], cell["batch"], cell["context"], own, name,
                                                                  best, own / best))
    for kind, found in ratios.items():
        if found:
            say("%s: ours / best %.3f (geometric mean of %d), worst %.3f" % (kind, geometric(found), len(found), max(found)))
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbatim", metavar="PROGRAM")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--heads", nargs="+", default=HEADS, metavar="H/KVxD")
    parser.add_argument("--chunk", type=int, metavar="TOKENS", help="chunk-tokens of our plans (default: the planner's)")
    parser.add_argument("--quick", action="store_true", help="fewer cells")
    parser.add_argument("--json", metavar="OUT")
    args = parser.parse_args()
    cells = ((1, 64), (1024, 8192), (8192,)) if args.quick else (BATCHES, CONTEXTS, PROMPTS)
    result = {"gpu": None, "peers": [], "verbatim": []}
    if not args.no_peers:
        result["gpu"], result["peers"] = measure_peers(args.heads, *cells)
    if args.verbatim:
        result["verbatim"] = measure_ours(args.verbatim, args.chunk, args.heads, *cells)
    result["ratios"] = compare(result["peers"], result["verbatim"])
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

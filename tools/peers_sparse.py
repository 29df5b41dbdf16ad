#!/usr/bin/env python3
"""Times FlashMLA's sparse attention and ours on this GPU.

peers_sparse.py [--flashmla DIR] [--verbatim PROGRAM] [--gb-per-s X] [--json OUT.json]

DIR is a source folder of FlashMLA with CUTLASS in csrc/cutlass (built here once with nvcc) or with a built libflashmla.so. Decode: rows of
656 bytes, top-k 2048 of 32,768 tokens, combine included, the schedule kernel not; prefill: bf16 rows, 4,096 queries of 128 heads. Each is
first compared with fp32 attention over the same rows. A time is the median of 31 replays of a CUDA graph, as in peers.py; the graph has as
many launches as one of `bench`, since short graphs end before a board that draws too much power slows down.

PROGRAM, build/verbatim, is then asked for the same cells: `bench` of plans with the attention and the indexer of DeepSeek-V3.2 (16, 64 and
128 heads) and little else, random numbers, and enough layers that a request's rows come from memory. If both were timed, a line gives the
ratio; without --flashmla only ours are timed.
"""
import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile

from peers import KEY, PAGE, ROOT, VALUE, geometric, graph_us, read_json, say

ROW_BYTES, TOPK, CONTEXT = 656, 2048, 32768
BATCHES, QUERIES, KEYS = (1, 16, 64, 128), 4096, (8192, 65536)
REPLAY_US, LAUNCHES_LEAST = 4000, 4  # as engine/bench/ops.c
UNITS = ["sm90/decode/sparse_fp8/instantiations/v32_persistent_h64.cu", "sm90/decode/sparse_fp8/instantiations/v32_persistent_h128.cu",
         "sm90/prefill/sparse/instantiations/phase1_k576.cu", "smxx/decode/combine/combine.cu",
         "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.cu"]


def build(folder, out):
    """Compiles FlashMLA's sparse kernels and our C entry; returns the library's path."""
    source, toolkit = os.path.join(folder, "csrc"), os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = os.path.join(toolkit, "bin", "nvcc")
    paths = [os.path.join(source, unit) for unit in UNITS] + [os.path.join(ROOT, "tools", "flashmla_sparse_entry.cu")]
    missing = [path for path in paths + [nvcc, os.path.join(source, "cutlass", "include")] if not os.path.exists(path)]
    if missing:
        raise FileNotFoundError("%s: expected FlashMLA's csrc with csrc/cutlass, and nvcc; %s is not there" % (folder, missing[0]))
    os.makedirs(out, exist_ok=True)
    flags = ["-O3", "-std=c++20", "-DNDEBUG", "-D_USE_MATH_DEFINES", "--expt-relaxed-constexpr", "--expt-extended-lambda",
             "--use_fast_math", "-gencode", "arch=compute_90a,code=sm_90a", "-Xcompiler", "-fPIC"]
    flags += ["-I" + os.path.join(source, part) for part in (".", "kerutils/include", "cutlass/include")]
    objects = [os.path.join(out, os.path.basename(path) + ".o") for path in paths]
    running = [subprocess.Popen([nvcc, *flags, "-c", path, "-o", made]) for path, made in zip(paths, objects)]
    if any([process.wait() for process in running]):
        raise RuntimeError("nvcc failed")
    library = os.path.join(out, "libflashmla.so")
    subprocess.run([nvcc, "-shared", *objects, "-o", library, "-lcuda"], check=True)
    return library


class Sparse:
    """FlashMLA through tools/flashmla_sparse_entry.cu."""

    def __init__(self, torch, path):
        self.torch, self.library = torch, ctypes.CDLL(path)
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count

    def make(self, *shape, dtype=None):
        return self.torch.empty(shape, dtype=dtype or self.torch.float32, device="cuda")

    def stream(self):
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)

    def decode(self, q, kv, indices):
        torch, pointer = self.torch, lambda tensor: ctypes.c_void_p(tensor.data_ptr())
        b, s_q, heads, _ = q.shape
        topk, parts = indices.shape[2], max(self.sms // s_q // (heads // 64), 1)
        schedule, splits = self.make(parts, 8, dtype=torch.int32), self.make(b + 1, dtype=torch.int32)
        out, lse = self.make(b, s_q, heads, VALUE, dtype=torch.bfloat16), self.make(b, s_q, heads)
        lse_parts, out_parts = self.make(b + parts, s_q, heads), self.make(b + parts, s_q, heads, VALUE)
        self.library.flashmla_sparse_schedule(b, s_q, topk, parts, pointer(schedule), pointer(splits), self.stream())

        def run(rows=kv, chosen=indices):
            self.library.flashmla_sparse_decode(b, s_q, heads, topk, parts, rows.shape[0], ctypes.c_float(KEY ** -0.5), pointer(q),
                                                pointer(rows), pointer(chosen), pointer(schedule), pointer(splits), pointer(out),
                                                pointer(lse), pointer(lse_parts), pointer(out_parts), self.stream())
            return out
        return run

    def prefill(self, q, kv, indices):
        torch, pointer = self.torch, lambda tensor: ctypes.c_void_p(tensor.data_ptr())
        s_q, heads, _ = q.shape
        out = self.make(s_q, heads, VALUE, dtype=torch.bfloat16)
        logits, lse = self.make(s_q, heads), self.make(s_q, heads)

        def run():
            self.library.flashmla_sparse_prefill(s_q, kv.shape[0], heads, indices.shape[1], self.sms, ctypes.c_float(KEY ** -0.5),
                                                 pointer(q), pointer(kv), pointer(indices), pointer(out), pointer(logits), pointer(lse),
                                                 self.stream())
            return out
        return run


def replayed_us(torch, calls):
    """Median us of one call, in graphs as long as those of bench."""
    us = graph_us(torch, calls, 3)
    return graph_us(torch, calls * math.ceil(max(LAUNCHES_LEAST, REPLAY_US / us) / len(calls)))


def make_rows(torch, count):
    """Rows of the fp8 cache, and their values in fp32."""
    codes = torch.randn(count, VALUE, device="cuda").mul_(60).clamp_(-448, 448).to(torch.float8_e4m3fn)
    scales = torch.exp2(torch.randint(-7, -5, (count, 4), device="cuda").float())
    rope = torch.randn(count, KEY - VALUE, device="cuda", dtype=torch.bfloat16)
    rows = torch.cat([codes.view(torch.uint8), scales.view(torch.uint8), rope.view(torch.uint8)], 1)
    return rows, codes, scales, rope


def choose(torch, sequences, queries, context, base_of):
    """TOPK distinct tokens of the context for each query, ascending: rows of the cache."""
    chosen = torch.empty(sequences, queries, TOPK, device="cuda", dtype=torch.int32)
    for i in range(sequences):
        for first in range(0, queries, 512):
            part = torch.rand(min(512, queries - first), context, device="cuda").topk(TOPK, dim=1).indices.sort(dim=1).values
            chosen[i, first:first + 512] = (part + base_of(i)).int()
    return chosen


def attend(torch, q, rows, chosen):
    """fp32 attention of q [heads][576] over the chosen rows."""
    kept = rows[chosen.long()].float()
    return ((q.float() @ kept.T) * KEY ** -0.5).softmax(-1) @ kept[:, :VALUE]


def check(torch, sparse):
    rows, codes, scales, rope = make_rows(torch, 64 * PAGE)
    meant = torch.cat([(codes.float().view(-1, 4, 128) * scales[:, :, None]).view(-1, VALUE), rope.float()], 1)
    for heads in (64, 128):
        q = torch.randn(2, 1, heads, KEY, device="cuda", dtype=torch.bfloat16)
        chosen = choose(torch, 2, 1, 64 * PAGE, lambda i: 0)
        out = sparse.decode(q, rows.view(-1, PAGE, ROW_BYTES), chosen)()
        worst = max(float((out[i, 0].float() - attend(torch, q[i, 0], meant, chosen[i, 0])).abs().max()) for i in range(2))
        out = sparse.prefill(q[:, 0].contiguous(), meant.bfloat16(), chosen[:, 0].contiguous())()
        worst = max(worst, float((out[0].float() - attend(torch, q[0, 0], meant.bfloat16(), chosen[0, 0])).abs().max()))
        if worst > 0.02:
            raise RuntimeError("FlashMLA sparse, %d heads: differs by %g from fp32 attention" % (heads, worst))


def measure_decode(torch, sparse):
    cells, pages = [], 128 * CONTEXT // PAGE
    kv = torch.empty(pages, PAGE, ROW_BYTES, device="cuda", dtype=torch.uint8)
    for i in range(0, pages, 4096):
        kv[i:i + 4096] = make_rows(torch, 4096 * PAGE)[0].view(4096, PAGE, ROW_BYTES)
    for heads in (64, 128):
        for b in BATCHES:
            q = torch.randn(b, 1, heads, KEY, device="cuda", dtype=torch.bfloat16)
            sets = [choose(torch, b, 1, CONTEXT, lambda i, s=s: (i + s * b) % 128 * CONTEXT) for s in range(max(1, min(64, 128 // b)))]
            run = sparse.decode(q, kv, sets[0])
            us = replayed_us(torch, [lambda chosen=chosen: run(kv, chosen) for chosen in sets])
            cells.append({"kind": "sparse decode", "heads": heads, "batch": b, "topk": TOPK, "context": CONTEXT, "us": us})
            say("FlashMLA sparse decode: %3d heads, b %3d: %7.1f us, %4.0f TFLOP/s" %
                (heads, b, us, b * heads * TOPK * (KEY + VALUE) * 2 / us / 1e6))
    return cells


def measure_prefill(torch, sparse):
    cells, queries, heads = [], QUERIES, 128
    for context in KEYS:
        q = torch.randn(queries, heads, KEY, device="cuda", dtype=torch.bfloat16)
        kv = torch.randn(context, KEY, device="cuda", dtype=torch.bfloat16)
        run = sparse.prefill(q, kv, choose(torch, 1, queries, context, lambda i: 0)[0])
        us = replayed_us(torch, [run])
        cells.append({"kind": "sparse prefill", "heads": heads, "queries": queries, "topk": TOPK, "context": context, "us": us})
        say("FlashMLA sparse prefill: %d heads, %d queries, %5d keys: %7.1f us, %4.0f TFLOP/s" %
            (heads, queries, context, us, queries * heads * TOPK * (KEY + VALUE) * 2 / us / 1e6))
    return cells


# === Ours ===================================================================================================================

# All sizes that the timed ops depend on are DeepSeek-V3.2's; the others are small.
CONFIG = {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "torch_dtype": "bfloat16", "hidden_size": 1024,
          "vocab_size": 384, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 512,
          "hidden_act": "silu", "attention_bias": False, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "max_position_embeddings": 163840,
          "intermediate_size": 256, "moe_intermediate_size": 128, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
          "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True,
          "routed_scaling_factor": 2.5, "moe_layer_freq": 1, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1,
          "index_n_heads": 64, "index_head_dim": 128, "index_topk": TOPK}
OPS = ("mla_attn", "mla_fold", "kv_widen", "index_score", "index_topk")  # the subset that the plan has
COLD_LAYERS = 64  # layers whose 2,048 rows of one request exceed the L2 cache


class Verbatim:
    """`verbatim bench` of plans made in a folder."""

    def __init__(self, program, folder, gb_per_s=None):
        self.program, self.folder = program, folder
        self.rate = ["--gb-per-s", str(gb_per_s)] if gb_per_s else []

    def plan(self, heads, layers, seqs, tokens, length, kv):
        made = os.path.join(self.folder, "plan")
        with open(os.path.join(self.folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(dict(CONFIG, num_attention_heads=heads, num_key_value_heads=heads, num_hidden_layers=layers,
                           first_k_dense_replace=layers), file)
        with open(os.path.join(self.folder, "deploy.yaml"), "w", encoding="utf-8") as file:
            file.write("max-num-seqs: %d\nmax-num-batched-tokens: %d\nmax-model-len: %d\nkv_pages: %d\nkv-cache-dtype: %s\nladder: [%s]\n" %
                       (seqs, tokens, length, seqs * length // PAGE, kv, ", ".join(str(b) for b in BATCHES if b <= seqs)))
        self.call("plan", self.folder, "--config", os.path.join(self.folder, "deploy.yaml"), "-o", made, "--force", "--quiet")
        return made

    def bench(self, plan, rows, context):
        out = os.path.join(self.folder, "bench.json")
        shown = subprocess.run([self.program, "show", plan, "--ops"], check=True, capture_output=True, text=True).stdout
        ops = [name for name in OPS if ", %s " % name in shown]
        self.call("bench", plan, "--op", ",".join(ops), "--rows", ",".join(map(str, rows)), "--context", str(context), "--json", out,
                  "--quiet", *self.rate)
        return read_json(out)["ops"]

    def call(self, *words):
        subprocess.run([self.program, *words], check=True, stdout=subprocess.DEVNULL)


def cells_of(ops, kind, heads, context, kv):
    """One for each row count: the attention with all its ops, and the indexer's ops."""
    cells = []
    for rows in sorted({op["rows"] for op in ops}):
        us = {kernel: sum(op["us"] for op in ops if (op["rows"], op["kernel"]) == (rows, kernel)) for kernel in OPS}
        floor = sum(op["floor_us"] for op in ops if (op["rows"], op["kernel"]) == (rows, "index_score"))  # many rows: split into ops
        cell = {"kind": kind, "heads": heads, "rows": rows, "context": context, "kv": kv, "index_score_us": us["index_score"],
                "index_score_floor_us": floor, "index_topk_us": us["index_topk"],
                "us": us["mla_attn"] + us["mla_fold"] + us["kv_widen"]}
        say("ours, %s: %3d heads, %4d rows at %5d, %-10s: %7.1f us, %4.0f TFLOP/s; index_score %.1f (%.2f times its floor), "
            "index_topk %.1f" % (kind, heads, rows, context, kv, cell["us"],
                                 rows * heads * TOPK * (KEY + VALUE) * 2 / cell["us"] / 1e6, cell["index_score_us"],
                                 cell["index_score_us"] / floor, cell["index_topk_us"]))
        cells.append(cell)
    return cells


def measure_ours(program, gb_per_s):
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        ours = Verbatim(program, folder, gb_per_s)
        for heads in (16, 64, 128):
            for kv in ("fp8_ds_mla", "bfloat16") if heads == 128 else ("fp8_ds_mla",):
                one = ours.plan(heads, COLD_LAYERS, 1, 64, CONTEXT, kv)
                cells += cells_of(ours.bench(one, [1], CONTEXT), "decode", heads, CONTEXT, kv)
                many = ours.plan(heads, 4, max(BATCHES), max(BATCHES), CONTEXT, kv)
                cells += cells_of(ours.bench(many, [b for b in BATCHES if b > 1], CONTEXT), "decode", heads, CONTEXT, kv)
        for kv in ("bfloat16", "fp8_ds_mla"):
            prompts = ours.plan(128, 2, 1, QUERIES, max(KEYS), kv)
            for context in KEYS:
                cells += cells_of(ours.bench(prompts, [QUERIES], context), "prefill", 128, context, kv)
    return cells


def compare(theirs, ours):
    """FlashMLA's cells next to ours with the same heads and rows over the same context: FlashMLA decodes codes and prefills bf16 rows."""
    ratios = []
    for cell in theirs:
        kind, rows = ("decode", cell["batch"]) if "batch" in cell else ("prefill", cell["queries"])
        for own in ours:
            if (own["kind"], own["heads"], own["rows"], own["context"]) == (kind, cell["heads"], rows, cell["context"]) and (
                    kind == "prefill" or own["kv"] == "fp8_ds_mla"):
                ratios.append(own["us"] / cell["us"])
                say("%s, %3d heads, %4d rows at %5d, %-10s: ours %.1f, FlashMLA %.1f us: %.3f" % (
                    kind, cell["heads"], rows, cell["context"], own["kv"], own["us"], cell["us"], ratios[-1]))
    if ratios:
        say("ours / FlashMLA %.3f (geometric mean of %d)" % (geometric(ratios), len(ratios)))
    return ratios


def measure_flashmla(torch, folder):
    library = os.path.join(folder, "libflashmla.so")
    sparse = Sparse(torch, library if os.path.exists(library) else build(folder, os.path.join(ROOT, "build", "flashmla")))
    check(torch, sparse)
    return measure_decode(torch, sparse) + measure_prefill(torch, sparse)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flashmla", metavar="DIR")
    parser.add_argument("--verbatim", metavar="PROGRAM")
    parser.add_argument("--gb-per-s", type=float, metavar="X", help="memory bandwidth, for index_score's floor (default: as in bench)")
    parser.add_argument("--json", metavar="OUT")
    args = parser.parse_args()
    if not args.flashmla and not args.verbatim:
        parser.error("nothing to time: --flashmla DIR, --verbatim PROGRAM, or both")
    result = {"flashmla": [], "verbatim": [], "ratios": []}
    if args.flashmla:
        import torch
        result["gpu"] = torch.cuda.get_device_name(0)
        result["flashmla"] = measure_flashmla(torch, args.flashmla)
        torch.cuda.empty_cache()
    if args.verbatim:
        result["verbatim"] = measure_ours(args.verbatim, args.gb_per_s)
    result["ratios"] = compare(result["flashmla"], result["verbatim"])
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

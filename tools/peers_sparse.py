#!/usr/bin/env python3
"""Times FlashMLA's sparse attention on this GPU, to stand beside our own figures of the same run.

peers_sparse.py --flashmla DIR [--json OUT.json]

DIR is a source folder of FlashMLA with CUTLASS in csrc/cutlass (built here once with nvcc) or with a built libflashmla.so. Decode: rows of
656 bytes, top-k 2048 of 32,768 tokens, combine included, the schedule kernel not; prefill: bf16 rows, 4,096 queries of 128 heads. Each is
first compared with fp32 attention over the same rows. A time is the median of 31 replays of a CUDA graph, as in peers.py.
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys

from peers import KEY, PAGE, ROOT, VALUE, graph_us, say

ROW_BYTES, TOPK, CONTEXT = 656, 2048, 32768
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


def make_rows(torch, count):
    """Rows of the fp8 cache, and what they stand for in fp32."""
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
        for b in (1, 16, 64, 128):
            q = torch.randn(b, 1, heads, KEY, device="cuda", dtype=torch.bfloat16)
            sets = [choose(torch, b, 1, CONTEXT, lambda i, s=s: (i + s * b) % 128 * CONTEXT) for s in range(max(1, min(64, 128 // b)))]
            run = sparse.decode(q, kv, sets[0])
            us = graph_us(torch, [lambda chosen=chosen: run(kv, chosen) for chosen in sets] * (2 if len(sets) == 1 else 1))
            cells.append({"kind": "sparse decode", "heads": heads, "batch": b, "topk": TOPK, "context": CONTEXT, "us": us})
            say("FlashMLA sparse decode: %3d heads, b %3d: %7.1f us, %4.0f TFLOP/s" %
                (heads, b, us, b * heads * TOPK * (KEY + VALUE) * 2 / us / 1e6))
    return cells


def measure_prefill(torch, sparse):
    cells, queries, heads = [], 4096, 128
    for context in (8192, 65536):
        q = torch.randn(queries, heads, KEY, device="cuda", dtype=torch.bfloat16)
        kv = torch.randn(context, KEY, device="cuda", dtype=torch.bfloat16)
        run = sparse.prefill(q, kv, choose(torch, 1, queries, context, lambda i: 0)[0])
        us = graph_us(torch, [run, run])
        cells.append({"kind": "sparse prefill", "heads": heads, "queries": queries, "topk": TOPK, "context": context, "us": us})
        say("FlashMLA sparse prefill: %d heads, %d queries, %5d keys: %7.1f us, %4.0f TFLOP/s" %
            (heads, queries, context, us, queries * heads * TOPK * (KEY + VALUE) * 2 / us / 1e6))
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flashmla", metavar="DIR", required=True)
    parser.add_argument("--json", metavar="OUT")
    args = parser.parse_args()
    import torch
    library = os.path.join(args.flashmla, "libflashmla.so")
    sparse = Sparse(torch, library if os.path.exists(library) else build(args.flashmla, os.path.join(ROOT, "build", "flashmla")))
    check(torch, sparse)
    cells = measure_decode(torch, sparse) + measure_prefill(torch, sparse)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(0), "cells": cells}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

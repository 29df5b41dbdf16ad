#!/usr/bin/env python3
"""Times attention beside other implementations, in one run: peers.py dense|sparse|grouped [--flashmla DIR] [--quick] [--json OUT.json]

  dense    MLA over bf16 rows: FlashMLA
  sparse   MLA over top-k lists, as of DeepSeek-V3.2: FlashMLA's sparse kernels, decoding over fp8 rows and prompts over bf16 rows
  grouped  grouped-query attention: torch's scaled_dot_product_attention by cuDNN and by FlashAttention, flash_attn_3, flashinfer

Both sides take turns, ours first, in each of --rounds rounds of a cell. A time is the median of 31 replays of a CUDA graph of at least 4
ms, on both sides: short graphs end before a board that draws too much power slows down. The calls of a graph alternate over inputs larger
than the L2 cache. A cell's time is the median of its rounds; its ratio is the median of the rounds' ratios, next to the least and the
largest. Ours is `verbatim bench` of a plan with the cell's attention and little else. Combining splits is counted on both sides (our ops
are timed one by one, and added); making the schedule, once a step, is not. A peer is first compared with fp32 attention; one that is
absent or differs is named with the reason. Nothing is downloaded. --peer FILE.py adds peers: its open_peers(family) returns {name: peer},
and a peer has

  check()      raises RuntimeError if its results are wrong
  calls(cell)  functions that put one call each on the current stream, over different inputs; None where it has no such form
"""
import argparse
import gc
import importlib.util
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
OURS = "verbatim"
REPLAYS, GRAPH_US, LAUNCHES_LEAST = 31, 4000, 4  # engine/bench/ops.c has the same first and last
COLD_BYTES, LAYERS_MOST = 200 << 20, 96
PAGE = 64
BATCHES, CONTEXTS = (1, 4, 16, 64, 128), (1024, 4096, 8192, 32768)


def say(text):
    print(text, flush=True)


# === Times ==================================================================================================================


class Timer:
    """Subclasses have capture(calls), and replay(captured, times), which returns the us of each replay of all calls."""

    def prepare(self, calls):
        """A function that times the calls, repeated until a graph is long enough: (median us of a call, us of the shortest graph)."""
        us = statistics.median(self.replay(self.capture(calls), 3)) / len(calls)
        while True:
            repeated = calls * math.ceil(max(LAUNCHES_LEAST, GRAPH_US / us) / len(calls))
            captured = self.capture(repeated)
            shortest = min(self.replay(captured, 3))
            if shortest >= GRAPH_US:
                break
            us = min(shortest / len(repeated), us) * 0.95

        def timed():
            times = self.replay(captured, REPLAYS)
            return statistics.median(times) / len(repeated), min(times)
        return timed


class GraphTimer(Timer):
    def __init__(self, torch):
        self.torch, self.stream = torch, torch.cuda.Stream()

    def capture(self, calls):
        torch = self.torch
        self.stream.wait_stream(torch.cuda.current_stream())  # which makes the calls' inputs and schedules
        with torch.cuda.stream(self.stream):
            for call in calls[:2]:
                call()
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for call in calls:
                call()
        return graph

    def replay(self, captured, times):
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        found = []
        with self.torch.cuda.stream(self.stream):
            captured.replay()
            for _ in range(times):
                first.record()
                captured.replay()
                last.record()
                last.synchronize()
                found.append(first.elapsed_time(last) * 1e3)
        return found


class HostTimer(Timer):
    """Without a GPU: the calls one after the other."""

    def capture(self, calls):
        return calls

    def replay(self, captured, times):
        found = []
        for _ in range(times):
            begin = time.perf_counter()
            for call in captured:
                call()
            found.append((time.perf_counter() - begin) * 1e6)
        return found


def take_turns(sides, rounds):
    """sides: name -> a function that returns (us, us of its graph), in the order of the turns. Returns name -> [us], and name -> us of its
    shortest graph."""
    times, graphs = {name: [] for name in sides}, {}
    for _ in range(rounds):
        for name, timed in sides.items():
            us, graph_us = timed()
            times[name].append(us)
            graphs[name] = min(graphs.get(name, graph_us), graph_us)
    return times, graphs


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "largest": max(values)}


def summary(times):
    """Of name -> [us of each round]: the times, and our time over each peer's in the same round."""
    ratios = {name: spread([ours / theirs for ours, theirs in zip(times[OURS], found)]) for name, found in times.items() if name != OURS}
    return {"us": {name: dict(spread(found), rounds=found) for name, found in times.items()}, "ratio": ratios}


def geometric(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


# === Ours ===================================================================================================================

# The sizes that the attention depends on are the cell's, or those of the published models; the others are small.
SMALL = {"torch_dtype": "bfloat16", "vocab_size": 384, "hidden_act": "silu", "attention_bias": False, "rms_norm_eps": 1e-06,
         "intermediate_size": 256, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1}
LATENT = {**SMALL, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 1024, "kv_lora_rank": 512,
          "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 512, "rope_theta": 10000.0,
          "max_position_embeddings": 163840, "moe_intermediate_size": 128, "n_routed_experts": 8, "num_experts_per_tok": 2,
          "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
          "norm_topk_prob": True, "routed_scaling_factor": 2.5, "moe_layer_freq": 1}
TOPK = 2048
INDEXED = {**LATENT, "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_n_heads": 64,
           "index_head_dim": 128, "index_topk": TOPK}
LLAMA = {**SMALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "mlp_bias": False,
         "rope_theta": 500000.0, "max_position_embeddings": 131072}
ROW_BYTES = {"bfloat16": 1152, "fp8_ds_mla": 656}  # of latent attention


def parse_heads(text):
    """Of "32/8x128": query heads, KV heads, columns."""
    heads, rest = text.split("/")
    kv_heads, columns = rest.split("x")
    return int(heads), int(kv_heads), int(columns)


class Family:
    """A kind of attention: our ops that count, others that are shown. room_bytes: most rows of a cell."""

    def __init__(self, name, counted, others=(), room_bytes=1 << 60):
        self.name, self.counted, self.others, self.room_bytes = name, counted, others, room_bytes

    def config(self, cell, layers):
        if self.name == "grouped":
            heads, kv_heads, columns = parse_heads(cell["heads"])
            return dict(LLAMA, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=columns, num_hidden_layers=layers)
        return dict(INDEXED if self.name == "sparse" else LATENT, num_attention_heads=cell["heads"], num_key_value_heads=cell["heads"],
                    num_hidden_layers=layers, first_k_dense_replace=layers)

    def read_bytes(self, cell):
        """The rows that one call reads, at least."""
        if self.name == "grouped":
            return 2 * cell["batch"] * parse_heads(cell["heads"])[1] * cell["context"] * parse_heads(cell["heads"])[2] * 2
        rows = min(TOPK, cell["context"]) if self.name == "sparse" else cell["context"]
        return cell["batch"] * rows * ROW_BYTES[cell["kv"]]

    def held_bytes(self, cell):
        """The rows of a layer's cache."""
        return self.read_bytes(cell) // min(TOPK, cell["context"]) * cell["context"] if self.name == "sparse" else self.read_bytes(cell)

    def cells(self, quick, heads):
        batches, contexts = ((1, 64), (8192,)) if quick else (BATCHES, CONTEXTS)
        cells = {"dense": dense_cells, "sparse": sparse_cells, "grouped": grouped_cells}[self.name](batches, contexts, quick, heads)
        return [cell for cell in cells if self.held_bytes(cell) <= self.room_bytes]


def make_cell(kind, heads, batch, context, kv="bfloat16", queries=1):
    """kind: decode, of one query row of each request, or prompt: the last `queries` tokens of one context."""
    return {"kind": kind, "heads": heads, "batch": batch, "context": context, "queries": queries, "kv": kv}


def dense_cells(batches, contexts, quick, heads):
    return [make_cell("decode", h, b, c) for h in heads or (16, 128) for c in contexts for b in batches]


def sparse_cells(batches, contexts, quick, heads):
    cells = [make_cell("decode", h, b, 32768, kv) for h in heads or (16, 64, 128) for b in batches
             for kv in (("fp8_ds_mla", "bfloat16") if h == 128 and not quick else ("fp8_ds_mla",))]
    return cells + [make_cell("prompt", 128, 1, c, kv, 4096) for c in ((8192,) if quick else (8192, 65536)) for kv in ROW_BYTES]


def grouped_cells(batches, contexts, quick, heads):
    return [cell for h in heads or ("32/8x128", "64/8x128", "32/4x128", "64/8x64") for cell in
            [make_cell("decode", h, b, c) for c in contexts for b in batches] +
            [make_cell("prompt", h, 1, c, queries=c) for c in ((8192,) if quick else (2048, 8192, 32768))]]


FAMILIES = {family.name: family for family in (
    Family("dense", ("mla_attn", "mla_fold")), Family("sparse", ("mla_attn", "mla_fold", "kv_widen"), ("index_score", "index_topk")),
    Family("grouped", ("attn", "attn_fold"), room_bytes=20 << 30))}


class Ours:
    """`verbatim bench` of a plan for each cell."""

    def __init__(self, program, family, folder, device, options=(), deploy=""):
        self.program, self.family, self.folder, self.device, self.options, self.deploy = program, family, folder, device, options, deploy
        self.version = self.call("version").split("\n")[0]

    def call(self, *words):
        done = subprocess.run([self.program, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit("peers.py: %s %s: exit code %d: %s" % (self.program, words[0], done.returncode, done.stderr.strip()))
        return done.stdout

    def path(self, name):
        return os.path.join(self.folder, name)

    def plan(self, cell):
        layers = max(2, min(LAYERS_MOST, -(-COLD_BYTES // self.family.read_bytes(cell)))) if self.device != "cpu" else 2
        rows = max(cell["batch"], 64) if cell["kind"] == "decode" else cell["queries"]
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump(self.family.config(cell, layers), file)
        with open(self.path("deploy.yaml"), "w", encoding="utf-8") as file:
            file.write("max-num-seqs: %d\nmax-num-batched-tokens: %d\nmax-model-len: %d\nkv_pages: %d\nkv-cache-dtype: %s\n" %
                       (cell["batch"], rows, cell["context"], cell["batch"] * -(-cell["context"] // PAGE), cell["kv"]))
            file.write("ladder: [%d]\n%s" % (cell["batch"], self.deploy))
        self.call("plan", self.folder, "--config", self.path("deploy.yaml"), "-o", self.path("plan"), "--force", "--quiet")

    def prepare(self, cell):
        """A function that times the cell, as Timer.prepare does; .ops has what each op took, [{kernel: {us, floor_us}}] by round."""
        self.plan(cell)
        known = self.call("show", self.path("plan"), "--ops")
        names = [name for name in self.family.counted + self.family.others if ", %s " % name in known]
        rows = cell["batch"] if cell["kind"] == "decode" else cell["queries"]
        words = ["bench", self.path("plan"), "--op", ",".join(names), "--rows", str(rows), "--context", str(cell["context"]), "--graph-us",
                 str(GRAPH_US), "--json", self.path("bench.json"), "--device", self.device, "--quiet", *self.options]
        by_round = []

        def timed():
            self.call(*words)
            with open(self.path("bench.json"), encoding="utf-8") as file:
                ops = json.load(file)["ops"]
            by_round.append({name: {key: sum(op[key] or 0 for op in ops if op["kernel"] == name) for key in ("us", "floor_us")}
                             for name in names})
            counted = [op for op in ops if op["kernel"] in self.family.counted]
            longest = max(counted, key=lambda op: op["us"])
            return sum(op["us"] for op in counted), longest["us_least"] * longest["launches"]
        return timed, by_round


# === Peers ==================================================================================================================


def load_peers(path, family):
    spec = importlib.util.spec_from_file_location("peer_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.open_peers(family)


def open_peers(args, torch):
    """name -> peer, of those whose results are right; name -> why it is absent."""
    found, absent = {}, {}
    if torch is None:
        absent["FlashMLA" if args.family != "grouped" else "cuDNN, FlashAttention, flashinfer"] = "PyTorch with a GPU is needed"
    elif args.family == "grouped":
        import peers_grouped
        found.update(peers_grouped.open_peers(torch, absent))
    else:
        import peers_flashmla
        found.update(peers_flashmla.open_peers(torch, args.family, args.flashmla, args.parts, absent))
    for path in args.peer:
        found.update(load_peers(path, args.family))
    for name, peer in list(found.items()):
        reason = failure(peer.check)
        if reason:
            absent[name] = reason
            del found[name]
    return found, absent


def failure(work):
    """What went wrong in one line, or "". Other people's code may raise anything."""
    try:
        work()
        return ""
    except Exception as error:  # pylint: disable=broad-except
        return "%s: %s" % (type(error).__name__, (str(error).splitlines() or [""])[0])


# === Cells ==================================================================================================================


def measure(cell, ours, peers, timer, rounds, absent):
    """The cell with its times. A peer that fails in it is left out there, and named."""
    timed, ops = ours.prepare(cell)
    sides = {OURS: timed}
    for name, peer in peers.items():
        def prepare(name=name, peer=peer):
            calls = peer.calls(cell)
            if calls:
                sides[name] = timer.prepare(calls)
        reason = failure(prepare)
        if reason:
            absent["%s, %s" % (name, describe(cell))] = reason
    times, graphs = take_turns(sides, rounds)
    shown = {name: {key: statistics.median(each[name][key] for each in ops) for key in ("us", "floor_us")} for name in ops[0]}
    return dict(cell, **summary(times), graph_us=graphs, ops=shown)


def describe(cell):
    return "%s, %s heads, b %d at %d, %s" % (cell["kind"], cell["heads"], cell["batch"], cell["context"], cell["kv"])


def row(cell):
    """A line of the table."""
    parts = ["%-52s %s %8.1f" % (describe(cell), OURS, cell["us"][OURS]["median"])]
    for name, ratio in cell["ratio"].items():
        parts.append("%s %8.1f (%.3f, %.3f to %.3f)" % (name, cell["us"][name]["median"], ratio["median"], ratio["least"],
                                                        ratio["largest"]))
    others = ["%s %.1f" % (name, op["us"]) for name, op in cell["ops"].items() if name.startswith("index_")]
    return " | ".join(parts) + ("; " + ", ".join(others) if others else "")


def means(cells):
    """kind -> peer -> geometric mean of the ratios, how many, and the worst; also against the fastest peer of each cell."""
    found = {}
    for cell in cells:
        ratios = {name: ratio["median"] for name, ratio in cell["ratio"].items()}
        for name, value in itertools.chain(ratios.items(), [("the fastest", max(ratios.values()))] if len(ratios) > 1 else []):
            found.setdefault(cell["kind"], {}).setdefault(name, []).append(value)
    return {kind: {name: {"ratio": geometric(values), "cells": len(values), "worst": max(values)} for name, values in by.items()}
            for kind, by in found.items()}


def report(result):
    """The lines after the table."""
    for kind, by in result["means"].items():
        for name, mean in by.items():
            yield "%s: ours / %s %.3f (geometric mean of %d), worst %.3f" % (kind, name, mean["ratio"], mean["cells"], mean["worst"])
    for name, reason in result["absent"].items():
        yield "absent: %s: %s" % (name, reason)


# === Command ================================================================================================================


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("--verbatim", metavar="PROGRAM", default="build/verbatim")
    parser.add_argument("--flashmla", metavar="DIR", help="FlashMLA's sources with CUTLASS in csrc/cutlass, built here once with nvcc, or "
                        "a folder with libflashmla.so (default, dense only: the package flash_mla)")
    parser.add_argument("--parts", metavar="TOKENS", type=int, nargs="+", default=[],
                        help="dense: also FlashMLA with every request split at multiples of this, as bits of the request alone require")
    parser.add_argument("--peer", metavar="FILE.py", action="append", default=[])
    parser.add_argument("--heads", nargs="+", metavar="H", help="other heads: numbers, or H/KVxD for grouped")
    parser.add_argument("--chunk", type=int, metavar="TOKENS", help="chunk-tokens of our plans (default: the planner's)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gb-per-s", type=float, metavar="X", help="memory bandwidth, for our floors (default: as in bench)")
    parser.add_argument("--device", default="gpu", help="of ours, and cpu: peers on the host")
    parser.add_argument("--quick", action="store_true", help="a few cells")
    parser.add_argument("--only", metavar="KIND,BATCH,CONTEXT", help="one size: of each heads and cache")
    parser.add_argument("--json", metavar="OUT.json")
    args = parser.parse_args()
    if args.heads and args.family != "grouped":
        args.heads = [int(heads) for heads in args.heads]
    return args


def choose_cells(args):
    cells = FAMILIES[args.family].cells(args.quick, args.heads)
    if not args.only:
        return cells
    kind, batch, context = args.only.split(",")
    queries = {"queries": int(context) if args.family == "grouped" else min(4096, int(context))} if kind == "prompt" else {}
    pairs = dict.fromkeys((cell["heads"], cell["kv"]) for cell in cells if cell["kind"] == kind)
    return [make_cell(kind, heads, int(batch), int(context), kv, **queries) for heads, kv in pairs]


def find_torch(device):
    if device == "cpu":
        return None
    try:
        import torch
        return torch if torch.cuda.is_available() else None
    except ImportError:
        return None


def main():
    args = parse_arguments()
    torch = find_torch(args.device)
    timer = GraphTimer(torch) if torch else HostTimer()
    options = ["--gb-per-s", str(args.gb_per_s)] if args.gb_per_s else []
    deploy = "chunk-tokens: %d\n" % args.chunk if args.chunk else ""
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(args.verbatim, FAMILIES[args.family], folder, args.device, options, deploy)
        peers, absent = open_peers(args, torch)
        result = {"family": args.family, "verbatim": ours.version, "device": torch.cuda.get_device_name(0) if torch else args.device,
                  "torch": torch.__version__ if torch else None, "rounds": args.rounds, "replays": REPLAYS, "graph_us_least": GRAPH_US,
                  "peers": list(peers), "absent": absent, "cells": []}
        say("%s on %s: %s beside %s; us, and ours / theirs: the median, least and largest of %d rounds" % (
            args.family, result["device"], ours.version, ", ".join(peers) or "nothing", args.rounds))
        for cell in choose_cells(args):
            result["cells"].append(measure(cell, ours, peers, timer, args.rounds, absent))
            say(row(result["cells"][-1]))
            gc.collect()
            if torch:
                torch.cuda.empty_cache()
    result["means"] = means(result["cells"])
    for line in report(result):
        say(line)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

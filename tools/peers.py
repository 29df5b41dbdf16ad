#!/usr/bin/env python3
"""Times other implementations on this GPU, next to our own figures of the same run.

peers.py [--flashmla DIR] [--hf CONFIG.json] [--probe FIGURES.json] [--bench HEADS=BENCH.json]... [--json OUT.json] [--quick]

  FlashMLA      dense decode attention, bf16, page 64, combine included: the installed package flash_mla, or DIR, a source folder of it
                with CUTLASS in csrc/cutlass (built here once with nvcc) or with a built libflashmla.so
  transformers  a random model of CONFIG.json (V2-Lite's for instance): decode steps in a CUDA graph, the fastest of its experts' modes,
                and a prefill; if it is installed
  cuBLASLt      the best of all its algorithms, from the figures of `verbatim probe --json`
Ours are read from `verbatim bench --json`, HEADS being the heads of its plan. Anything absent is reported and skipped; nothing is
downloaded.

A time is the median of 31 replays of a CUDA graph after a warm-up, per call; the inputs are random, and the calls of one graph alternate
over KV pages and weights of more than three times the L2 cache. FlashMLA's schedule kernel, which runs once a step, is not counted.
"""
import argparse
import ctypes
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import time

REPLAYS = 31
COLD_BYTES = 160 << 20
PAGE, KEY, VALUE = 64, 576, 512
BATCHES, CONTEXTS, HEADS = (1, 4, 16, 64, 128), (1024, 4096, 8192, 32768), (16, 128)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def say(text):
    print(text, flush=True)


# === Timing =================================================================================================================

def graph_us(torch, calls, replays=REPLAYS):
    """Median us of one call; calls: functions that put work on the current stream."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    with torch.cuda.stream(stream):
        graph.replay()
        for _ in range(replays):
            first.record()
            graph.replay()
            last.record()
            last.synchronize()
            times.append(first.elapsed_time(last) * 1e3 / len(calls))
    return statistics.median(times)


# === FlashMLA ===============================================================================================================

def build_flashmla(folder, out):
    """Compiles the dense decode of FlashMLA's sources and our C entry; returns the library's path or reports the reason."""
    source = os.path.join(folder, "csrc")
    units = ["sm90/decode/dense/instantiations/bf16.cu", "smxx/decode/combine/combine.cu",
             "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.cu"]
    paths = [os.path.join(source, unit) for unit in units] + [os.path.join(ROOT, "tools", "flashmla_entry.cu")]
    nvcc = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
    if not all(os.path.exists(path) for path in paths + [nvcc, os.path.join(source, "cutlass", "include")]):
        raise FileNotFoundError("%s: expected FlashMLA's csrc with csrc/cutlass, and nvcc at %s" % (folder, nvcc))
    os.makedirs(out, exist_ok=True)
    flags = ["-O3", "-std=c++20", "-DNDEBUG", "-D_USE_MATH_DEFINES", "-DFLASH_MLA_DISABLE_FP16", "--expt-relaxed-constexpr",
             "--expt-extended-lambda", "--use_fast_math", "-gencode", "arch=compute_90a,code=sm_90a", "-Xcompiler", "-fPIC",
             "-I" + source, "-I" + source + "/kerutils/include", "-I" + source + "/cutlass/include", "-I" + source + "/sm90/decode/dense"]
    objects = [os.path.join(out, os.path.basename(path) + ".o") for path in paths]
    started = time.time()
    running = [subprocess.Popen([nvcc, *flags, "-c", path, "-o", made]) for path, made in zip(paths, objects)]
    if any([process.wait() for process in running]):
        raise RuntimeError("nvcc failed")
    library = os.path.join(out, "libflashmla.so")
    subprocess.run([nvcc, "-shared", *objects, "-o", library, "-lcuda"], check=True)
    say("FlashMLA built in %.0f s" % (time.time() - started))
    return library


SPLITS_MAX = 160  # most splits of a request that FlashMLA's combine takes


def fixed_parts(lengths, tokens):
    """A FlashMLA schedule that splits each request into parts of this many tokens, whatever other requests there are: its rows
    (DecodingSchedMeta) and the number of parts before each request. tokens: a multiple of the page size."""
    rows, splits = [], [0]
    for request, length in enumerate(lengths):
        blocks, each = -(-length // PAGE), tokens // PAGE
        starts = range(0, blocks, each)
        rows += [[request, request, first, min(first + each, blocks), i, *[int(len(starts) > 1)] * 2, 0] for i, first in enumerate(starts)]
        splits.append(len(rows))
    return rows, splits


class BuiltFlashMLA:
    """FlashMLA through tools/flashmla_entry.cu."""

    def __init__(self, torch, path):
        self.torch, self.library = torch, ctypes.CDLL(path)

    def prepare(self, q, kv, table, lengths, part_tokens=None):
        torch = self.torch
        b, s_q, heads, _ = q.shape
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        fixed = fixed_parts(lengths.tolist(), part_tokens) if part_tokens else None
        parts = len(fixed[0]) if fixed else max(sms // -(-s_q * heads // 64), 1)
        most = max(after - before for before, after in zip(fixed[1], fixed[1][1:])) if fixed else parts
        make = lambda *shape, dtype=torch.float32: torch.empty(shape, dtype=dtype, device="cuda")
        schedule, splits = make(parts, 8, dtype=torch.int32), make(b + 1, dtype=torch.int32)
        out, lse = make(b, s_q, heads, VALUE, dtype=torch.bfloat16), make(b, s_q, heads)
        lse_parts, out_parts = make(b + parts, s_q * heads), make(b + parts, s_q * heads, VALUE)
        pointer = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
        stream = lambda: ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if fixed:
            schedule.copy_(torch.tensor(fixed[0])), splits.copy_(torch.tensor(fixed[1]))
        else:
            self.library.flashmla_schedule(b, s_q, parts, pointer(lengths), pointer(schedule), pointer(splits), stream())

        def run(pages=table):
            self.library.flashmla_decode(b, s_q, heads, parts, most, kv.shape[0], pages.shape[1], ctypes.c_float(KEY ** -0.5), pointer(q),
                                         pointer(kv), pointer(pages), pointer(lengths), pointer(schedule), pointer(splits), pointer(out),
                                         pointer(lse), pointer(lse_parts), pointer(out_parts), stream())
            return out
        return run


class InstalledFlashMLA:
    """The package flash_mla."""

    def __init__(self, module):
        self.module = module

    def prepare(self, q, kv, table, lengths):
        module, caches = self.module, kv.unsqueeze(2)
        made = module.get_mla_metadata()
        schedule = made[0] if isinstance(made, tuple) else made

        def run(pages=table):
            return module.flash_mla_with_kvcache(q, caches, pages, lengths, VALUE, schedule, None, softmax_scale=KEY ** -0.5,
                                                 causal=q.shape[1] > 1)[0]
        run()
        return run


def find_flashmla(torch, folder):
    if folder:
        library = os.path.join(folder, "libflashmla.so")
        return BuiltFlashMLA(torch, library if os.path.exists(library) else build_flashmla(folder, os.path.join(ROOT, "build", "flashmla")))
    import flash_mla
    return InstalledFlashMLA(flash_mla)


def check_attention(torch, flashmla, s_q, **how):
    """Checks that the peer computes the same function, against fp32 on a small case."""
    b, heads, length = 3, 16, 200
    pages = -(-length // PAGE)
    q = torch.randn(b, s_q, heads, KEY, device="cuda", dtype=torch.bfloat16)
    kv = torch.randn(b * pages, PAGE, KEY, device="cuda", dtype=torch.bfloat16)
    table = torch.randperm(b * pages, device="cuda").int().view(b, pages)
    lengths = torch.tensor([length, 70, 1 + s_q], device="cuda", dtype=torch.int32)
    out = flashmla.prepare(q, kv, table, lengths, **how)().float()
    worst = 0.0
    for i in range(b):
        n = int(lengths[i])
        rows = kv[table[i].long()].view(-1, KEY)[:n].float()
        scores = torch.einsum("shd,nd->shn", q[i].float(), rows) * KEY ** -0.5
        last = n - s_q + torch.arange(s_q, device="cuda").view(-1, 1, 1)
        scores = scores.masked_fill(torch.arange(n, device="cuda") > last, -math.inf)
        worst = max(worst, float((torch.einsum("shn,nd->shd", scores.softmax(-1), rows[:, :VALUE]) - out[i]).abs().max()))
    if worst > 0.02:
        raise RuntimeError("FlashMLA: differs by %g from fp32 attention" % worst)


def time_attention(torch, flashmla, heads, s_q, b, context, pool, **how):
    pages = context // PAGE
    sets = max(1, -(-COLD_BYTES // (b * context * KEY * 2)))
    q = torch.randn(b, s_q, heads, KEY, device="cuda", dtype=torch.bfloat16)
    lengths = torch.full((b,), context, device="cuda", dtype=torch.int32)
    need = sets * b * pages
    order = torch.randperm(pool.shape[0], device="cuda").int()
    tables = [order[i * b * pages:(i + 1) * b * pages].view(b, pages) for i in range(sets)] if need <= pool.shape[0] else None
    if tables is None:
        return None
    run = flashmla.prepare(q, pool, tables[0], lengths, **how)
    calls = [lambda table=table: run(table) for table in tables]
    return graph_us(torch, calls if len(calls) > 1 else calls * 2)


def measure_flashmla(torch, folder, quick):
    flashmla = find_flashmla(torch, folder)
    for s_q in (1, 2):
        check_attention(torch, flashmla, s_q)
    most = max(BATCHES) * max(CONTEXTS) // PAGE
    pool = torch.empty(most, PAGE, KEY, device="cuda", dtype=torch.bfloat16)
    for i in range(0, most, 4096):
        pool[i:i + 4096].normal_()
    cells = []
    say("FlashMLA: us (GB/s of KV rows, TFLOP/s)\n heads s_q   ctx " + "".join("%26s" % ("b=%d" % b) for b in BATCHES))
    for heads in HEADS:
        for s_q in (1,) if quick else (1, 2):
            for context in CONTEXTS:
                line = "%6d %3d %6d" % (heads, s_q, context)
                for b in BATCHES:
                    us = time_attention(torch, flashmla, heads, s_q, b, context, pool)
                    cells.append({"heads": heads, "s_q": s_q, "batch": b, "context": context, "us": us})
                    line += "%26s" % ("%.1f (%.0f, %.0f)" % (us, b * context * KEY * 2 / us / 1e3,
                                                            b * s_q * heads * context * (KEY + VALUE) * 2 / us / 1e6))
                say(line)
    if isinstance(flashmla, BuiltFlashMLA):
        cells += measure_fixed_parts(torch, flashmla, cells, pool)
    return cells


def measure_fixed_parts(torch, flashmla, cells, pool):
    """FlashMLA's cost of splitting every request at fixed places, which bits that depend only on the request require."""
    check_attention(torch, flashmla, 1, part_tokens=2 * PAGE)
    found, heads = [], max(HEADS)
    for cell in [cell for cell in cells if cell["heads"] == heads and cell["s_q"] == 1 and cell["us"]]:
        for tokens in (512, 1024, 2048):
            b, context = cell["batch"], cell["context"]
            if context <= tokens or -(-context // tokens) > SPLITS_MAX:
                continue
            us = time_attention(torch, flashmla, heads, 1, b, context, pool, part_tokens=tokens)
            found.append({"heads": heads, "s_q": 1, "batch": b, "context": context, "part_tokens": tokens, "us": us})
            say("FlashMLA, %d heads, b %d, ctx %d, parts of %d tokens: %.1f us, %.2f of its own schedule" % (heads, b, context, tokens, us,
                                                                                                         us / cell["us"]))
    return found


# === transformers ===========================================================================================================

def random_model(torch, path, experts, device="cuda"):
    import transformers
    fields = read_json(path)
    fields.pop("auto_map", None)
    config = transformers.AutoConfig.for_model(**fields)
    with torch.device(device), skip_init(torch):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0) if "norm" in name else weight.normal_(0, 0.02)
    set_experts(model, experts)
    return model.eval()


def expert_modes(model, batch):
    """Of a model with experts; [None] for one without."""
    if not any(hasattr(model.config, key) for key in ("num_experts", "n_routed_experts", "num_local_experts")):
        return [None]
    return ["grouped_mm", "batched_mm"] if batch == 1 else ["grouped_mm"]


def set_experts(model, mode):
    if mode and expert_modes(model, 1) != [None]:
        model.set_experts_implementation(mode)


class skip_init:
    """Leaves parameters as allocated: they are all filled afterwards."""

    def __init__(self, torch):
        self.init, self.saved = torch.nn.init, {}

    def __enter__(self):
        for name in ("normal_", "uniform_", "kaiming_uniform_", "xavier_uniform_", "trunc_normal_", "zeros_", "ones_", "constant_"):
            self.saved[name] = getattr(self.init, name)
            setattr(self.init, name, lambda tensor, *rest, **named: tensor)

    def __exit__(self, *unused):
        for name, function in self.saved.items():
            setattr(self.init, name, function)


def decode_us(torch, model, batch, context):
    """One step of `batch` sequences with `context` tokens each, in a graph."""
    import transformers
    room = context + REPLAYS + 8
    cache = transformers.StaticCache(config=model.config, max_cache_len=room)
    ids = torch.randint(3, model.config.vocab_size, (batch, context), device="cuda")
    model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    token, position = ids[:, :1].clone(), torch.full((1, 1), context, device="cuda")
    columns = torch.arange(room, device="cuda").view(1, 1, 1, room)

    def step():
        mask = (columns <= position).expand(batch, 1, 1, room)
        logits = model(token, past_key_values=cache, use_cache=True, position_ids=position.expand(batch, 1), attention_mask=mask).logits
        token.copy_(logits[:, -1].argmax(-1, keepdim=True))
        position.add_(1)
    return graph_us(torch, [step])


def measure_transformers(torch, path):
    model = random_model(torch, path, "grouped_mm")
    found = {"model": path, "decode": [], "prefill": []}
    with torch.inference_mode():
        for batch in (1, 16, 64):
            for mode in expert_modes(model, batch):
                set_experts(model, mode)
                try:
                    us = decode_us(torch, model, batch, 512)
                except (RuntimeError, ValueError) as error:  # a mode that cannot be captured gives no result
                    say("transformers: %s, batch %d: %s" % (mode, batch, str(error).splitlines()[0]))
                    torch.cuda.synchronize()
                    continue
                found["decode"].append({"experts": mode, "batch": batch, "context": 512, "us": us, "tokens_per_s": batch * 1e6 / us})
                say("transformers: decode, %s, batch %d, context 512: %.0f us, %.1f tokens/s" % (mode or "no experts", batch, us,
                                                                                               batch * 1e6 / us))
                gc.collect()
                torch.cuda.empty_cache()
        set_experts(model, "grouped_mm")
        ids = torch.randint(3, model.config.vocab_size, (16, 512), device="cuda")
        times = []
        for _ in range(5):
            torch.cuda.synchronize()
            started = time.perf_counter()
            model(ids, use_cache=True, logits_to_keep=1)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - started) * 1e6)
        us = statistics.median(times[1:])
        found["prefill"].append({"prompts": 16, "tokens": 512, "us": us, "tokens_per_s": 16 * 512e6 / us})
        say("transformers: prefill of 16 x 512: %.0f us, %.0f tokens/s" % (us, 16 * 512e6 / us))
    return found


# === Ours and theirs ========================================================================================================

def geometric(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def compare_attention(cells, heads, bench):
    """Our mla_attn and mla_fold, at one query row per sequence, against FlashMLA's cells with the same number of heads."""
    ours = {}
    for op in bench["ops"]:
        if op["kernel"] in ("mla_attn", "mla_fold") and op["us"] and op["context"]:
            ours[op["rows"], op["context"]] = ours.get((op["rows"], op["context"]), 0) + op["us"]
    ratios = []
    for cell in cells:
        us = ours.get((cell["batch"], cell["context"]))
        if cell["heads"] != heads or cell["s_q"] != 1 or "part_tokens" in cell or not us:
            continue
        ratios.append({"heads": heads, "batch": cell["batch"], "context": cell["context"], "ours_us": us, "theirs_us": cell["us"],
                       "ratio": us / cell["us"]})
        say("attention, %d heads, b %d, ctx %d: ours %.1f, FlashMLA %.1f us: %.2f" % (heads, cell["batch"], cell["context"], us, cell["us"],
                                                                                   us / cell["us"]))
    if ratios:
        mean = geometric([r["ratio"] for r in ratios])
        say("attention, %d heads: ours / FlashMLA %.3f (geometric mean of %d)" % (heads, mean, len(ratios)))
    return ratios


def compare_products(points):
    """Our gemm kernel, and the algorithm of a plan with the profile, against the best of the library's algorithms."""
    for name, low, high in (("up to 32 rows", 1, 32), ("more", 33, 1 << 30)):
        some = [p for p in points if low <= p["rows"] <= high and "all_us" in p]
        used = [p["used_us"] / p["all_us"] for p in some]
        if some:
            say("products, %s: our kernel / cuBLASLt's best of all %.3f, as planned %.3f (geometric means of %d)" % (
                name, geometric([p["own_us"] / p["all_us"] for p in some]), geometric(used), len(some)))


def compare_model(found, bench):
    for step in bench.get("decode", []):
        theirs = [d["us"] for d in found["decode"] if d["batch"] == step["batch"]]
        if theirs:
            say("decode, batch %d: ours %.0f us at context %d, transformers' best %.0f us: %.2f" % (
                step["batch"], step["step_us"], step["context"], min(theirs), step["step_us"] / min(theirs)))
    for prompt in bench.get("prefill", []):
        for other in found["prefill"]:
            if (prompt["prompts"], prompt["tokens"]) == (other["prompts"], other["tokens"]):
                say("prefill of %d x %d: ours %.0f us, transformers %.0f us: %.2f" % (other["prompts"], other["tokens"], prompt["us"],
                                                                                 other["us"], prompt["us"] / other["us"]))


# === Command ================================================================================================================

def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def attempt(name, measure):
    """The peer's figures, or null with the reason on stdout."""
    try:
        return measure()
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError, TypeError, subprocess.SubprocessError) as error:
        say("%s: absent or failed: %s: %s" % (name, type(error).__name__, str(error).splitlines()[0] if str(error) else ""))
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flashmla", metavar="DIR")
    parser.add_argument("--hf", metavar="CONFIG.json")
    parser.add_argument("--probe", metavar="FIGURES.json")
    parser.add_argument("--bench", metavar="HEADS=BENCH.json", action="append", default=[])
    parser.add_argument("--json", metavar="OUT.json")
    parser.add_argument("--quick", action="store_true", help="FlashMLA with one query token only")
    args = parser.parse_args()
    result = {"flashmla": None, "transformers": None, "products": None, "attention": []}
    benches = [(int(item.split("=")[0]), read_json(item.split("=", 1)[1])) for item in args.bench]
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        say("FlashMLA, transformers: absent: PyTorch with a GPU is needed")
    else:
        result["device"] = torch.cuda.get_device_name(0)
        result["torch"] = torch.__version__
        result["flashmla"] = attempt("FlashMLA", lambda: measure_flashmla(torch, args.flashmla, args.quick))
        gc.collect()
        torch.cuda.empty_cache()
        if args.hf:
            result["transformers"] = attempt("transformers", lambda: measure_transformers(torch, args.hf))
    if args.probe:
        result["products"] = read_json(args.probe)["points"]
        compare_products(result["products"])
    else:
        say("cuBLASLt: absent: --probe FIGURES.json")
    for heads, bench in benches:
        if result["flashmla"]:
            result["attention"] += compare_attention(result["flashmla"], heads, bench)
        if result["transformers"]:
            compare_model(result["transformers"], bench)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())

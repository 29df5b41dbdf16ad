"""FlashMLA for peers.py: dense decode of bf16 rows, sparse decode of fp8 rows and sparse prompts over bf16 rows.

Built from a source folder through tools/flashmla_entry.cu and flashmla_sparse_entry.cu; the package flash_mla serves for dense where it is
installed. The schedule kernel, which runs once a step, is not counted. Must not know our side.
"""
import ctypes
import math
import os
import subprocess

from peers import COLD_BYTES, PAGE, TOPK, failure, say

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEY, VALUE, ROW_BYTES = 576, 512, 656
SPLITS_MAX = 160  # most splits of a request that FlashMLA's combine takes
POOL_TOKENS = 128 * 32768  # of which the cells take their rows
UNITS = {
    "dense": ["sm90/decode/dense/instantiations/bf16.cu"],
    "sparse": ["sm90/decode/sparse_fp8/instantiations/v32_persistent_h64.cu",
               "sm90/decode/sparse_fp8/instantiations/v32_persistent_h128.cu",
               "sm90/prefill/sparse/instantiations/phase1_k576.cu"]}
UNITS_OF_BOTH = ["smxx/decode/combine/combine.cu", "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.cu"]
ENTRIES = {"dense": "flashmla_entry.cu", "sparse": "flashmla_sparse_entry.cu"}
FLAGS = ["-O3", "-std=c++20", "-DNDEBUG", "-D_USE_MATH_DEFINES", "--expt-relaxed-constexpr", "--expt-extended-lambda", "--use_fast_math",
         "-gencode", "arch=compute_90a,code=sm_90a", "-Xcompiler", "-fPIC"]


def build(folder, family, out):
    """Compiles FlashMLA's kernels of the family and our C entry to them; returns the library's path."""
    source = os.path.join(folder, "csrc")
    nvcc = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
    paths = [os.path.join(source, unit) for unit in UNITS[family] + UNITS_OF_BOTH] + [os.path.join(ROOT, "tools", ENTRIES[family])]
    missing = [path for path in paths + [nvcc, os.path.join(source, "cutlass", "include")] if not os.path.exists(path)]
    if missing:
        raise FileNotFoundError("%s: expected FlashMLA's csrc with csrc/cutlass, and nvcc; %s is not there" % (folder, missing[0]))
    os.makedirs(out, exist_ok=True)
    flags = FLAGS + ["-I" + os.path.join(source, part) for part in (".", "kerutils/include", "cutlass/include")]
    if family == "dense":
        flags += ["-DFLASH_MLA_DISABLE_FP16", "-I" + os.path.join(source, "sm90/decode/dense")]
    objects = [os.path.join(out, os.path.basename(path) + ".o") for path in paths]
    running = [subprocess.Popen([nvcc, *flags, "-c", path, "-o", made]) for path, made in zip(paths, objects)]
    if any([process.wait() for process in running]):
        raise RuntimeError("nvcc failed")
    library = os.path.join(out, "libflashmla.so")
    subprocess.run([nvcc, "-shared", *objects, "-o", library, "-lcuda"], check=True)
    say("FlashMLA is built: %s" % library)
    return library


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


class Library:
    """What the two C entries share."""

    def __init__(self, torch, path):
        self.torch, self.library = torch, ctypes.CDLL(path)
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count

    def make(self, *shape, dtype=None):
        return self.torch.empty(shape, dtype=dtype or self.torch.float32, device="cuda")

    def stream(self):
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)

    @staticmethod
    def pointers(*tensors):
        return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


def attend(q, rows):
    """fp32 attention of q [heads][576] over the rows."""
    return ((q.float() @ rows.float().T) * KEY ** -0.5).softmax(-1) @ rows.float()[:, :VALUE]


def require_near(name, found, wanted):
    worst = max(float((a.float() - b).abs().max()) for a, b in zip(found, wanted))
    if not worst <= 0.02:
        raise RuntimeError("%s differs by %g from fp32 attention" % (name, worst))


# === Dense ==================================================================================================================


class BuiltDense(Library):
    def prepare(self, q, kv, table, lengths, part_tokens=None):
        torch = self.torch
        b, s_q, heads, _ = q.shape
        fixed = fixed_parts(lengths.tolist(), part_tokens) if part_tokens else None
        parts = len(fixed[0]) if fixed else max(self.sms // -(-s_q * heads // 64), 1)
        most = max(after - before for before, after in zip(fixed[1], fixed[1][1:])) if fixed else parts
        schedule, splits = self.make(parts, 8, dtype=torch.int32), self.make(b + 1, dtype=torch.int32)
        out, lse = self.make(b, s_q, heads, VALUE, dtype=torch.bfloat16), self.make(b, s_q, heads)
        lse_parts, out_parts = self.make(b + parts, s_q * heads), self.make(b + parts, s_q * heads, VALUE)
        if fixed:
            schedule.copy_(torch.tensor(fixed[0])), splits.copy_(torch.tensor(fixed[1]))
        else:
            self.library.flashmla_schedule(b, s_q, parts, *self.pointers(lengths, schedule, splits), self.stream())

        def run(pages=table):
            self.library.flashmla_decode(b, s_q, heads, parts, most, kv.shape[0], pages.shape[1], ctypes.c_float(KEY ** -0.5),
                                         *self.pointers(q, kv, pages, lengths, schedule, splits, out, lse, lse_parts, out_parts),
                                         self.stream())
            return out
        return run


class InstalledDense:
    """The package flash_mla."""

    def __init__(self, module):
        self.module = module

    def prepare(self, q, kv, table, lengths):
        module, caches = self.module, kv.unsqueeze(2)
        made = module.get_mla_metadata()
        schedule = made[0] if isinstance(made, tuple) else made

        def run(pages=table):
            return module.flash_mla_with_kvcache(q, caches, pages, lengths, VALUE, schedule, None, softmax_scale=KEY ** -0.5,
                                                 causal=False)[0]
        run()
        return run


class Dense:
    """A peer. part_tokens: every request is split at multiples of this."""

    def __init__(self, torch, flashmla, pool, part_tokens=None):
        self.torch, self.flashmla, self.pool = torch, flashmla, pool
        self.how = {"part_tokens": part_tokens} if part_tokens else {}

    def check(self):
        torch, heads, length = self.torch, 16, 200 + 2 * self.how.get("part_tokens", 0)  # three parts
        pages = -(-length // PAGE)
        q = torch.randn(3, 1, heads, KEY, device="cuda", dtype=torch.bfloat16)
        kv = torch.randn(3 * pages, PAGE, KEY, device="cuda", dtype=torch.bfloat16)
        table = torch.randperm(3 * pages, device="cuda").int().view(3, pages)
        lengths = torch.tensor([length, 70, 2], device="cuda", dtype=torch.int32)
        out = self.flashmla.prepare(q, kv, table, lengths, **self.how)()
        wanted = [attend(q[i, 0], kv[table[i].long()].view(-1, KEY)[:int(lengths[i])]) for i in range(3)]
        require_near("FlashMLA", [out[i, 0] for i in range(3)], wanted)

    def calls(self, cell):
        torch, b, pages = self.torch, cell["batch"], cell["context"] // PAGE
        part = self.how.get("part_tokens")
        if part and (cell["context"] <= part or -(-cell["context"] // part) > SPLITS_MAX):
            return None
        sets = max(1, min(-(-COLD_BYTES // (b * cell["context"] * KEY * 2)), self.pool().shape[0] // (b * pages)))
        q = torch.randn(b, 1, cell["heads"], KEY, device="cuda", dtype=torch.bfloat16)
        lengths = torch.full((b,), cell["context"], device="cuda", dtype=torch.int32)
        order = torch.randperm(self.pool().shape[0], device="cuda").int()
        tables = [order[i * b * pages:(i + 1) * b * pages].view(b, pages) for i in range(sets)]
        run = self.flashmla.prepare(q, self.pool(), tables[0], lengths, **self.how)
        return [lambda table=table: run(table) for table in tables]


class Pool:
    """Random bf16 rows, made at first use and shared by the peers."""

    def __init__(self, torch):
        self.torch, self.rows = torch, None

    def __call__(self):
        if self.rows is None:
            self.rows = self.torch.empty(POOL_TOKENS // PAGE, PAGE, KEY, device="cuda", dtype=self.torch.bfloat16)
            for i in range(0, len(self.rows), 4096):
                self.rows[i:i + 4096].normal_()
        return self.rows


# === Sparse =================================================================================================================


class BuiltSparse(Library):
    def decode(self, q, kv, indices):
        torch = self.torch
        b, s_q, heads, _ = q.shape
        topk, parts = indices.shape[2], max(self.sms // s_q // (heads // 64), 1)
        schedule, splits = self.make(parts, 8, dtype=torch.int32), self.make(b + 1, dtype=torch.int32)
        out, lse = self.make(b, s_q, heads, VALUE, dtype=torch.bfloat16), self.make(b, s_q, heads)
        lse_parts, out_parts = self.make(b + parts, s_q, heads), self.make(b + parts, s_q, heads, VALUE)
        self.library.flashmla_sparse_schedule(b, s_q, topk, parts, *self.pointers(schedule, splits), self.stream())

        def run(chosen=indices):
            self.library.flashmla_sparse_decode(b, s_q, heads, topk, parts, kv.shape[0], ctypes.c_float(KEY ** -0.5),
                                                *self.pointers(q, kv, chosen, schedule, splits, out, lse, lse_parts, out_parts),
                                                self.stream())
            return out
        return run

    def prefill(self, q, kv, indices):
        s_q, heads, _ = q.shape
        out = self.make(s_q, heads, VALUE, dtype=self.torch.bfloat16)
        logits, lse = self.make(s_q, heads), self.make(s_q, heads)

        def run():
            self.library.flashmla_sparse_prefill(s_q, kv.shape[0], heads, indices.shape[1], self.sms, ctypes.c_float(KEY ** -0.5),
                                                 *self.pointers(q, kv, indices, out, logits, lse), self.stream())
            return out
        return run


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


class Sparse:
    """A peer. It decodes over fp8 rows with 64 or 128 heads, and computes prompts of 128 heads over bf16 rows, whatever our cache is."""

    def __init__(self, torch, flashmla):
        self.torch, self.flashmla, self.pool = torch, flashmla, None

    def check(self):
        torch = self.torch
        rows, codes, scales, rope = make_rows(torch, 64 * PAGE)
        meant = torch.cat([(codes.float().view(-1, 4, 128) * scales[:, :, None]).view(-1, VALUE), rope.float()], 1)
        for heads in (64, 128):
            q = torch.randn(2, 1, heads, KEY, device="cuda", dtype=torch.bfloat16)
            chosen = choose(torch, 2, 1, 64 * PAGE, lambda i: 0)
            out = self.flashmla.decode(q, rows.view(-1, PAGE, ROW_BYTES), chosen)()
            require_near("FlashMLA sparse decode", [out[i, 0] for i in range(2)],
                         [attend(q[i, 0], meant[chosen[i, 0].long()]) for i in range(2)])
            out = self.flashmla.prefill(q[:, 0].contiguous(), meant.bfloat16(), chosen[:, 0].contiguous())()
            require_near("FlashMLA sparse prefill", [out[0]], [attend(q[0, 0], meant.bfloat16()[chosen[0, 0].long()])])

    def rows(self):
        if self.pool is None:
            self.pool = self.torch.empty(POOL_TOKENS // PAGE, PAGE, ROW_BYTES, device="cuda", dtype=self.torch.uint8)
            for i in range(0, len(self.pool), 4096):
                self.pool[i:i + 4096] = make_rows(self.torch, 4096 * PAGE)[0].view(4096, PAGE, ROW_BYTES)
        return self.pool

    def calls(self, cell):
        torch, b, heads, context = self.torch, cell["batch"], cell["heads"], cell["context"]
        if cell["kind"] == "prompt":
            q = torch.randn(cell["queries"], heads, KEY, device="cuda", dtype=torch.bfloat16)
            kv = torch.randn(context, KEY, device="cuda", dtype=torch.bfloat16)
            return [self.flashmla.prefill(q, kv, choose(torch, 1, cell["queries"], context, lambda i: 0)[0])] if heads == 128 else None
        if heads not in (64, 128) or cell["kv"] != "fp8_ds_mla":
            return None
        q, places = torch.randn(b, 1, heads, KEY, device="cuda", dtype=torch.bfloat16), POOL_TOKENS // context
        sets = max(1, min(math.ceil(COLD_BYTES / (b * TOPK * ROW_BYTES)), places // b))
        chosen = [choose(torch, b, 1, context, lambda i, s=s: (i + s * b) % places * context) for s in range(sets)]
        run = self.flashmla.decode(q, self.rows(), chosen[0])
        return [lambda one=one: run(one) for one in chosen]


# === Opening ================================================================================================================


def open_peers(torch, family, folder, parts, absent):
    """name -> peer; why one is missing goes to absent."""
    found = {}

    def take():
        if not folder and family == "sparse":
            raise FileNotFoundError("--flashmla DIR")
        if not folder:
            import flash_mla
            found["FlashMLA"] = Dense(torch, InstalledDense(flash_mla), Pool(torch))
            return
        library = os.path.join(folder, "libflashmla.so")
        path = library if os.path.exists(library) else build(folder, family, os.path.join(ROOT, "build", "flashmla-" + family))
        if family == "sparse":
            found["FlashMLA"] = Sparse(torch, BuiltSparse(torch, path))
            return
        flashmla, pool = BuiltDense(torch, path), Pool(torch)
        for tokens in [None, *parts]:
            found["FlashMLA" + (", parts of %d" % tokens if tokens else "")] = Dense(torch, flashmla, pool, tokens)
    reason = failure(take)
    if reason:
        absent["FlashMLA"] = reason
    return found

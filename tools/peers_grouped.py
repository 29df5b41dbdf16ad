"""Grouped-query attention of others for peers.py: torch's back ends, over contiguous K and V, and packages that are installed.

Decode: one query row of each request; prompts: causal, of whole contexts. Must not know our side.
"""
import math

from peers import COLD_BYTES, PAGE, failure, parse_heads

SETS_MOST = 64
WORKSPACE_BYTES = 256 << 20  # of flashinfer


def by_torch(torch, name):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backend = getattr(SDPBackend, name)

    def prepare(q, k, v, causal):
        def run():
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        return run
    return prepare


def by_flash_attn_3(torch):
    from flash_attn_interface import flash_attn_func

    def prepare(q, k, v, causal):
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        return lambda: first_of(flash_attn_func(q, k, v, causal=causal)).transpose(1, 2)
    return prepare


def first_of(result):
    """Some versions also return the log-sum-exp."""
    return result[0] if isinstance(result, tuple) else result


def by_flashinfer(torch):
    import flashinfer
    workspace = torch.empty(WORKSPACE_BYTES, device="cuda", dtype=torch.uint8)

    def decode(q, k, v):
        """Over pages, as it is used: K and V are cut into them once, before."""
        b, heads, _, columns = q.shape
        kv_heads, context = k.shape[1:3]
        pages = -(-context // PAGE)
        rest = (0, 0, 0, 0, 0, pages * PAGE - context)
        k, v = (torch.nn.functional.pad(x.transpose(1, 2), rest).reshape(b * pages, PAGE, kv_heads, columns) for x in (k, v))
        make = lambda *values: torch.arange(*values, device="cuda", dtype=torch.int32)
        indptr, indices, last = make(0, b * pages + 1, pages), make(b * pages), torch.full_like(make(b), (context - 1) % PAGE + 1)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_cuda_graph=True, use_tensor_cores=True, paged_kv_indptr_buffer=torch.empty_like(indptr),
            paged_kv_indices_buffer=torch.empty_like(indices), paged_kv_last_page_len_buffer=torch.empty_like(last))
        wrapper.plan(indptr, indices, last, heads, kv_heads, columns, PAGE, q_data_type=q.dtype, kv_data_type=k.dtype)
        rows = q[:, :, 0].contiguous()
        return lambda: wrapper.run(rows, (k, v))[:, :, None]

    def prepare(q, k, v, causal):
        if not causal:
            return decode(q, k, v)
        q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
        return lambda: flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True).transpose(0, 1)[None]
    return prepare


class Grouped:
    """A peer. prepare: a function of q [b, heads, n, columns], k and v [b, kv_heads, m, columns] and whether it is causal, that returns the
    call."""

    def __init__(self, torch, prepare):
        self.torch, self.prepare = torch, prepare

    def inputs(self, b, heads, kv_heads, columns, queries, context):
        make = lambda count, length: self.torch.randn(b, count, length, columns, device="cuda", dtype=self.torch.bfloat16)
        return make(heads, queries), make(kv_heads, context), make(kv_heads, context)

    def check(self):
        torch = self.torch
        for b, heads, kv_heads, queries, context in ((2, 8, 2, 1, 200), (1, 8, 2, 96, 96)):
            q, k, v = self.inputs(b, heads, kv_heads, 128, queries, context)
            rows = torch.arange(queries, device="cuda")[:, None] + context - queries
            scores = q.float() @ k.float().repeat_interleave(heads // kv_heads, 1).transpose(2, 3) * 128 ** -0.5
            scores = scores.masked_fill(torch.arange(context, device="cuda")[None, :] > rows, -math.inf)
            wanted = scores.softmax(-1) @ v.float().repeat_interleave(heads // kv_heads, 1)
            worst = float((self.prepare(q, k, v, queries > 1)().float() - wanted).abs().max())
            if not worst <= 0.02:
                raise RuntimeError("differs by %g from fp32 attention" % worst)

    def calls(self, cell):
        heads, kv_heads, columns = parse_heads(cell["heads"])
        b, context, is_prompt = cell["batch"], cell["context"], cell["kind"] == "prompt"
        if is_prompt and cell["queries"] != context:
            return None
        sets = 1 if is_prompt else max(1, min(SETS_MOST, -(-COLD_BYTES // (2 * b * kv_heads * context * columns * 2))))
        return [self.prepare(*self.inputs(b, heads, kv_heads, columns, cell["queries"], context), is_prompt) for _ in range(sets)]


def open_peers(torch, absent):
    """name -> peer; why one is missing goes to absent."""
    found = {}
    for name, make in (("cuDNN", lambda: by_torch(torch, "CUDNN_ATTENTION")),
                       ("FlashAttention", lambda: by_torch(torch, "FLASH_ATTENTION")),
                       ("flash_attn_3", lambda: by_flash_attn_3(torch)), ("flashinfer", lambda: by_flashinfer(torch))):
        def take(name=name, make=make):
            found[name] = Grouped(torch, make())
        reason = failure(take)
        if reason:
            absent[name] = reason
    return found

"""sparse_reference.py - the forward pass of MLA models with sparse attention and with e4m3 weights, in numpy, binary64.

Owns: an independent reading of the official formulas (DeepSeek-V3.2 inference/model.py and kernel.py; GLM-5 in Hugging Face transformers).
Must not know: Verbatim. A Reference can leave out all quantisation ("exact"), or quantise like the quantised model: activations and weights
as e4m3 with block scales, the indexer's Hadamard transform and e4m3, the latent through the e4m3 cache. `wrong` names one deliberate error,
for tests that must notice it: in the logits WRONGS, in the top-k index lists WRONGS_OF_LISTS.
"""
import json
import math
import os
import struct

import numpy as np

BLOCK = 128
WRONGS = ["indexer_rope_pairs", "indexer_rope_last", "indexer_rms_norm", "no_hadamard", "latent_kept", "own_indexer", "dense", "row_scales",
          "converted_all", "scale_of_batch", "no_relu", "topk_smallest"]
WRONGS_OF_LISTS = ["indexer_rope_pairs", "indexer_rope_last", "indexer_rms_norm", "no_hadamard", "converted_all", "no_relu",
                   "topk_smallest", "weights_bf16", "indexer_float32_scales", "scale_of_batch"]


# === Number formats =========================================================================================================

def bf16(x):
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) & np.uint32(0xffff0000)).view(np.float32).astype(np.float64)


def e4m3(x):
    """The nearest e4m3 number, ties to even, at most 448 in magnitude."""
    size = np.abs(x)
    step = np.exp2(np.floor(np.log2(np.maximum(size, 2.0 ** -6))) - 3)
    return np.sign(x) * np.minimum(np.rint(size / step) * step, 448.0)


def from_e4m3(codes):
    exponent, fraction = (codes >> 3) & 15, codes & 7
    size = np.where(exponent == 0, fraction * 2.0 ** -9, (8 + fraction) * np.exp2(exponent.astype(np.float64) - 10))
    return np.where(codes & 0x80, -size, size)


def coded(x, power_of_two):
    """Scaled e4m3 of bf16 numbers: the last axis in blocks of 128, and the scales."""
    x = x.reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    scale = np.float32(np.maximum(np.abs(x).max(-1, keepdims=True), 1e-4)) / np.float32(448)
    scale = np.exp2(np.ceil(np.log2(scale.astype(np.float64)))) if power_of_two else scale.astype(np.float64)
    return e4m3(np.float32(x / scale).astype(np.float64)), scale


def through_e4m3(x, power_of_two):
    """The numbers after rounding to scaled e4m3."""
    codes, scale = coded(x, power_of_two)
    return (codes * scale).reshape(x.shape)


def exponent(x):
    return np.where(x != 0, np.frexp(x)[1] - 1, -1000)


def cut_products(a, b):
    """[T, N] from e4m3 numbers [T, 128] and [N, 128] as Hopper's tensor cores add products: 32 at a time, truncated below the largest
    exponent of them and of the sum so far, the new sum truncated to 14 bits. NUMERICS.md, "H32".
    """
    total = np.zeros((a.shape[0], b.shape[0]))
    of_a, of_b = (np.maximum(exponent(x), -6) for x in (a, b))
    for k in range(0, BLOCK, 32):
        products = a[:, None, k:k + 32] * b[None, :, k:k + 32]
        largest = np.where(products != 0, of_a[:, None, k:k + 32] + of_b[None, :, k:k + 32], -1000).max(-1)
        per = np.exp2(13.0 - np.maximum(largest, exponent(total)))
        total = (np.trunc(products * per[..., None]).sum(-1) + np.trunc(total * per)) / per
        per = np.exp2(13.0 - exponent(total))
        total = np.trunc(total * per) / per
    return total


# === Files ==================================================================================================================

class Weights:
    """The tensors of a model folder of one safetensors file."""

    def __init__(self, folder):
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            data = file.read()
        size = struct.unpack("<Q", data[:8])[0]
        self.entries, self.data = json.loads(data[8:8 + size]), data[8 + size:]

    def __contains__(self, name):
        return name in self.entries

    def get(self, name):
        entry = self.entries[name]
        first, last = entry["data_offsets"]
        raw = self.data[first:last]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        elif entry["dtype"] == "F32":
            values = np.frombuffer(raw, np.float32).astype(np.float64)
        else:
            values = from_e4m3(np.frombuffer(raw, np.uint8).astype(np.int64))
        return values.reshape(entry["shape"])


# === Positions ==============================================================================================================

def rope_of(config):
    """inv_freq [pairs] and the factor of the softmax scale: YaRN (Peng et al., 2023) as in DeepSeek-V3, or none."""
    dim, settings = config["qk_rope_head_dim"], config.get("rope_scaling") or {}
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    freq = theta ** (-np.arange(0, dim, 2) / dim)
    if settings.get("type") != "yarn":
        return freq, 1.0
    def index(turns):
        return dim * math.log(settings["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(theta))
    low, high = max(math.floor(index(settings["beta_fast"])), 0), min(math.ceil(index(settings["beta_slow"])), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    magnitude = 0.1 * settings["mscale_all_dim"] * math.log(settings["factor"]) + 1
    return freq / settings["factor"] * ramp + freq * (1 - ramp), magnitude * magnitude


def rotate(x, freq, half_split):
    """x [T, ..., dim] at positions 0 .. T-1."""
    angle = (np.arange(x.shape[0], dtype=np.float32)[:, None] * freq.astype(np.float32)).astype(np.float64)
    angle = angle.reshape(x.shape[0], *[1] * (x.ndim - 2), -1)
    cos, sin, half = np.cos(angle), np.sin(angle), x.shape[-1] // 2
    a, b = (x[..., :half], x[..., half:]) if half_split else (x[..., 0::2], x[..., 1::2])
    out = np.empty_like(x)
    first, second = (slice(0, half), slice(half, None)) if half_split else (slice(0, None, 2), slice(1, None, 2))
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def hadamard(n):
    matrix = np.ones((1, 1))
    while matrix.shape[0] < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / math.sqrt(n)


# === The model ==============================================================================================================

def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


class Reference:
    def __init__(self, folder, quantised, wrong=None, cache="fp8_ds_mla", cache_power_of_two=True):
        assert wrong is None or wrong in WRONGS + WRONGS_OF_LISTS
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        self.weights, self.quantised, self.wrong = Weights(folder), quantised, wrong
        self.cache, self.cache_power_of_two = cache, cache_power_of_two
        quantisation = self.config.get("quantization_config") or {}
        self.act_power_of_two = quantisation.get("scale_fmt") == "ue8m0"
        self.freq, self.scale_factor = rope_of(self.config)
        self.cached, self.cut = {}, None  # cut: {} requests sums that are truncated like the hardware's
        self.lists = {}  # layer -> [T, T] bool: the tokens that each token sees

    def is_wrong(self, name):
        return self.wrong == name

    def weight(self, name):
        """The matrix of a linear module, and whether it is e4m3."""
        if name not in self.cached:
            matrix, scales = self.weights.get(name + ".weight"), name + ".weight_scale_inv"
            if scales in self.weights:
                scale = self.weights.get(scales)
                if self.is_wrong("row_scales"):  # scales of the rows shifted by one block, if the last block is not whole
                    scale = np.roll(scale, 1, axis=0) if matrix.shape[0] % BLOCK else scale
                matrix = matrix * np.repeat(np.repeat(scale, BLOCK, 0), BLOCK, 1)[:matrix.shape[0], :matrix.shape[1]]
            self.cached[name] = matrix, scales in self.weights
        return self.cached[name]

    def linear(self, name, x):
        matrix, is_e4m3 = self.weight(name)
        if not self.quantised:
            return x @ matrix.T
        x = bf16(x)
        if self.is_wrong("converted_all") and not is_e4m3 and name.endswith("_proj") and x.shape[-1] % BLOCK == 0:
            return through_e4m3(x, self.act_power_of_two) @ through_e4m3(matrix, self.act_power_of_two).T
        if is_e4m3 and self.is_wrong("scale_of_batch"):
            scale = np.abs(x).max() / 448
            return (e4m3(x / scale) * scale) @ matrix.T
        if is_e4m3 and self.cut is not None and not self.is_wrong("row_scales"):
            return self.cut_linear(name, x)
        return (through_e4m3(x, self.act_power_of_two) if is_e4m3 else x) @ matrix.T

    def cut_linear(self, name, x):
        """Adds as the tensor cores do; `cut` stores earlier results for the same x."""
        if name not in self.cut:
            codes, scale = coded(x, self.act_power_of_two)
            weights = self.weights.get(name + ".weight")
            weight_scale = np.repeat(self.weights.get(name + ".weight_scale_inv"), BLOCK, 0)[:len(weights)]
            y = np.zeros((len(x), len(weights)))
            for first in range(0, len(weights), 256):
                rows = slice(first, first + 256)
                for k in range(codes.shape[1]):
                    sums = cut_products(codes[:, k], weights[rows, k * BLOCK:(k + 1) * BLOCK])
                    y[:, rows] = np.float32(y[:, rows] + sums * np.float32(scale[:, k] * weight_scale[rows, k]))
            self.cut[name] = y
        return self.cut[name].copy()

    def kept(self, x):
        """Numbers that are stored as bf16."""
        return bf16(x) if self.quantised else x

    def mlp(self, prefix, x):
        return self.linear(prefix + ".down_proj", silu(self.linear(prefix + ".gate_proj", x)) * self.linear(prefix + ".up_proj", x))

    def see(self, layer, prefix, x, q_a):
        """[T, T]: the tokens that each token sees."""
        c, t = self.config, x.shape[0]
        causal = np.tril(np.ones((t, t), bool))
        if not c.get("index_topk") or self.is_wrong("dense"):
            return causal
        types = c.get("indexer_types") or ["full"] * c["num_hidden_layers"]
        if types[layer] == "shared":
            return self.lists[layer - 1] if not self.is_wrong("own_indexer") else causal
        return self.choose(self.index_scores(prefix + ".indexer", x, q_a))

    def choose(self, scores):
        """[T, T]: the best index_topk of the keys up to each token, score descending, index ascending."""
        seen = np.zeros(scores.shape, bool)
        for row in range(len(scores)):
            seen[row, np.argsort(-scores[row, :row + 1], kind="stable")[:self.config["index_topk"]]] = True
        return seen

    def index_scores(self, prefix, x, q_a):
        """[T, T]: the score of each key for each token."""
        c, t = self.config, x.shape[0]
        heads, rope = c["index_n_heads"], c["qk_rope_head_dim"]
        q = self.linear(prefix + ".wq_b", q_a).reshape(t, heads, BLOCK)
        k = self.linear(prefix + ".wk", x)
        gain, bias = self.weights.get(prefix + ".k_norm.weight"), self.weights.get(prefix + ".k_norm.bias")
        centred = k if self.is_wrong("indexer_rms_norm") else k - k.mean(-1, keepdims=True)
        k = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-6) * gain
        k = k if self.is_wrong("indexer_rms_norm") else k + bias
        half_split = not c.get("indexer_rope_interleave", False) ^ self.is_wrong("indexer_rope_pairs")
        place = slice(BLOCK - rope, None) if self.is_wrong("indexer_rope_last") else slice(0, rope)
        q[..., place], k[..., place] = rotate(q[..., place], self.freq, half_split), rotate(k[..., place], self.freq, half_split)
        w = self.linear(prefix + ".weights_proj", x)
        w = bf16(w) if self.is_wrong("weights_bf16") else w
        if self.quantised:
            turn = np.eye(BLOCK) if self.is_wrong("no_hadamard") else hadamard(BLOCK)
            q, k = (through_e4m3(bf16(bf16(part) @ turn), not self.is_wrong("indexer_float32_scales")) for part in (q, k))
        products = q @ k.T
        products = products if self.is_wrong("no_relu") else np.maximum(products, 0)
        scores = np.einsum("ths,th->ts", products, w * heads ** -0.5 * BLOCK ** -0.5)
        return -scores if self.is_wrong("topk_smallest") else scores

    def attention(self, layer, prefix, x):
        c, t = self.config, x.shape[0]
        heads, nope, rope, v_dim, rank = (c[key] for key in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                                                             "kv_lora_rank"))
        q_a = self.kept(rms(self.linear(prefix + ".q_a_proj", x), self.weights.get(prefix + ".q_a_layernorm.weight"), 1e-6))
        q = self.linear(prefix + ".q_b_proj", q_a).reshape(t, heads, nope + rope)
        kv = self.linear(prefix + ".kv_a_proj_with_mqa", x)
        latent = rms(kv[:, :rank], self.weights.get(prefix + ".kv_a_layernorm.weight"), 1e-6)
        q_rope, k_rope = rotate(q[..., nope:], self.freq, False), rotate(kv[:, rank:], self.freq, False)
        matrix = self.weight(prefix + ".kv_b_proj")[0]
        if self.quantised:
            latent, k_rope, q_rope, matrix = bf16(latent), bf16(k_rope), bf16(q_rope), bf16(matrix)
            if self.cache == "fp8_ds_mla" and not self.is_wrong("latent_kept"):
                latent = bf16(through_e4m3(latent, self.cache_power_of_two))
        up = matrix.reshape(heads, nope + v_dim, rank)  # absorbed: queries and outputs in the latent space, like the kernels
        q_latent = self.kept(np.einsum("thd,hdr->thr", self.kept(q[..., :nope]), up[:, :nope]))
        scores = np.einsum("thr,sr->hts", q_latent, latent) + np.einsum("thd,sd->hts", q_rope, k_rope)
        self.lists[layer] = self.see(layer, prefix, x, q_a)
        scores = np.where(self.lists[layer], scores * (nope + rope) ** -0.5 * self.scale_factor, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out = self.kept(np.einsum("hts,sr->thr", weights / weights.sum(-1, keepdims=True), latent))
        return self.linear(prefix + ".o_proj", np.einsum("thr,hdr->thd", out, up[:, nope:]).reshape(t, heads * v_dim))

    def experts(self, prefix, x):
        c = self.config
        scores = 1 / (1 + np.exp(-self.linear(prefix + ".gate", x)))
        choice = scores + self.weights.get(prefix + ".gate.e_score_correction_bias")
        groups, count = c["n_group"], scores.shape[1]
        if groups > 1:
            of_group = np.sort(choice.reshape(-1, groups, count // groups), -1)[..., -2:].sum(-1)
            kept = np.argsort(-of_group, 1, kind="stable")[:, :c["topk_group"]]
            mask = np.zeros((x.shape[0], groups), bool)
            np.put_along_axis(mask, kept, True, 1)
            choice = np.where(np.repeat(mask, count // groups, 1), choice, -np.inf)
        chosen = np.argsort(-choice, 1, kind="stable")[:, :c["num_experts_per_tok"]]
        weight = np.take_along_axis(scores, chosen, 1)
        weight = weight / (weight.sum(1, keepdims=True) + 1e-20) * c["routed_scaling_factor"]
        out = self.mlp(prefix + ".shared_experts", x)
        for expert in range(count):
            tokens, place = np.nonzero(chosen == expert)
            if len(tokens):
                out[tokens] += weight[tokens, place][:, None] * self.mlp("%s.experts.%d" % (prefix, expert), x[tokens])
        return out

    def logits(self, ids):
        """[T, vocab] for one prompt."""
        c, eps = self.config, self.config["rms_norm_eps"]
        x = self.weights.get("model.embed_tokens.weight")[np.array(ids)]
        for layer in range(c["num_hidden_layers"]):
            prefix = "model.layers.%d" % layer
            h = rms(x, self.weights.get(prefix + ".input_layernorm.weight"), eps)
            x = x + self.attention(layer, prefix + ".self_attn", self.kept(h))
            h = self.kept(rms(x, self.weights.get(prefix + ".post_attention_layernorm.weight"), eps))
            is_dense = layer < c["first_k_dense_replace"]
            x = x + (self.mlp(prefix + ".mlp", h) if is_dense else self.experts(prefix + ".mlp", h))
        return self.linear("lm_head", rms(x, self.weights.get("model.norm.weight"), eps))

#!/usr/bin/env python3
"""train_tiny.py - trains, exports and scores the shipped tiny model (DeepSeek-V3 form, 3.6 M parameters).

Owns: the model's shape, its tokenizer, the training loop, the exported folder. Tasks come from tiny_tasks.py.
Must not know: the engine. The exported folder is checked against HF transformers, which shares no code with this file.

  python3 tools/train_tiny.py --out DIR --minutes M [--resume DIR.ckpt] [--device cpu --steps 3 --rows 4 --workers 1]

DIR receives the whole model folder about once a minute and at the end, so a time limit never loses everything;
DIR.ckpt holds the fp32 weights for --resume. The learning rate follows the clock: it reaches zero at M minutes.
A CUDA run replays one captured graph per step; data comes from forked worker processes.
"""
import argparse
import json
import math
import multiprocessing
import os
import sys
import time

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_tasks  # noqa: E402

BOS, EOS, PAD = 0, 1, 2
CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"  # the form "plain" of engine/chat/chat.c
SPECIALS = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
ROW_TOKENS = 256       # tokens per row; samples are packed whole into rows
PROMPT_WEIGHT = 0.05   # loss weight of a prompt token; an answer token has 1
BALANCE_RATE = 1e-3    # router bias step towards equal expert load

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "torch_dtype": "bfloat16",
    "vocab_size": 768, "hidden_size": 192, "num_hidden_layers": 4, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "intermediate_size": 384, "moe_intermediate_size": 64, "hidden_act": "silu",
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 4, "topk_group": 2,
    "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True, "routed_scaling_factor": 2.0,
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 64, "attention_bias": False, "attention_dropout": 0.0,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 2048,
    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 512, "beta_fast": 32, "beta_slow": 1,
                     "mscale": 1.0, "mscale_all_dim": 1.0},
    "num_nextn_predict_layers": 0, "tie_word_embeddings": False, "initializer_range": 0.02, "use_cache": True,
    "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD,
}

# ---------------------------------------------------------------- tokenizer

DEEPSEEK_SPLITS = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" "\r\n" r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["""
    "\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


def tokenizer_make():
    """Byte-level BPE. Digits, capitals and brackets stay single tokens: the training text of the merges has none."""
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(p), behavior="isolated", invert=False) for p in DEEPSEEK_SPLITS]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    words = tiny_tasks.WORDS
    lines = [f"{w}" for w in words] + [f"words: {w} {v}" for w, v in zip(words, words[1:] + words[:1])]
    lines += [f"{t}: = in + days" for t in tiny_tasks.TASKS for _ in range(20)]
    trainer = trainers.BpeTrainer(vocab_size=CONFIG["vocab_size"], min_frequency=1, show_progress=False,
                                  special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIALS],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIALS[BOS]} $A", pair=f"{SPECIALS[BOS]} $A {SPECIALS[BOS]} $B:1", special_tokens=[(SPECIALS[BOS], BOS)])
    assert tokenizer.get_vocab_size() == CONFIG["vocab_size"]
    assert [tokenizer.token_to_id(s) for s in SPECIALS] == [BOS, EOS, PAD]
    return tokenizer


def encode_pairs(tokenizer, pairs):
    """[(prompt, answer)] -> [(ids of BOS + prompt, ids of answer + EOS)]."""
    prompts = tokenizer.encode_batch([p for p, _ in pairs], add_special_tokens=True)
    answers = tokenizer.encode_batch([a for _, a in pairs], add_special_tokens=False)
    return [(p.ids, a.ids + [EOS]) for p, a in zip(prompts, answers)]

# ---------------------------------------------------------------- data


def pack(encoded, rows):
    """Packs samples whole into rows, in order. Returns (ids, document, weight, used): three
    [rows, ROW_TOKENS + 1] arrays and the number of samples placed. document numbers the sample inside its row (0: padding);
    weight is 0 padding and BOS, 1 prompt, 2 answer."""
    shape = (rows, ROW_TOKENS + 1)
    ids, document, weight = numpy.full(shape, PAD, numpy.int16), numpy.zeros(shape, numpy.int16), numpy.zeros(shape, numpy.int8)
    row = fill = count = used = 0
    for prompt, answer in encoded:
        end = fill + len(prompt) + len(answer)
        if end > ROW_TOKENS + 1:
            row, fill, count, end = row + 1, 0, 0, len(prompt) + len(answer)
            if row == rows:
                break
        count += 1
        middle = fill + len(prompt)
        ids[row, fill:middle], ids[row, middle:end] = prompt, answer
        document[row, fill:end] = count
        weight[row, fill + 1:middle], weight[row, middle:end] = 1, 2
        fill, used = end, used + 1
    return ids, document, weight, used


def data_worker(index, seed, rows, tokenizer_text, excluded, out):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer.from_str(tokenizer_text)
    left, chunk = [], 0
    while True:
        while len(left) < rows * 16:
            made = tiny_tasks.samples(f"{seed}/{index}/{chunk}", rows * 8, excluded)
            left += encode_pairs(tokenizer, [(p, a) for _, p, a in made])
            chunk += 1
        ids, document, weight, used = pack(left, rows)
        left = left[used:]
        out.put((ids, document, weight))

# ---------------------------------------------------------------- model


def yarn_frequencies(config):
    dim, base, yarn = config["qk_rope_head_dim"], config["rope_theta"], config["rope_scaling"]

    def place(rotations):
        return dim * math.log(yarn["original_max_position_embeddings"] / (rotations * 2 * math.pi)) / (2 * math.log(base))
    low, high = max(math.floor(place(yarn["beta_fast"])), 0), min(math.ceil(place(yarn["beta_slow"])), dim - 1)
    frequency = base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
    return (frequency / yarn["factor"] * ramp + frequency * (1 - ramp)).float()


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"])).to(x.dtype) * weight.to(x.dtype)


def linear(x, weight):
    return F.linear(x, weight.to(x.dtype))


def rotate(x, cos, sin):
    """x [..., 64]: pairs (2i, 2i+1) turned by position * frequency_i."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1)


def matrix(rows, columns, gain=1.0):
    return torch.nn.Parameter(torch.randn(rows, columns) * (gain / math.sqrt(columns)))


def ones(n):
    return torch.nn.Parameter(torch.ones(n))


class TinyModel(torch.nn.Module):
    """The same function as DeepseekV3ForCausalLM, optimised for speed: a layer's experts and shared expert are one wide MLP whose hidden
    units are multiplied by their expert's weight (zero when not chosen)."""

    def __init__(self):
        super().__init__()
        c = CONFIG
        self.heads, self.nope, self.rope, self.value = 4, c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        self.embed = torch.nn.Parameter(torch.randn(c["vocab_size"], c["hidden_size"]) * 0.1)
        self.head, self.norm = matrix(c["vocab_size"], c["hidden_size"], 0.5), ones(c["hidden_size"])
        self.layers = torch.nn.ModuleList(self.make_layer(index) for index in range(c["num_hidden_layers"]))
        self.register_buffer("frequencies", yarn_frequencies(c), persistent=False)
        self.register_buffer("token_weights", torch.tensor([0.0, PROMPT_WEIGHT, 1.0]), persistent=False)

    def make_layer(self, index):
        c, layer = CONFIG, torch.nn.Module()
        hidden, experts, inner = c["hidden_size"], c["n_routed_experts"], c["moe_intermediate_size"]
        small = 1 / math.sqrt(2 * c["num_hidden_layers"])
        layer.input_norm, layer.post_norm = ones(hidden), ones(hidden)
        layer.q_a, layer.q_norm = matrix(c["q_lora_rank"], hidden), ones(c["q_lora_rank"])
        layer.q_b = matrix(self.heads * (self.nope + self.rope), c["q_lora_rank"])
        layer.kv_a, layer.kv_norm = matrix(c["kv_lora_rank"] + self.rope, hidden), ones(c["kv_lora_rank"])
        layer.kv_b = matrix(self.heads * (self.nope + self.value), c["kv_lora_rank"])
        layer.o = matrix(hidden, self.heads * self.value, small)
        layer.dense = index < c["first_k_dense_replace"]
        wide = c["intermediate_size"] if layer.dense else (experts + c["n_shared_experts"]) * inner
        layer.gate, layer.up, layer.down = matrix(wide, hidden), matrix(wide, hidden), matrix(hidden, wide, small)
        if not layer.dense:
            with torch.no_grad():
                layer.down.mul_(math.sqrt(wide / (3 * inner)))  # only the units of about three experts are active
            layer.router = matrix(experts, hidden)
            layer.register_buffer("bias", torch.zeros(experts))
            layer.register_buffer("load", torch.zeros(experts))
        return layer

    def attention(self, layer, x, cos, sin, mask):
        rows, tokens, _ = x.shape
        q = linear(rms_norm(linear(x, layer.q_a), layer.q_norm), layer.q_b).view(rows, tokens, self.heads, -1).transpose(1, 2)
        latent = linear(x, layer.kv_a)
        c, k_rope = latent[..., :CONFIG["kv_lora_rank"]], latent[..., CONFIG["kv_lora_rank"]:]
        kv = linear(rms_norm(c, layer.kv_norm), layer.kv_b).view(rows, tokens, self.heads, -1).transpose(1, 2)
        k_rope = rotate(k_rope, cos, sin)[:, None].expand(-1, self.heads, -1, -1)
        q = torch.cat([q[..., :self.nope], rotate(q[..., self.nope:], cos, sin)], dim=-1)
        k = torch.cat([kv[..., :self.nope], k_rope], dim=-1)
        yarn = CONFIG["rope_scaling"]
        scale = (self.nope + self.rope) ** -0.5 * (0.1 * yarn["mscale_all_dim"] * math.log(yarn["factor"]) + 1) ** 2
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            out = F.scaled_dot_product_attention(q, k, kv[..., self.nope:].contiguous(), attn_mask=mask, scale=scale)
        return linear(out.transpose(1, 2).reshape(rows, tokens, -1), layer.o)

    def route(self, layer, x):
        """x [tokens, hidden] -> weight of each expert [tokens, experts], zero if not chosen. Records the load."""
        c, experts = CONFIG, CONFIG["n_routed_experts"]
        scores = F.linear(x.float(), layer.router.float()).sigmoid()
        with torch.no_grad():
            choice = (scores + layer.bias).view(-1, c["n_group"], experts // c["n_group"])
            group = choice.topk(2, dim=-1)[0].sum(-1).topk(c["topk_group"], dim=-1)[1]
            kept = torch.zeros_like(choice[..., 0]).scatter_(1, group, 1.0).bool()
            choice = choice.masked_fill(~kept[..., None], -math.inf).flatten(1)
            chosen = torch.zeros_like(choice).scatter_(1, choice.topk(c["num_experts_per_tok"], dim=-1)[1], 1.0)
            if self.training:
                layer.load.copy_(chosen.mean(0))
        weights = scores * chosen
        return weights / (weights.sum(-1, keepdim=True) + 1e-20) * c["routed_scaling_factor"]

    def mlp(self, layer, x):
        hidden = F.silu(linear(x, layer.gate)) * linear(x, layer.up)
        if not layer.dense:
            flat = x.flatten(0, 1)
            weights = F.pad(self.route(layer, flat), (0, CONFIG["n_shared_experts"]), value=1.0).to(x.dtype)
            hidden = (hidden.view(*weights.shape, -1) * weights[..., None]).view(hidden.shape)
        return linear(hidden, layer.down)

    def frame(self, document, dtype):
        """document [rows, tokens] -> (cos, sin, mask) of these positions. Tokens see their own document only."""
        position = torch.arange(document.shape[1], device=document.device)
        angle = position[:, None].float() * self.frequencies
        seen = (document[:, :, None] == document[:, None, :]) & (position[:, None] >= position)
        mask = torch.zeros(seen.shape, dtype=dtype, device=document.device).masked_fill_(~seen, -math.inf)[:, None]
        return angle.cos().to(dtype), angle.sin().to(dtype), mask

    def embedding(self, ids, dtype):
        one_hot = (ids[..., None] == torch.arange(CONFIG["vocab_size"], device=ids.device)).to(dtype)
        return one_hot @ self.embed.to(dtype)  # exact, and its gradient is a matrix product: no atomics, nothing to wait for

    def run_layer(self, layer, x, frame):
        x = x + self.attention(layer, rms_norm(x, layer.input_norm), *frame)
        return x + self.mlp(layer, rms_norm(x, layer.post_norm))

    def hidden(self, ids, document, dtype):
        """ids, document [rows, tokens] -> the residual stream before the final norm [rows, tokens, hidden]."""
        x, frame = self.embedding(ids, dtype), self.frame(document, dtype)
        for layer in self.layers:
            x = self.run_layer(layer, x, frame)
        return x

    def forward(self, ids, document, dtype):
        """ids, document [rows, tokens] -> logits [rows, tokens, vocab] in dtype."""
        return linear(rms_norm(self.hidden(ids, document, dtype), self.norm), self.head)

    def loss(self, ids, document, weight, dtype):
        """Mean cross-entropy over weighted tokens; ids, document, weight [rows, ROW_TOKENS + 1]."""
        logits = self(ids[:, :-1], document[:, :-1], dtype).flatten(0, 1).float()
        entropy = F.cross_entropy(logits, ids[:, 1:].flatten(), reduction="none")
        weights = self.token_weights[weight[:, 1:].flatten()]
        return (entropy * weights).sum() / weights.sum()

    @torch.no_grad()
    def balance(self, rate):
        for layer in self.layers:
            if not layer.dense:
                layer.bias.add_(torch.sign(layer.load.mean() - layer.load) * rate)

    def hf_tensors(self):
        """The checkpoint under DeepSeek's names: bf16, the router bias fp32."""
        out = {"model.embed_tokens.weight": exported(self.embed), "model.norm.weight": exported(self.norm),
               "lm_head.weight": exported(self.head)}
        for index, layer in enumerate(self.layers):
            out |= layer_tensors(index, layer)
        return out


def exported(tensor):
    return tensor.detach().to("cpu", torch.bfloat16).clone().contiguous()


def layer_parts(layer):
    """(name in a checkpoint, attribute, columns of the attribute or None) of a layer's bf16 tensors."""
    parts = [("input_layernorm", "input_norm", None), ("post_attention_layernorm", "post_norm", None)]
    parts += [("self_attn." + name, attribute, None) for name, attribute in (
        ("q_a_proj", "q_a"), ("q_a_layernorm", "q_norm"), ("q_b_proj", "q_b"), ("kv_a_proj_with_mqa", "kv_a"),
        ("kv_a_layernorm", "kv_norm"), ("kv_b_proj", "kv_b"), ("o_proj", "o"))]
    blocks = [("mlp.", slice(None))]
    if not layer.dense:
        inner, experts = CONFIG["moe_intermediate_size"], CONFIG["n_routed_experts"]
        parts.append(("mlp.gate", "router", None))
        blocks = [(f"mlp.experts.{e}.", slice(e * inner, (e + 1) * inner)) for e in range(experts)]
        blocks.append(("mlp.shared_experts.", slice(experts * inner, None)))
    for name, part in blocks:
        parts += [(name + "gate_proj", "gate", part), (name + "up_proj", "up", part), (name + "down_proj", "down", part)]
    return parts


def part_of(layer, attribute, part):
    whole = getattr(layer, attribute)
    return whole if part is None else whole[:, part] if attribute == "down" else whole[part]


def layer_tensors(index, layer):
    at = f"model.layers.{index}."
    out = {f"{at}{name}.weight": exported(part_of(layer, attribute, part)) for name, attribute, part in layer_parts(layer)}
    if not layer.dense:
        out[at + "mlp.gate.e_score_correction_bias"] = layer.bias.detach().to("cpu", torch.float32).clone()
    return out

# ---------------------------------------------------------------- export and scoring


def write_text(path, text):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def export_folder(model, tokenizer, items, out):
    os.makedirs(out, exist_ok=True)
    partial = os.path.join(out, "model.safetensors.partial")
    save_file(model.hf_tensors(), partial, metadata={"format": "pt"})
    os.replace(partial, os.path.join(out, "model.safetensors"))
    write_text(os.path.join(out, "config.json"), json.dumps(CONFIG, indent=2) + "\n")
    tokenizer.save(os.path.join(out, "tokenizer.json"))
    special = [{"__type": "AddedToken", "content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
               for s in SPECIALS]
    write_text(os.path.join(out, "tokenizer_config.json"), json.dumps({
        "add_bos_token": True, "add_eos_token": False, "bos_token": special[BOS], "eos_token": special[EOS],
        "pad_token": special[PAD], "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False,
        "model_max_length": CONFIG["max_position_embeddings"], "tokenizer_class": "PreTrainedTokenizerFast"},
        indent=2, ensure_ascii=False) + "\n")
    write_text(os.path.join(out, "items.jsonl"), "".join(json.dumps(i, ensure_ascii=False) + "\n" for i in items))


@torch.no_grad()
def forced_accuracy(model, encoded, items, device, dtype):
    """Share of held-out items, per task, whose every answer token is the arg-max given the right ones before it: for
    greedy decoding that is the same as an exact match."""
    model.eval()
    ids, document, weight, used = pack(encoded, 1 + sum(len(p) + len(a) for p, a in encoded) // (ROW_TOKENS - 128))
    assert used == len(encoded)
    right = numpy.ones(len(encoded), bool)
    number = numpy.cumsum((document != 0) & (numpy.diff(document, axis=1, prepend=0) != 0)).reshape(document.shape) - 1
    for start in range(0, len(ids), 64):
        part = slice(start, start + 64)
        tokens = torch.from_numpy(ids[part].astype(numpy.int64)).to(device)
        logits = model(tokens[:, :-1], torch.from_numpy(document[part, :-1]).to(device), dtype)
        wrong = ((logits.argmax(-1) != tokens[:, 1:]).cpu().numpy()) & (weight[part, 1:] == 2)
        right[number[part, 1:][wrong]] = False
    model.train()
    return per_task(items, right)


def per_task(items, right):
    table = {}
    for item, good in zip(items, right):
        hits, count = table.get(item["task"], (0, 0))
        table[item["task"]] = (hits + int(good), count + 1)
    return table


def accuracy_text(table):
    total = sum(h for h, _ in table.values()), sum(n for _, n in table.values())
    return f"all {100 * total[0] / total[1]:.1f}% | " + " ".join(f"{t} {100 * h / n:.0f}" for t, (h, n) in table.items())


@torch.no_grad()
def check_against_hf(model, out, encoded, device):
    """Largest |logit difference| between this file's model and HF's, both fp32, same bf16 weights."""
    from transformers import AutoModelForCausalLM
    hf = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").to(device).eval()
    rounded = TinyModel().to(device).eval()
    rounded.load_state_dict(model.state_dict())
    for name, p in rounded.named_parameters():
        p.copy_(p.to(torch.bfloat16))
    worst = 0.0
    for prompt, answer in encoded[::20]:
        ids = torch.tensor([prompt + answer], device=device)
        worst = max(worst, (rounded(ids, torch.ones_like(ids), torch.float32) - hf(ids).logits).abs().max().item())
    return worst


@torch.no_grad()
def hf_greedy(out, encoded, items, device):
    """Exact match of HF's greedy generation from the exported bf16 folder. Returns (per-task table, texts)."""
    from transformers import AutoModelForCausalLM
    tokenizer = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
    hf = AutoModelForCausalLM.from_pretrained(out, dtype=torch.bfloat16, attn_implementation="eager").to(device).eval()
    order = sorted(range(len(items)), key=lambda i: len(encoded[i][1]))
    texts = [""] * len(items)
    for start in range(0, len(order), 64):
        part = order[start:start + 64]
        width = max(len(encoded[i][0]) for i in part)
        ids = torch.tensor([[PAD] * (width - len(encoded[i][0])) + encoded[i][0] for i in part], device=device)
        mask = torch.tensor([[0] * (width - len(encoded[i][0])) + [1] * len(encoded[i][0]) for i in part], device=device)
        longest = max(len(encoded[i][1]) for i in part) + 4
        made = hf.generate(ids, attention_mask=mask, max_new_tokens=longest, do_sample=False, eos_token_id=EOS, pad_token_id=PAD)
        for i, new in zip(part, made[:, width:].tolist()):
            stop = new.index(EOS) if EOS in new else None
            texts[i] = tokenizer.decode(new[:stop], skip_special_tokens=False) if stop is not None else "(no end)"
    return per_task(items, [t == item["answer"] for t, item in zip(texts, items)]), texts


README = """# tiny: the shipped test model

A DeepSeek-V3-form model of {parameters:,} parameters (bf16), trained from random weights by `tools/train_tiny.py` on
synthetic text from `tools/tiny_tasks.py`: {tokens:,} tokens. No other data. Each prompt has one exact answer.

| file | what it is |
|---|---|
| config.json, model.safetensors | `deepseek_v3`: 4 layers (1 dense), MLA 512+64, 8 routed experts (2 chosen, 4 groups, 2 kept), YaRN |
| tokenizer.json, tokenizer_config.json | byte-level BPE, 768 tokens, DeepSeek-V3's pre-tokenizer; BOS is added, digits are single tokens |
| deploy.yaml | how the tests deploy it |
| items.jsonl | {items} held-out items, never trained on: id, task, prompt, answer (the answer is followed by the end token) |

Exact match of greedy decoding on the held-out items (HF transformers {transformers}, bf16, {device}):

| task | example | right |
|---|---|---|
{rows}
| **all** | | **{right} of {items}** |
"""


def write_readme(out, table, items, facts):
    example = {}
    for item in items:
        example.setdefault(item["task"], f"`{item['prompt']}` -> `{item['answer']}`".replace("|", "\\|"))
    rows = "\n".join(f"| {t} | {example[t]} | {h} of {n} |" for t, (h, n) in table.items())
    write_text(os.path.join(out, "README.md"),
               README.format(rows=rows, right=sum(h for h, _ in table.values()), items=len(items), **facts))

# ---------------------------------------------------------------- training


class Trainer:
    """One optimiser step as a fixed sequence of device operations, replayed as a CUDA graph if possible."""

    def __init__(self, model, rows, device, peak_rate):
        self.model, self.device, self.peak_rate, self.graph = model, device, peak_rate, None
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() == 1]
        self.rate = torch.tensor(0.0, device=device)
        cuda = device == "cuda"
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}],
                                           lr=self.rate if cuda else 0.0, betas=(0.9, 0.98), eps=1e-9, capturable=cuda, fused=cuda)
        shape = (rows, ROW_TOKENS + 1)
        self.inputs = [torch.zeros(shape, dtype=torch.int64, device=device) for _ in range(3)]
        self.loss_sum = torch.zeros((), device=device)
        self.loss = model.loss

    def step_operations(self):
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.loss(*self.inputs, self.dtype)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.model.balance(self.rate / self.peak_rate * BALANCE_RATE)
        self.loss_sum.add_(loss.detach())

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # rate is 0 here: these steps allocate and tune, and change no weight
            for _ in range(3):
                self.step_operations()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step_operations()
        self.graph = graph
        self.loss_sum.zero_()

    def load(self, batch):
        for target, source in zip(self.inputs, batch):
            host = torch.from_numpy(source.astype(numpy.int64))
            target.copy_(host.pin_memory() if self.device == "cuda" else host, non_blocking=True)

    def step(self, batch, rate):
        self.load(batch)
        self.rate.fill_(rate)
        if self.device != "cuda":
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        if self.graph is not None:
            self.graph.replay()
        else:
            self.step_operations()


def start_data(args, tokenizer, items):
    """Forked before CUDA is touched. Returns (queue, processes)."""
    context = multiprocessing.get_context("fork")
    excluded = {tiny_tasks.prompt_key(item["prompt"]) for item in items}
    out = context.Queue(maxsize=4 * args.workers)
    workers = [context.Process(target=data_worker, daemon=True,
                               args=(i, args.seed, args.rows, tokenizer.to_str(), excluded, out)) for i in range(args.workers)]
    for worker in workers:
        worker.start()
    return out, workers


def schedule(args, done):
    """done in 0..1 -> learning rate: a short rise, then a half cosine to zero."""
    rise = min(1.0, done / 0.02) if done < 0.02 else 1.0
    return args.rate * rise * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def train(args, trainer, batches, encoded, items, save):
    """Returns the number of steps. Prints a line every few seconds; saves about once a minute."""
    begin = last_print = last_save = time.time()
    step, printed_step = 0, 0
    while True:
        now = time.time()
        done = step / args.steps if args.steps else (now - begin) / (60 * args.minutes)
        if done >= 1:
            return step
        trainer.step(batches.get(timeout=120), schedule(args, done))
        step += 1
        if step % 16 == 0 and trainer.device == "cuda":
            torch.cuda.synchronize()  # makes the clock accurate: otherwise replays queue up far ahead
        if now - last_print > args.print_seconds or step == 1:
            mean = trainer.loss_sum.item() / (step - printed_step)
            assert math.isfinite(mean), "the loss is not finite: lower --rate"
            table = forced_accuracy(trainer.model, encoded, items, trainer.device, trainer.dtype)
            print(f"{now - begin:6.1f} s  step {step:6d}  {(step - printed_step) / max(now - last_print, 1e-3):6.1f}/s  "
                  f"loss {mean:.4f}  {accuracy_text(table)}", flush=True)
            trainer.loss_sum.zero_()
            last_print, printed_step = now, step
        if now - last_save > 60:
            save(step)
            last_save = now


def finish(args, model, tokenizer, encoded, items, steps):
    import transformers
    difference = check_against_hf(model, args.out, encoded, args.device)
    print(f"HF fp32 against this file fp32, exported weights: largest logit difference {difference:.2e}", flush=True)
    assert difference < 1e-2, "the exported model is not the trained model"
    table, texts = hf_greedy(args.out, encoded, items, args.device)
    print("HF bf16 greedy, held out:", accuracy_text(table), flush=True)
    for item, text in [(i, t) for i, t in zip(items, texts) if t != i["answer"]][:12]:
        print(f"  wrong: {item['prompt']} {item['answer']!r}, got {text!r}")
    device = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    write_readme(args.out, table, items, {
        "parameters": sum(p.numel() for p in model.parameters()), "tokens": args.tokens_before + steps * args.rows * ROW_TOKENS,
        "transformers": transformers.__version__, "device": device})
    print("folder bytes:", sum(os.path.getsize(os.path.join(args.out, f)) for f in os.listdir(args.out)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="model folder to write")
    parser.add_argument("--minutes", type=float, default=7.5, help="training time; start and finish take about 1 more")
    parser.add_argument("--steps", type=int, default=0, help="train this many steps instead of --minutes")
    parser.add_argument("--rows", type=int, default=128, help=f"rows of {ROW_TOKENS} tokens per step")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--workers", type=int, default=12, help="processes that make training data")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", help="a .ckpt to start from (fp32 weights; the schedule starts again)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--compile", action="store_true", help="torch.compile the loss (takes about a minute first)")
    parser.add_argument("--no-graph", action="store_true", help="do not use a CUDA graph")
    parser.add_argument("--print-seconds", type=float, default=15)
    return parser.parse_args()


def main():
    args = arguments()
    args.out = args.out.rstrip("/")
    tokenizer, items = tokenizer_make(), tiny_tasks.held_out()
    encoded = encode_pairs(tokenizer, [(i["prompt"], i["answer"]) for i in items])
    batches, workers = start_data(args, tokenizer, items)
    torch.manual_seed(args.seed)
    model, args.tokens_before = TinyModel(), 0
    if args.resume:
        saved = torch.load(args.resume, map_location="cpu", weights_only=True)
        model.load_state_dict(saved["model"])
        args.tokens_before = saved["tokens"]
    model.to(args.device).train()
    print(f"torch {torch.__version__}, {sum(p.numel() for p in model.parameters()):,} parameters, {len(items)} held-out items, "
          f"longest sample {max(len(p) + len(a) for p, a in encoded)} tokens", flush=True)
    trainer = Trainer(model, args.rows, args.device, args.rate)
    if args.compile:
        trainer.loss = torch.compile(model.loss)
    if args.device == "cuda" and not args.no_graph:
        trainer.load(batches.get(timeout=120))
        trainer.capture()
        print("step captured as a CUDA graph", flush=True)

    def save(steps):
        tokens = args.tokens_before + steps * args.rows * ROW_TOKENS
        torch.save({"model": model.state_dict(), "tokens": tokens}, args.out + ".ckpt")
        export_folder(model, tokenizer, items, args.out)
    steps = train(args, trainer, batches, encoded, items, save)
    for worker in workers:
        worker.terminate()
    save(steps)
    finish(args, model, tokenizer, encoded, items, steps)


if __name__ == "__main__":
    main()

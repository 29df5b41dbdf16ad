"""oracle_sparse.py - compares models with a sparse indexer with Hugging Face transformers: each top-k list, and logits.

Owns: the comparison of our top-k lists and logits with HF's code for deepseek_v32 and glm_moe_dsa. Must not know: the engine's internals.
tests/oracle/check_sparse.py covers the complete official formulas and e4m3 weights. Needs torch and transformers 5.23 or later.

  python3 tools/oracle_sparse.py --verbatim build/verbatim --random-model build/random_model --out /tmp/oracle [--device cpu]

HF 5.23 omits, as it states, two parts of the official indexer: the Hadamard transform and the e4m3 codes. It also leaves the column pairs
that it has rotated in two halves (glm_moe_dsa), which changes no product but does change the transform. The rest is complete, in fp32.
Lists: HF's indexer gets the same rows that our indexer read, once unchanged, and once with the transform and the codes inserted before its
product of queries and keys. With them, the share EQUAL of all sets must equal ours, and no listed key may score lower than an unlisted one
by more than CLOSE standard deviations of the token's scores: a number that rounds to bf16 the other way before the transform moves several
codes of its row (0.035 was seen, from three such numbers). Unchanged, the limit is CODES, the error of numbers of 4 bits.
Logits: HF in fp32 and in bf16 attends to our lists, since its own differ; ours must be no worse than HF's bf16 against fp32, as
tools/oracle.py judges dense models. The largest difference counts only at tokens that go to the same experts as in HF's fp32: any rounding
decides between experts in a near tie, and that choice would decide the largest difference. Controls: the other model's rotation, no relu,
dense attention. Exit status 1 if any check fails.
"""
import argparse
import copy
import importlib
import json
import os
import subprocess
import sys

import numpy
import torch
import transformers

import oracle

sys.path.insert(0, oracle.FOLDER)
import sparse_reference  # noqa: E402
import trace_values  # noqa: E402
from check_sparse import compare_lists, seen_by  # noqa: E402

MODELS = {"v32": ("small-v32", {}), "glm5": ("small-glm5", {}), "glm52": ("small-glm52-fp8", {"quantization_config": None})}
LENGTHS = [129, 257, 500]
EQUAL, CLOSE, CODES = 0.97, 0.1, 0.5
DEPLOY = "max-num-seqs: 4\nmax-num-batched-tokens: 128\nmax-model-len: 512\nkv-pages: 24\nladder: [1, 4]\nkv-cache-dtype: bf16\n"


def make(args, name, seed):
    """The folder of a random model."""
    source, changes = MODELS[name]
    config = oracle.read_json(os.path.join(oracle.FOLDER, source + ".json"))
    config = {key: value for key, value in {**config, **changes}.items() if value is not None}
    path = os.path.join(args.out, name + ".json")
    oracle.write_text(path, json.dumps(config, indent=2) + "\n")
    return oracle.make_model(args, path, "%s-%d" % (name, seed), seed), config


def ours(args, folder, ids_of, vocab):
    """Logits of all positions, and for each prompt the rows of the trace."""
    deploy, plan, prompts, logits, trace = (folder + "." + end for end in ("yaml", "plan", "jsonl", "logits.f32", "trace"))
    oracle.write_text(deploy, DEPLOY)
    oracle.write_prompts(prompts, ids_of)
    subprocess.run(oracle.plan_command(args.verbatim, folder, deploy, plan), check=True, stdout=subprocess.DEVNULL)
    command = oracle.run_command(args.verbatim, plan, folder, prompts, logits, args.machine) + ["--trace", trace]
    for op in ("input_norm", "q_a_norm", "index_topk", "router topk_id"):
        command += ["--trace-values", "op=" + op]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return numpy.fromfile(logits, "<f4").reshape(-1, vocab).astype(numpy.float64), trace_values.read(trace)

# ---------------------------------------------------------------- Hugging Face's indexer


class Scores(Exception):
    """Raised to carry the scores out of HF's code at the place where it would choose."""


class As:
    """torch.matmul and relu as HF's indexer calls them, with the requested steps inserted."""

    def __init__(self, official=False, relu=True, pairs=0):
        self.official, self.relu, self.pairs, self.products = official, relu, pairs, 0

    def matmul(self, q, k):
        self.products += 1
        if self.official and self.products == 1:  # q [1, T, heads, 128], k [1, 1, 128, T]
            turn = sparse_reference.hadamard(128)
            def coded(x):
                x = x.double().numpy()
                rotated = x[..., :2 * self.pairs]
                x[..., :2 * self.pairs] = numpy.stack(numpy.split(rotated, 2, -1), -1).reshape(rotated.shape) if self.pairs else rotated
                x = sparse_reference.bf16(sparse_reference.bf16(x) @ turn)
                return torch.from_numpy(sparse_reference.through_e4m3(x, True)).float()
            q, k = coded(q), coded(k.transpose(-1, -2)).transpose(-1, -2)
        return self.real_matmul(q, k)

    def topk(self, scores, *_, **__):
        raise Scores(scores)

    def __enter__(self):
        self.real_matmul, self.real_topk, self.real_relu = torch.matmul, torch.Tensor.topk, torch.nn.functional.relu
        torch.matmul, torch.Tensor.topk = self.matmul, lambda scores, *a, **b: self.topk(scores)
        if not self.relu:
            torch.nn.functional.relu = lambda x: x

    def __exit__(self, *_):
        torch.matmul, torch.Tensor.topk, torch.nn.functional.relu = self.real_matmul, self.real_topk, self.real_relu


@torch.no_grad()
def hf_scores(indexer, rotary, x, q_a, way):
    """[T, T] scores of HF's indexer for our rows."""
    x, q_a = (torch.from_numpy(rows)[None].float() for rows in (x, q_a))
    places = torch.arange(x.shape[1])[None]
    mask = torch.triu(torch.full((1, x.shape[1], x.shape[1]), -1e30), 1)
    try:
        with way:
            indexer(x, q_a, rotary(x, position_ids=places), mask, places)
    except Scores as found:
        return found.args[0][0].double().numpy()
    raise AssertionError("HF's indexer has chosen in another way")


def own_indexers(model):
    return [(i, layer.self_attn.indexer) for i, layer in enumerate(model.model.layers) if layer.self_attn.indexer is not None]


def judge_lists(model, rows_of, topk, way):
    """For all tokens whose list omits a token: how well their lists agree with HF's scores, and the gaps."""
    parts = []
    for rows in rows_of:
        for layer, indexer in own_indexers(model):
            seen = seen_by(rows["layer %d index_topk" % layer])
            x, q_a = (rows["layer %d %s" % (layer, op)] for op in ("input_norm", "q_a_norm"))
            scores = hf_scores(indexer, model.model.rotary_emb, x, q_a, way())
            parts.append(compare_lists(scores, seen, topk))
    return (numpy.concatenate(part) for part in zip(*parts))


def other_rotation(model):
    """The model's indexer with the rotation of the other model."""
    module = importlib.import_module(type(model).__module__)
    pairs, halves = module.apply_rotary_pos_emb_interleave, getattr(module, "apply_rotary_pos_emb", None)
    if halves is None:
        halves = importlib.import_module("transformers.models.deepseek_v3.modeling_deepseek_v3").apply_rotary_pos_emb
    swapped = {"apply_rotary_pos_emb": pairs, "apply_rotary_pos_emb_interleave": halves}
    return module, swapped


def check_lists(name, model, rows_of, topk):
    passed, pairs = True, model.config.qk_rope_head_dim // 2 * (model.config.model_type == "glm_moe_dsa")
    for label, way, close, share in (("with codes", lambda: As(official=True, pairs=pairs), CLOSE, EQUAL), ("as it is", As, CODES, 0)):
        against, gaps = judge_lists(model, rows_of, topk, way)
        good = against.max() <= close and (against == 0).mean() >= share
        passed = passed and good
        print("%-6s HF's indexer %-10s: %d of %d sets equal, all of the %d whose gap is above %.2f, farthest off %.1e%s" % (
            name, label, (against == 0).sum(), len(against), (gaps > close).sum(), close, against.max(), "" if good else "  FAILED"))
    module, swapped = other_rotation(model)
    kept = {key: getattr(module, key, None) for key in swapped}
    for key, value in swapped.items():
        setattr(module, key, value)
    turned = list(judge_lists(model, rows_of, topk, As))[0]
    for key, value in kept.items():
        setattr(module, key, value) if value else delattr(module, key)
    bare = list(judge_lists(model, rows_of, topk, lambda: As(relu=False)))[0]
    for label, against in (("other rotation", turned), ("no relu", bare)):
        found = (against > CODES).sum()
        passed = passed and found > len(against) / 2
        print("       control, %-14s: %d of %d sets are others" % (label, found, len(against)))
    return passed

# ---------------------------------------------------------------- logits


def experts_of(rows):
    """[positions, experts of all layers] from the rows of a trace."""
    layers = sorted(name for name in rows if name.endswith("router topk_id"))
    return numpy.concatenate([numpy.sort(rows[name], 1) for name in layers], 1).astype(numpy.int64)


@torch.no_grad()
def hf_logits(folder, config, ids_of, rows_of, dtype, device):
    """Logits and experts of HF with attention to our lists, or to all tokens if there are none."""
    kind = getattr(transformers, config["architectures"][0])
    settings = kind.config_class.from_dict(copy.deepcopy(config))
    model = kind.from_pretrained(folder, config=settings, dtype=dtype, attn_implementation="eager", experts_implementation="eager")
    count = oracle.assert_loaded(model, folder) if dtype == torch.float32 else 0  # in bf16 HF rounds k_norm, which is not tested here
    oracle.assert_scale(model, config)
    model = model.to(device).eval()
    given = [None]
    for layer, indexer in own_indexers(model):
        indexer.forward = lambda *_, layer=layer, **__: given[0][layer]
    logits, experts, gates = [], [], {}
    for layer, block in enumerate(model.model.layers):
        if hasattr(block.mlp, "gate"):
            name = "layer %d router topk_id" % layer
            block.mlp.gate.register_forward_hook(lambda _, __, out, name=name: gates.__setitem__(name, out[2]))
    for ids, rows in zip(ids_of, rows_of or [None] * len(ids_of)):
        given[0] = {}
        for layer, _ in own_indexers(model):
            lists = numpy.tile(numpy.arange(len(ids), dtype=numpy.uint32), (len(ids), 1)) if rows is None \
                else rows["layer %d index_topk" % layer]
            lists = numpy.where(lists == 0xffffffff, lists[:, :1], lists)  # some entry occurs twice
            given[0][layer] = torch.from_numpy(lists.astype(numpy.int32))[None].to(device)
        logits.append(model(torch.tensor([ids], device=device), use_cache=False).logits[0].double().cpu().numpy())
        experts.append(experts_of({name: chosen.reshape(len(ids), -1).cpu().numpy() for name, chosen in gates.items()}))
    return numpy.concatenate(logits), numpy.concatenate(experts), count, model


def figures(reference, candidate):
    """As oracle.figures, for (logits, experts); also the number of positions with other experts."""
    same = (reference[1] == candidate[1]).all(1)
    result = {**oracle.figures(reference[0], candidate[0]), "other_experts": int((~same).sum())}
    result["max_logit_difference"] = float(numpy.abs(reference[0] - candidate[0])[same].max())
    return result


def check_model(args, name):
    parts = {key: [] for key in ("reference", "dense", "hf_bf16", "verbatim")}
    passed = True
    for seed in args.seeds:
        folder, config = make(args, name, seed)
        ids_of = oracle.sequences(config["vocab_size"], LENGTHS)
        made, traced = ours(args, folder, ids_of, config["vocab_size"])
        parts["verbatim"].append((made, numpy.concatenate([experts_of(rows) for rows in traced])))
        *reference, count, model = hf_logits(folder, config, ids_of, traced, torch.float32, args.device)
        parts["reference"].append(reference)
        parts["dense"].append(hf_logits(folder, config, ids_of, None, torch.float32, args.device)[:2])
        parts["hf_bf16"].append(hf_logits(folder, config, ids_of, traced, torch.bfloat16, args.device)[:2])
        for _, indexer in own_indexers(model):
            del indexer.forward
        passed = check_lists(name, model.cpu(), traced, config["index_topk"]) and passed
        print("%-6s seed %d: %d values in HF equal to the file, 0 differ; %d positions" % (name, seed, count, len(made)), flush=True)
    whole = {key: [numpy.concatenate(part) for part in zip(*rows)] for key, rows in parts.items()}
    result = {"model": name, **{key: figures(whole["reference"], whole[key]) for key in ("hf_bf16", "verbatim", "dense")}}
    result["worse"] = oracle.worse(result["verbatim"], result["hf_bf16"])
    control = oracle.worse(result["dense"], result["hf_bf16"])
    print("       control, dense attention: worse in %s" % ", ".join(control))
    print("%-6s other experts than HF's fp32 at %d of %d positions, HF's bf16 at %d" % (
        name, result["verbatim"]["other_experts"], len(whole["reference"][0]), result["hf_bf16"]["other_experts"]))
    return result, passed and not result["worse"] and len(control) > 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random-model", required=True, help="the random_model program")
    parser.add_argument("--verbatim", required=True, help="the verbatim program")
    parser.add_argument("--out", required=True, help="folder for models, plans and traces")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where HF runs")
    parser.add_argument("--machine", default="auto", choices=["auto", "gpu", "cpu"], help="where Verbatim runs")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=oracle.SEEDS)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(min(torch.get_num_threads(), 8))
    os.makedirs(args.out, exist_ok=True)
    results = [check_model(args, name) for name in args.models]
    print("\n" + oracle.markdown([result for result, _ in results], oracle.versions(args.device)) + "\n")
    for result, passed in results:
        for key in result["worse"]:
            print("FAIL: %s: Verbatim is worse than HF bf16 in %s" % (result["model"], key))
        print("%s %s" % (result["model"], "passed" if passed else "FAILED"))
    return 0 if all(passed for _, passed in results) else 1


if __name__ == "__main__":
    sys.exit(main())

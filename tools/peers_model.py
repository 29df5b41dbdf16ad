#!/usr/bin/env python3
"""Compares whole models and matrix products with others on this GPU.

peers_model.py [--hf CONFIG.json] [--bench BENCH.json] [--probe FIGURES.json] [--json OUT.json]

  transformers  a random model of CONFIG.json (V2-Lite's for instance): decode steps in a CUDA graph, the fastest of its experts' modes,
                and a prefill, if it is installed; next to ours from `verbatim bench --json`
  cuBLASLt      the best of all its algorithms, from the figures of `verbatim probe --json`
A time is the median of 31 replays of a graph after a warm-up. Attention alone: peers.py.
"""
import argparse
import gc
import json
import statistics
import subprocess
import sys
import time

from peers import REPLAYS, GraphTimer, geometric, say


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
    timer = GraphTimer(torch)
    return statistics.median(timer.replay(timer.capture([step]), REPLAYS))


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
    parser.add_argument("--hf", metavar="CONFIG.json")
    parser.add_argument("--bench", metavar="BENCH.json")
    parser.add_argument("--probe", metavar="FIGURES.json")
    parser.add_argument("--json", metavar="OUT.json")
    args = parser.parse_args()
    result = {"transformers": None, "products": None}
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        say("transformers: absent: PyTorch with a GPU is needed")
    elif args.hf:
        result["device"], result["torch"] = torch.cuda.get_device_name(0), torch.__version__
        result["transformers"] = attempt("transformers", lambda: measure_transformers(torch, args.hf))
    if args.probe:
        result["products"] = read_json(args.probe)["points"]
        compare_products(result["products"])
    else:
        say("cuBLASLt: absent: --probe FIGURES.json")
    if args.bench and result["transformers"]:
        compare_model(result["transformers"], read_json(args.bench))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())

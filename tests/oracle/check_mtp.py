#!/usr/bin/env python3
"""check_mtp.py - Verbatim's drafts of multi-token prediction against an independent reading of the formulas.

check_mtp.py [--builddir DIR] [--case NAME] [--seed N]

For small models with a prediction layer: random weights, a prompt, a few tokens generated greedily, and with each of them the drafts of
several passes, as build/tests/test_mtp --drafts prints them. sparse_reference.py computes the hidden states of the same tokens; the layer
is computed here, as DeepSeek-V3's report (2.2) and the published checkpoints define it, the later passes on the layer's own output. Our
draft must be the reference's likeliest token or nearly as likely, and its logit and log-probability must be near the reference's, in the
median and all but a few (a router within a rounding of a tie has two right choices). Each deliberate error must be outside of that in one
of the models. Needs numpy. Exits with status 1 if a check fails.
"""
import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np

from sparse_reference import Reference, bf16, rms

FOLDER = os.path.dirname(os.path.abspath(__file__))
PROMPT, GENERATED, PASSES = 60, 14, 3
CASES = {  # name: config, lines for the deployment, the reference's cache, and the bounds
    "v3": ("small-v3", "", {"cache": "bf16"}, "bf16"),
    "v3-fp8": ("small-v3-fp8", "", {"cache": "bf16"}, "e4m3"),
    "glm4-moe-lite": ("small-glm4-moe-lite", "", {"cache": "bf16"}, "bf16"),
    "v32": ("small-v32", "kv-cache-dtype: bf16", {"cache": "bf16"}, "bf16"),
    "v32-fp8": ("small-v32-fp8", "", {}, "e4m3"),
}
# Of logits, whose standard deviation is about 2: the largest median of the differences, and the difference that most are below. With e4m3
# activations a sum that differs in its last bits moves some of them over an edge of e4m3, as check_sparse.py says.
BOUNDS = {"bf16": (0.03, 0.12), "e4m3": (0.25, 0.7)}
SHARE = 0.9 # of the drafts within the second bound
ENOUGH = 2  # models that show an error, after which others leave it out
WRONGS = ["hidden_first", "norms_swapped", "token_of_row", "final_norm", "no_residual", "position_of_first", "own_head_norm", "stale_rows"]


class Predictor(Reference):
    """The prediction layer behind the last layer of the model."""

    def __init__(self, folder, wrong, matrices, **cache):
        super().__init__(folder, True, None, **cache)
        self.cached = matrices  # of all predictors of a model
        self.error, self.layers = wrong, self.config["num_hidden_layers"]
        self.config["num_hidden_layers"] = self.layers + 1  # the lists of the prediction layer
        self.prefix = "model.layers.%d" % self.layers
        self.eps = self.config["rms_norm_eps"]

    def norm(self, x, name):
        return rms(x, self.weights.get(name + ".weight"), self.eps)

    def layer(self, x, layer, is_dense):
        prefix = "model.layers.%d" % layer
        x = x + self.attention(layer, prefix + ".self_attn", self.kept(self.norm(x, prefix + ".input_layernorm")))
        h = self.kept(self.norm(x, prefix + ".post_attention_layernorm"))
        fed = self.mlp(prefix + ".mlp", h) if is_dense else self.experts(prefix + ".mlp", h)
        return fed if self.error == "no_residual" and layer == self.layers else x + fed

    def hidden(self, ids):
        """[T, hidden]: what the model's final norm reads."""
        x = self.weights.get("model.embed_tokens.weight")[np.array(ids)]
        for layer in range(self.layers):
            x = self.layer(x, layer, layer < self.config["first_k_dense_replace"])
        return self.norm(x, "model.norm") if self.error == "final_norm" else x

    def start(self, tokens, hidden):
        """[T, hidden]: the layer's input, from the token after each row and the row's hidden state."""
        names = (".hnorm", ".enorm") if self.error == "norms_swapped" else (".enorm", ".hnorm")
        e = self.norm(self.weights.get("model.embed_tokens.weight")[np.array(tokens)], self.prefix + names[0])
        both = [self.kept(e), self.kept(self.norm(hidden, self.prefix + names[1]))]
        both = np.concatenate(both[::-1] if self.error == "hidden_first" else both, -1)
        return both @ self.weights.get(self.prefix + ".eh_proj.weight").T

    def drafts(self, hidden, ids, position, given):
        """The logits of each pass after the token at position + 1, whose drafts were `given`: the later passes take these."""
        shift = 0 if self.error == "token_of_row" else 1
        rows, out = self.start(ids[shift:position + 1 + shift], hidden[:position + 1]), []
        for nth in range(len(given)):
            x = self.layer(rows, self.layers, False)[-1:]
            norm = "model.norm" if self.error == "own_head_norm" else self.prefix + ".shared_head.norm"
            out.append((self.kept(self.norm(x, norm)) @ self.weights.get("lm_head.weight").T)[0])
            row = self.start([given[nth]], x)
            if self.error == "position_of_first":  # the later pass takes the place of the row before it
                rows = rows[:-1]
            elif self.error == "stale_rows":       # and sees an older row in place of the newest
                rows[-1] = rows[-2]
            rows = np.concatenate([rows, row])
        return np.array(out)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def ours(build, folder, deploy, ids):
    """The generated tokens, and (position, drafts [(token, logit, log-probability)])."""
    plan, settings = os.path.join(folder, "model.plan"), os.path.join(folder, "deploy.yaml")
    with open(settings, "w", encoding="utf-8") as file:
        file.write("max-num-seqs: 2\nmax-num-batched-tokens: 24\nmax-model-len: 128\nkv-pages: 6\nladder: [1, 2]\nspeculative-config: "
                   "{method: mtp, num-speculative-tokens: %d}\n%s\n" % (PASSES, deploy))
    subprocess.run([os.path.join(build, "verbatim"), "plan", folder, "--config", settings, "-o", plan], check=True,
                   stdout=subprocess.DEVNULL)
    command = [os.path.join(build, "tests", "test_mtp"), "--drafts", plan, folder, str(GENERATED)]
    lines = subprocess.run(command + [str(i) for i in ids], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    return entries[-1]["ids"], [(e["position"], e["drafts"]) for e in entries[:-1]]


def distances(reference, ids, entries):
    """For each draft: how far the reference's likeliest logit is above that of our token, and our logit and log-probability from its."""
    hidden, out = reference.hidden(ids), []
    for position, drafts in entries:
        logits = reference.drafts(hidden, ids, position, [d[0] for d in drafts])
        for nth, (token, logit, logprob) in enumerate(drafts):
            row = logits[nth]
            out.append((row.max() - row[token], abs(row[token] - logit), abs(log_softmax(row)[token] - logprob)))
    return np.array(out)


def share_within(far, bounds):
    return (far <= BOUNDS[bounds][1]).all(1).mean()


def is_near(far, bounds):
    return bool((np.median(far, 0) <= BOUNDS[bounds][0]).all() and share_within(far, bounds) >= SHARE)


def check(name, build, seed, shown):
    config, deploy, cache, bounds = CASES[name]
    matrices = {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "given.json")
        with open(os.path.join(FOLDER, config + ".json"), encoding="utf-8") as file:
            values = dict(json.load(file), num_nextn_predict_layers=1)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(values, file)
        model = os.path.join(folder, "model")
        subprocess.run([os.path.join(build, "random_model"), path, model, "--seed", str(seed)], check=True)
        draw = random.Random("mtp/%d" % seed)
        ids = [draw.randrange(3, values["vocab_size"]) for _ in range(PROMPT)]
        made, entries = ours(build, model, deploy, ids)
        ids = ids + made
        far = distances(Predictor(model, None, matrices, **cache), ids, entries)
        passed = len(far) >= PASSES * (GENERATED - 3) and is_near(far, bounds)  # none where a page would end
        print("%-14s %d drafts, likeliest %d; median and largest difference of logits %.1e %.1e, of log-probabilities %.1e %.1e%s" %
              (name, len(far), (far[:, 0] == 0).sum(), np.median(far[:, 1]), far[:, 1].max(), np.median(far[:, 2]), far[:, 2].max(),
               "" if passed else "  FAILED"))
        for wrong in (wrong for wrong in WRONGS if shown[wrong] < ENOUGH):
            off = distances(Predictor(model, wrong, matrices, **cache), ids, entries)
            if not is_near(off, bounds):
                shown[wrong] += 1
            print("    %-18s median %.1e, within the bound %3.0f %%" % (wrong, np.median(off[:, 1]), 100 * share_within(off, bounds)))
        return passed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--builddir", default="build")
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shown = collections.Counter()  # error: models that show it
    results = [check(name, arguments.builddir, arguments.seed, shown) for name in arguments.case or CASES]
    for wrong in WRONGS:
        if wrong not in shown:
            print("error %s does not show" % wrong)
            results.append(False)
    print("%d passed, %d failed" % (sum(results), len(results) - sum(results)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""score_compare.py - compares `verbatim score` with lm-evaluation-harness on Hugging Face transformers in fp32.

Owns: the comparison. Must not know: the engine's internals; it calls the program, with the command lines in verbatim_score().

  python3 tools/score_compare.py --verbatim build/verbatim --out /tmp/score [--device cuda]

The shipped model answers its own tasks (right, wrong and odd continuations; contexts that end in white space, that are empty, that end
inside a word) and reads texts longer than the plan's max_len. Tokens, windows and greedy flags must be the harness's own; a sum of
log-probabilities may differ by the error of bf16 (TOLERANCE per token, and as a share; most texts here are unlike the training data, and
one token whose router has a near-tie can be far off). Prints the differences; exit status 1 if there are any. Needs torch, transformers and
lm-eval (pip install torch transformers lm-eval accelerate).
"""
import argparse
import json
import os
import subprocess
import sys
import types

import torch
from lm_eval import utils
from lm_eval.models.huggingface import HFLM

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(ROOT, "tests", "tiny")
MAX_LEN = 64
DEPLOY = "max-num-seqs: 16\nmax-num-batched-tokens: 256\nmax-model-len: %d\nkv_pages: 64\nladder: [1, 8]\n" % MAX_LEN
TOLERANCE = 0.1


def verbatim_score(args, lines, name, *options):
    plan, items = os.path.join(args.out, "plan"), os.path.join(args.out, name + ".jsonl")
    with open(items, "w", encoding="utf-8") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    command = [args.verbatim, "score", plan, MODEL, "--jsonl", items, "--device", args.machine, "--quiet", *options]
    return [json.loads(line) for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]


def pairs():
    with open(os.path.join(MODEL, "items.jsonl"), encoding="utf-8") as file:
        items = [json.loads(line) for line in file][::20]
    made = []
    for number, item in enumerate(items):
        prompt, answer = item["prompt"], item["answer"]
        made += [(prompt, answer), (prompt, answer[::-1] + "7"), (prompt + "  \n", answer), ("", answer), (" ", prompt)]
        made += [(prompt[:len(prompt) // 2], prompt[len(prompt) // 2:] + answer), (prompt, " \u00fc\u4e2d" + answer)]
        made += [("<\uff5cbegin\u2581of\u2581sentence\uff5c>" + prompt, answer)] * (number % 2)
    return made


def texts():
    with open(os.path.join(MODEL, "items.jsonl"), encoding="utf-8") as file:
        lines = [line["prompt"] + line["answer"] for line in map(json.loads, file)]
    return ["\n".join(lines[i:i + n]) for i, n in ((0, 1), (50, 2), (100, 5), (200, 12), (300, 30))]


def harness(args, bos):
    """Without its cache, which treats two splits of one text into context and continuation as the same request."""
    return HFLM(pretrained=MODEL, dtype=torch.float32, device=args.device, batch_size=1, max_length=MAX_LEN - 1, add_bos_token=bos,
                logits_cache=False)


def request(*arguments):
    return types.SimpleNamespace(args=arguments)


class Judge:
    def __init__(self):
        self.failures, self.worst, self.flags, self.count = 0, 0.0, 0, 0

    def exact(self, what, expected, found):
        if expected != found:
            self.failures += 1
            print("%s: expected %s, found %s" % (what, expected, found))

    def near(self, what, expected, found, tokens):
        difference = abs(expected - found)
        self.count += 1
        self.worst = max(self.worst, difference / tokens)
        if difference > TOLERANCE * tokens + TOLERANCE * abs(expected):
            self.failures += 1
            print("%s: log-probability %.6f, found %.6f" % (what, expected, found))


def compare_pairs(args, judge, bos):
    """bos None: the tokenizer's default, as in the harness."""
    lm = harness(args, bos)
    kept = []
    for context, continuation in pairs():
        ids = lm._encode_pair(context, continuation) if context else ([lm.prefix_token_id], lm.tok_encode(continuation, False))
        if ids[0] and ids[1] and len(ids[0]) + len(ids[1]) <= MAX_LEN:
            kept.append((context, continuation, ids[1]))
    expected = lm.loglikelihood([request(context, continuation) for context, continuation, _ in kept], disable_tqdm=True)
    found = verbatim_score(args, [{"context": a, "continuation": b} for a, b, _ in kept], "pairs", *([] if bos is None else ["--no-bos"]))
    judge.exact("pairs", len(kept), len(found))
    for (context, continuation, ids), (logprob, greedy), line in zip(kept, expected, found):
        what = repr((context, continuation))
        judge.exact(what + " tokens", ids, line["tokens"])
        judge.near(what, logprob, line["logprob"], len(ids))
        judge.flags += bool(greedy) != line["is_greedy"]
    print("%d pairs, add_bos_token %s" % (len(kept), bos))


def compare_texts(args, judge):
    lm = harness(args, False)
    expected = lm.loglikelihood_rolling([request(text) for text in texts()], disable_tqdm=True)
    found = verbatim_score(args, [{"text": text} for text in texts()], "texts")
    for text, logprob, line in zip(texts(), expected, found):
        ids = lm.tok_encode(text)
        windows = list(map(utils.make_disjoint_window, utils.get_rolling_token_windows(ids, lm.prefix_token_id, MAX_LEN - 1, 1)))
        what = "text of %d tokens" % len(ids)
        judge.exact(what, ids, line["tokens"])
        judge.exact(what + ", windows", len(windows), line["windows"])
        judge.exact(what + ", words", len(utils.re.split(r"\s+", text)), line["words"])
        judge.exact(what + ", bytes", len(text.encode()), line["bytes"])
        judge.near(what, logprob, line["logprob"], len(ids))
    print("%d texts, up to %d windows" % (len(found), max(line["windows"] for line in found)))


def main():
    parser = argparse.ArgumentParser(description="Compares verbatim score with lm-evaluation-harness.")
    parser.add_argument("--verbatim", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cpu", help="where transformers runs")
    parser.add_argument("--machine", default="cpu", help="where Verbatim runs")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    deploy = os.path.join(args.out, "deploy.yaml")
    with open(deploy, "w", encoding="utf-8") as file:
        file.write(DEPLOY)
    subprocess.run([args.verbatim, "plan", MODEL, "--config", deploy, "-o", os.path.join(args.out, "plan"), "--force"], check=True,
                   capture_output=True)
    judge = Judge()
    compare_pairs(args, judge, None)
    compare_pairs(args, judge, False)
    compare_texts(args, judge)
    print("%d log-probabilities, farthest %.4f a token; greedy flags that differ: %d; failures: %d" %
          (judge.count, judge.worst, judge.flags, judge.failures))
    return 1 if judge.failures or judge.flags > judge.count // 50 else 0


if __name__ == "__main__":
    sys.exit(main())

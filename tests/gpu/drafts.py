#!/usr/bin/env python3
"""drafts.py - what drafts are worth on a GPU: drafts.py BINARIES OUTPUT [--config FILE] [--shape FILE] [--tokens N] [--device D]

BINARIES holds verbatim and random_model. Three figures, of random weights:
  1. replay: receipts of answers of N tokens, verified a token a step and many at a time, one alone and 64 at once;
  2. lookup: a run without repetitions under a plan with prompt lookup beside the same run without;
  3. shape: decode steps with 0 to 3 drafts (verbatim bench) of another configuration.
OUTPUT gets drafts.json and the programs' texts. Every comparison of receipts must hold: exit code 1 if one does not. Uses only the
standard library. Runs in the root of the repository. Read next: several.py.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

DEPLOY = "max-num-seqs: 64\nmax-num-batched-tokens: 2048\nmax-model-len: 1024\n"
SHAPE_DEPLOY = "max-num-seqs: 64\nmax-num-batched-tokens: 2048\nmax-model-len: 2048\n"
NGRAM = "speculative-config: {method: ngram, num-speculative-tokens: %d}\n"


class Drafts:
    def __init__(self, args, scratch):
        self.args, self.scratch, self.figures = args, scratch, {}

    def path(self, name):
        return os.path.join(self.scratch, name)

    def run(self, name, *words):
        """Standard output of a program; its time is noted under the name."""
        begin = time.monotonic()
        process = subprocess.run([os.path.join(os.path.abspath(self.args.binaries), words[0]), *words[1:]], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        with open(os.path.join(self.args.output, name + ".txt"), "w", encoding="utf-8") as file:
            file.write("$ %s\n%s" % (" ".join(words), process.stdout))
        print("%-24s %6.1f s  exit code %d" % (name, time.monotonic() - begin, process.returncode), flush=True)
        if process.returncode:
            raise SystemExit("%s: %s" % (name, process.stdout[-1500:]))
        return process.stdout

    def engine(self, name, *words):
        """The same for a subcommand that opens an engine. Returns its statistics."""
        stats = os.path.join(self.args.output, name + ".json")
        self.run(name, *words, "--device", self.args.device, "--quiet", "--stats", stats)
        with open(stats, encoding="utf-8") as file:
            return json.load(file)

    def plan(self, name, source, deploy):
        with open(self.path(name + ".yaml"), "w", encoding="utf-8") as file:
            file.write(deploy)
        self.run("plan-" + name, "verbatim", "plan", source, "--config", self.path(name + ".yaml"), "-o", self.path(name))
        return self.path(name)

    def requests(self, name, count, **fields):
        with open(self.path(name), "w", encoding="utf-8") as file:
            for i in range(count):
                ids = [(i * 7919 + k * k * 31 + k * 17) % 300 + 10 for k in range(32)]
                asked = {"prompt_ids": ids, "id": str(i), "max_tokens": self.args.tokens, "ignore_eos": True, "seed": i, **fields}
                file.write(json.dumps(asked) + "\n")
        return self.path(name)

    def replay(self, model):
        plan = self.plan("wide.plan", model, DEPLOY + "max-logit-rows: 512\n")
        for count in (1, 64):
            receipt = self.path("receipt-%d" % count)
            asked = self.requests("asked-%d" % count, count, temperature=1.0)
            made = self.engine("made-%d" % count, "verbatim", "run", plan, model, "--jsonl", asked, "--ids", "--receipt", receipt)
            row = {"made_s": made["run"]["seconds"], "made_tokens_per_s": made["run"]["made_tokens_per_s"]}
            for way in ("--stepwise", ""):
                words = ["verbatim", "verify", receipt, plan, model, "--batch", str(count)] + ([way] if way else [])
                stats = self.engine("verify-%d%s" % (count, way), *words)
                row[way.strip("-") or "many_at_a_time"] = {"seconds": stats["run"]["seconds"], "steps": stats["steps"]["steps"]}
            row["times_faster"] = row["stepwise"]["seconds"] / row["many_at_a_time"]["seconds"]
            self.figures["replay of %d" % count] = row

    def lookup(self, model):
        """Alternately, so that a drift of the clocks shows in both."""
        plans = {"off": self.plan("off.plan", model, DEPLOY), "ngram": self.plan("ngram.plan", model, DEPLOY + NGRAM % 4)}
        for count in (1, 64):
            asked, seconds, digests, drafts = self.requests("free-%d" % count, count, temperature=1.0), {}, set(), None
            for turn in range(3):
                for name, plan in plans.items():
                    stats = self.engine("lookup-%s-%d-%d" % (name, count, turn), "verbatim", "run", plan, model, "--jsonl", asked, "--ids",
                                        "--receipt", self.path("lookup.receipt"))
                    seconds.setdefault(name, []).append(stats["run"]["seconds"])
                    with open(self.path("lookup.receipt"), encoding="utf-8") as file:
                        digests.add(file.read().strip().split("\n")[-1])
                    drafts = stats["steps"]["drafts"] if name == "ngram" else drafts
            if len(digests) != 1:
                raise SystemExit("lookup: receipts differ: %s" % digests)
            best = {name: min(list_) for name, list_ in seconds.items()}
            self.figures["lookup of %d" % count] = {"seconds": seconds, "drafts": drafts, "cost": best["ngram"] / best["off"] - 1}

    def shape(self):
        os.makedirs(self.path("shape"))
        shutil.copy(self.args.shape, self.path("shape/config.json"))
        plan = self.plan("shape.plan", self.path("shape"), SHAPE_DEPLOY + NGRAM % 3)
        path = os.path.join(self.args.output, "shape.json")
        self.run("shape", "verbatim", "bench", plan, "--no-ops", "--context", "1024", "--prompt", "16", "--device", self.args.device,
                 "--json", path, "--quiet")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["decode"]
        alone = {row["batch"]: row["tokens_per_s"] for row in rows if row["drafts"] == 0}
        self.figures["shape"] = [{"batch": row["batch"], "drafts": row["drafts"], "step_us": round(row["step_us"], 1),
                                  "tokens_per_s": round(row["tokens_per_s"], 1),
                                  "speed_up": round(row["tokens_per_s"] / alone[row["batch"]], 3)} for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binaries")
    parser.add_argument("output")
    parser.add_argument("--config", default="tests/data/configs/deepseek-v2-lite.json")
    parser.add_argument("--shape", default="tests/data/configs/glm-4.7-flash.json")
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--only", default="replay,lookup,shape")
    args = parser.parse_args()
    os.makedirs(args.output, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        drafts = Drafts(args, scratch)
        if "replay" in args.only or "lookup" in args.only:
            drafts.run("random_model", "random_model", args.config, drafts.path("model"), "--shards", "16")
        if "replay" in args.only:
            drafts.replay(drafts.path("model"))
        if "lookup" in args.only:
            drafts.lookup(drafts.path("model"))
        if "shape" in args.only:
            drafts.shape()
    with open(os.path.join(args.output, "drafts.json"), "w", encoding="utf-8") as file:
        json.dump(drafts.figures, file, indent=1)
    json.dump(drafts.figures, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""check_inspect.py - inspect-ai, as published, runs evaluations against the server: check_inspect.py

Runs a task of the shipped model's items through each of inspect-ai's providers for such servers, chat and completions, with one connection
and with 16: the logs have the same content for each sample, except for ids and times. Run with build/venv/bin/python. Must not know: the
engine. Read next: server.py.
"""
import argparse
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True

FOLDER = tempfile.TemporaryDirectory(prefix="verbatim-inspect-")
os.environ.update(INSPECT_LOG_DIR=FOLDER.name, INSPECT_LOG_LEVEL="error", INSPECT_DISPLAY="none", XDG_DATA_HOME=FOLDER.name,
                  XDG_CACHE_HOME=FOLDER.name)

from inspect_ai import Task, eval as evaluate  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import GenerateConfig  # noqa: E402
from inspect_ai.scorer import exact  # noqa: E402
from inspect_ai.solver import generate  # noqa: E402

import server as serving  # noqa: E402
from proxy import Proxy  # noqa: E402
from server import Failed, Server  # noqa: E402

GREEDY = {"temperature": 0, "max_tokens": 96, "seed": 1, "logprobs": True, "top_logprobs": 2}
SAMPLED = {"temperature": 1.2, "top_p": 0.9, "max_tokens": 48, "seed": 5, "num_choices": 2, "stop_seqs": ["\n\n"]}
PROVIDERS = {"chat": ("openai-api/here/", "vllm/"), "completions": ("openai-api-completions/here/", "vllm-completions/")}
STEP = 32  # one item in this many is used; check_clients.py has more connections


def items():
    with open(os.path.join(serving.MODEL_DIR, "items.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file][::STEP]


def run(url, provider, config, connections):
    """{item: the answer}"""
    os.environ.update(HERE_BASE_URL=url + "/v1", HERE_API_KEY="none", VLLM_BASE_URL=url + "/v1", VLLM_API_KEY="none")
    samples = [Sample(id=item["id"], input=item["prompt"], target=item["answer"]) for item in items()]
    task = Task(dataset=samples, solver=generate(), scorer=exact(), config=GenerateConfig(max_retries=0, **config))
    log, = evaluate(task, model=provider + serving.MODEL, model_base_url=url + "/v1", max_connections=connections,
                    max_samples=connections, display="none", log_dir=FOLDER.name, fail_on_error=True)
    if log.status != "success":
        raise Failed("%s: %s: %s" % (provider, log.status, log.error and log.error.message))
    return {sample.id: said_of(sample) for sample in log.samples}


def said_of(sample):
    """Everything that the model said in a sample, without names and times."""
    choices = json.loads(sample.output.model_dump_json())["choices"]
    for choice in choices:
        for name in ("id", "model"):
            choice["message"].pop(name, None)
    return {"choices": choices, "scores": {name: score.value for name, score in sample.scores.items()}, "usage": usage_of(sample)}


def usage_of(sample):
    usage = sample.output.usage
    return [usage.input_tokens, usage.output_tokens] if usage else None


def require_equal(what, first, second):
    if not first or set(first) != set(second):
        raise Failed("%s: %d and %d samples" % (what, len(first), len(second)))
    for name, said in first.items():
        if said != second[name]:
            raise Failed("%s: %s: %s and %s" % (what, name, json.dumps(said), json.dumps(second[name])))


def texts(found):
    return {name: [choice["message"]["content"] for choice in said["choices"]] for name, said in found.items()}


def run_all(url, other_url):
    """url and other_url: two servers, the second of which splits the work differently."""
    targets = {item["id"]: item["answer"] for item in items()}
    for kind, (provider, other) in PROVIDERS.items():
        for name, config in (("greedy", GREEDY), ("sampled", SAMPLED)):
            what, first = "%s, %s" % (kind, name), run(url, provider, config, 1)
            require_equal(what + ", 16 connections", first, run(url, provider, config, 16))
            require_equal(what + ", 16 connections, the other server", first, run(other_url, provider, config, 16))
            require_equal("%s, %s beside %s" % (what, other, provider), first, run(url, other, config, 16))
            right = sum(answers[0] == targets[item] for item, answers in texts(first).items())
            if name == "greedy" and right != len(first):
                raise Failed("%s: %d of %d answers are right" % (what, right, len(first)))
            print("%-22s %3d samples, %3d right, four runs equal" % (what, len(first), right), flush=True)


def self_test(url):
    """Answers that get swapped under load are noticed."""
    config, provider = dict(GREEDY, logprobs=None, top_logprobs=None), PROVIDERS["chat"][0]
    first = run(url, provider, config, 1)
    with Proxy(url, fault="swap") as proxy:
        try:
            require_equal("control", first, run(proxy.url, provider, config, 16))
        except Failed as error:
            print("ok   answers that change places: %s" % str(error)[:160])
            return
    raise Failed("answers that change places are not found")


def main():
    parser = argparse.ArgumentParser(description="inspect-ai against the server.")
    parser.add_argument("--builddir", default=serving.BUILDDIR)
    serving.BUILDDIR = parser.parse_args().builddir
    try:
        plan = serving.make_plan(FOLDER.name)
        with Server(plan) as first, Server(plan, "--no-prefix-cache", "--chunk", "16") as second:
            run_all(first.url, second.url)
            self_test(first.url)
        return 0
    except Failed as error:
        print("check_inspect.py: %s" % error)
        return 1


if __name__ == "__main__":
    os.chdir(FOLDER.name)
    sys.exit(main())

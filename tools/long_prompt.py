#!/usr/bin/env python3
"""Measures how long decoding sequences wait while a long prompt is computed, and the time that the prefix cache saves: long_prompt.py

  tools/long_prompt.py PLAN MODEL_DIR [--sequences 63] [--prompt 8000] [--device auto] [--library build/libverbatim.so] [--json]

Random ids, greedy, through the library as tests/examples/embed.py uses it. Prints the milliseconds between tokens of a decoding sequence
before the prompt arrives and while it is computed, the time to the prompt's first token, and the same for a prompt that differs in its last
three ids.
"""
import argparse
import ctypes
import importlib.util
import json
import os
import random
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SETTLED, QUIET = 20, 60  # tokens generated before the measurement, and tokens measured without the prompt


def load_embed():
    spec = importlib.util.spec_from_file_location("embed", os.path.join(ROOT, "tests/examples/embed.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Engine:
    def __init__(self, options):
        self.embed = load_embed()
        self.library = self.embed.load(options.library)
        self.handle = ctypes.c_void_p()
        self.busy = ctypes.c_bool(True)
        self.kept = []  # memory that the engine reads and writes
        config = self.embed.Config(plan_path=os.fsencode(options.plan), model_dir=os.fsencode(options.model),
                                   device=self.embed.DEVICES[options.device])
        self.embed.check(self.library, self.library.verbatim_open(ctypes.byref(self.handle), ctypes.byref(config)))

    def submit(self, ids, most):
        request = self.library.verbatim_request_defaults()
        prompt, tokens = (ctypes.c_int32 * len(ids))(*ids), (self.embed.Token * most)()
        request.prompt, request.prompt_count, request.tokens = prompt, len(ids), tokens
        request.max_tokens, request.ignore_eos = most, True
        self.kept.append((request, prompt, tokens))
        self.embed.check(self.library, self.library.verbatim_submit(self.handle, ctypes.byref(request)))
        return request

    def poll(self):
        self.embed.check(self.library, self.library.verbatim_poll(self.handle, ctypes.byref(self.busy)))
        return self.busy.value

    def gaps_ms(self, watched, done):
        """Milliseconds between tokens of the request, until done()."""
        gaps, seen, since = [], watched.token_count, time.perf_counter()
        while not done() and self.poll():
            if watched.token_count != seen:
                now = time.perf_counter()
                gaps.append(1e3 * (now - since))
                seen, since = watched.token_count, now
        return gaps

    def first_token_ms(self, ids, watched):
        begun = time.perf_counter()
        request = self.submit(ids, 4)
        gaps = self.gaps_ms(watched, lambda: request.token_count > 0)
        return 1e3 * (time.perf_counter() - begun), gaps


def measure(options):
    engine, draw = Engine(options), random.Random(options.seed)
    vocab = engine.library.verbatim_describe(engine.handle).vocab
    ids = lambda count: [draw.randrange(vocab) for _ in range(count)]
    sequences = [engine.submit(ids(32), options.tokens) for _ in range(options.sequences)]
    engine.gaps_ms(sequences[0], lambda: sequences[0].token_count >= SETTLED)
    alone = engine.gaps_ms(sequences[0], lambda: sequences[0].token_count >= SETTLED + QUIET)
    prompt = ids(options.prompt)
    first, beside = engine.first_token_ms(prompt, sequences[0])
    while engine.poll():
        pass
    again, _ = engine.first_token_ms(prompt[:-3] + ids(3), sequences[0])
    while engine.poll():
        pass
    reused = engine.library.verbatim_count(engine.handle).reused_tokens
    engine.library.verbatim_close(engine.handle)
    return {"decode_ms": sorted(alone)[len(alone) // 2], "decode_most_ms": max(alone), "beside_ms": beside, "first_token_ms": first,
            "first_token_again_ms": again, "reused_tokens": reused}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(": long_prompt.py")[0] + ".")
    parser.add_argument("plan")
    parser.add_argument("model")
    parser.add_argument("--sequences", type=int, default=63)
    parser.add_argument("--tokens", type=int, default=300, help="tokens that each of these generates (%(default)s)")
    parser.add_argument("--prompt", type=int, default=8000, help="tokens of the long prompt (%(default)s)")
    parser.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto")
    parser.add_argument("--library", default=os.path.join(ROOT, "build/libverbatim.so"))
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.tokens <= SETTLED + QUIET:
        parser.error("--tokens: expected more than %d, found %d" % (SETTLED + QUIET, options.tokens))
    figures = measure(options)
    if options.json:
        print(json.dumps(figures))
        return
    print("a step of the decoding sequences     %8.2f ms, at most %.2f" % (figures["decode_ms"], figures["decode_most_ms"]))
    print("between their tokens beside it       %s ms" % " ".join("%.1f" % gap for gap in figures["beside_ms"]))
    print("first token of the prompt            %8.2f ms" % figures["first_token_ms"])
    print("of one with other last three tokens  %8.2f ms, %d tokens reused" % (figures["first_token_again_ms"], figures["reused_tokens"]))


if __name__ == "__main__":
    main()

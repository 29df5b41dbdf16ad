#!/usr/bin/env python3
"""serve_bench.py - measures how fast a running server streams: serve_bench.py URL [--clients N] [--requests N] [--prompt-tokens N]
[--tokens N]

Each client sends completion requests of random token ids one after the other: greedy, streamed, with ids in the reply (a token may have no
text), never ending before --tokens. It counts the events as they arrive. Prints requests and tokens per second, and percentiles of the time
to the first token and of the time between tokens; --json writes the same. Uses only the standard library and one process: at tens of
thousands of tokens per second the client is the limit. Must not know the model; ids are below --vocab. Read next: tests/serve/load.py,
which judges answers.
"""
import argparse
import asyncio
import json
import random
import sys
import time
import urllib.parse


async def ask(address, body):
    """Times of a request's events since it was sent."""
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = ("POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            % (address.netloc, len(body)))
    begin, times, first = time.monotonic(), [], True
    writer.write(head.encode() + body)
    while data := await reader.read(1 << 18):
        if first and b" 200 " not in data.split(b"\r\n", 1)[0]:
            raise SystemExit("serve_bench.py: %s" % (data + await reader.read()).decode(errors="replace"))
        first = False
        times += [time.monotonic() - begin] * data.count(b'data: {"id"')
    writer.close()
    return times


async def client(address, bodies, seen):
    while bodies:
        seen.append(await ask(address, bodies.pop()))


async def run(address, bodies, clients):
    seen, begin = [], time.monotonic()
    await asyncio.gather(*[client(address, bodies, seen) for _ in range(clients)])
    return seen, time.monotonic() - begin


def make_bodies(args):
    draw = random.Random(args.seed)
    form = {"max_tokens": args.tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "stream": True}
    prompts = [[draw.randrange(args.vocab) for _ in range(args.prompt_tokens)] for _ in range(args.requests)]
    return [json.dumps({"prompt": prompt, **form}).encode() for prompt in prompts]


def percentiles(values):
    values = sorted(values)
    return {"p%d" % p: round(1000 * values[min(len(values) - 1, len(values) * p // 100)], 3) for p in (50, 90, 99)} if values else {}


def report(args, seen, seconds):
    tokens = args.tokens * len(seen)
    return {"clients": args.clients, "requests": len(seen), "prompt_tokens": args.prompt_tokens, "tokens": args.tokens,
            "seconds": round(seconds, 3), "requests_per_s": round(len(seen) / seconds, 2), "tokens_per_s": round(tokens / seconds, 1),
            "first_token_ms": percentiles([times[0] for times in seen]),
            "next_token_ms": percentiles([(times[-1] - times[0]) / (args.tokens - 1) for times in seen if args.tokens > 1])}


def main():
    parser = argparse.ArgumentParser(description="How fast a server streams.")
    parser.add_argument("url")
    for name, value, what in (("clients", 64, "concurrent clients"), ("requests", 256, "requests in all"),
                              ("prompt-tokens", 512, "tokens of each prompt"), ("tokens", 128, "tokens generated for each"),
                              ("vocab", 768, "upper bound of ids"), ("seed", 1, "seed of the prompts")):
        parser.add_argument("--" + name, type=int, default=value, help="%s (%d)" % (what, value))
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    args = parser.parse_args()
    seen, seconds = asyncio.run(run(urllib.parse.urlparse(args.url), make_bodies(args), args.clients))
    figures = report(args, seen, seconds)
    print(json.dumps(figures))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

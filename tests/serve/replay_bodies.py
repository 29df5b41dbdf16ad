#!/usr/bin/env python3
"""replay_bodies.py - sends recorded requests (proxy.py, check_lm_eval.py --record) to a server again and compares the answers byte for
byte.

  tests/serve/replay_bodies.py bodies.jsonl --url http://127.0.0.1:8000 [--clients N] [--shuffle SEED]

For a machine that has neither network nor the recorded clients: a GPU must give the answers that a CPU gave. Everything except "id" and
"created" is compared, including system_fingerprint, which contains the plan's digest: record and replay with one plan. Needs only the
standard library. Must not know: the content of the bodies. Read next: proxy.py.
"""
import argparse
import concurrent.futures
import json
import random
import sys
import time

sys.dont_write_bytecode = True

import server as serving  # noqa: E402


def ask_again(url, row):
    """The difference, or ""."""
    body = row["body"]
    data = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    status, _, answer = serving.ask(url, row["path"], data)
    if status != row["status"]:
        return "status %d, recorded %d: %s" % (status, row["status"], answer[:300])
    return serving.first_difference(serving.comparable(row["answer"].encode()), serving.comparable(answer))


def main():
    parser = argparse.ArgumentParser(description="Asks recorded bodies again.")
    parser.add_argument("record")
    parser.add_argument("--url", required=True)
    parser.add_argument("--clients", type=int, default=16, help="how many ask at once (16)")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="ask in another order")
    args = parser.parse_args()
    with open(args.record, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    if args.shuffle is not None:
        random.Random(args.shuffle).shuffle(rows)
    begin, differences = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(args.clients) as pool:
        for row, difference in zip(rows, pool.map(lambda row: ask_again(args.url, row), rows)):
            if difference:
                differences += 1
                if differences <= 5:
                    print("%s %s: %s" % (row["path"], json.dumps(row["body"])[:300], difference))
    print("%d answers, %d differ, %.1f s" % (len(rows), differences, time.monotonic() - begin))
    return 1 if differences or not rows else 0


if __name__ == "__main__":
    sys.exit(main())

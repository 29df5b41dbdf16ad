#!/usr/bin/env python3
"""load.py - many clients at once: every answer equals the one its request has alone, none is lost, memory use stays level.

  tests/serve/load.py                                    starts the server on the shipped model; the run of the tests
  tests/serve/load.py --seconds 600 --clients 256 --json load.json
  tests/serve/load.py --url http://127.0.0.1:8000 --pid 4711     a running server (on this machine); --pid to see its
                                                         memory, and to stop it for half a second
  tests/serve/load.py --self-test                        plants faults between clients and server and finds each

First each kind of request is sent alone, streamed and whole, and computed by `verbatim run`. Then all clients send kinds at random,
streaming: first to the end, then with some leaving early, then so many small requests that a leak shows, and last all at the same moment.
Needs only the standard library. Read next: server.py, proxy.py.
"""
import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.dont_write_bytecode = True

import server as serving  # noqa: E402
from proxy import HEAD_BYTES_MAX, read_message  # noqa: E402
from server import Failed, Server  # noqa: E402

GROWTH_BYTES_MAX = 1 << 20  # of resident memory, from the first half of a phase's answers to the second: caches fill, and stay full
SMALL_ANSWERS = 4000        # at least, in the phase in which a leak of 192 bytes a request is too much growth
SMALL_SECONDS = 5           # at least: in a shorter phase the few samples of memory would show only how heaps grow and shrink
LEAK_BYTES = 192
SAMPLE_SECONDS = 0.2
ANSWER_SECONDS = 120  # the longest that an answer may take
LEAVING = 0.2         # of the answers of a phase with leavers
AT_ONCE_SECONDS = 10  # the longest wait of all who ask at the same moment: a server that misses them looks again after 30
STOPPED_SECONDS = 0.5


def kinds():
    """[(path, body)]: prompts of all tasks, short and long, greedy and sampled, with options that change an answer's form."""
    with open(os.path.join(serving.MODEL_DIR, "items.jsonl"), encoding="utf-8") as file:
        items = [json.loads(line) for line in file]
    draw = random.Random(11)
    found = []
    for index, item in enumerate(items[::20]):
        shots = "".join("%s%s\n\n" % (each["prompt"], each["answer"]) for each in draw.sample(items, 8)) if index % 5 == 4 else ""
        body = {"prompt": shots + item["prompt"], "max_tokens": (96, 24, 4)[index % 3]}
        if index % 4 == 1:
            body.update(temperature=1.0, top_p=0.9, seed=index)
        elif index % 4 == 3:
            body.update(temperature=2.0, top_k=40, seed=index, n=2, logprobs=2)
        else:
            body.update(temperature=0)
        if index % 6 == 5:
            body.update(stop=["\n\n", "7"])
        found.append(("/v1/completions", body))
    for item in items[7::110]:
        found.append(("/v1/chat/completions", {"messages": [{"role": "user", "content": item["prompt"]}], "temperature": 0,
                                               "max_tokens": 48, "logprobs": True, "top_logprobs": 1}))
    return [(path, {"model": serving.MODEL, **body}) for path, body in found]


def small_kinds():
    prompts = ["add: 1+%d=" % number for number in range(4)]
    return [("/v1/completions", {"model": serving.MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 1}) for prompt in prompts]


# === Answers ================================================================================================================


def events(data):
    """The objects of a stream that must end with [DONE]."""
    lines = [line[6:] for line in bytes(data).split(b"\n\n") if line.startswith(b"data: ")]
    if not lines or lines[-1] != b"[DONE]":
        raise Failed("a stream without [DONE]: %r" % bytes(data)[-200:])
    return [json.loads(line) for line in lines[:-1]]


def add_logprobs(total, part):
    for key, values in (part or {}).items():
        if values is not None:
            total.setdefault(key, []).extend(values)


def fold(objects):
    """Whole answers and streams in one form: their content for each choice, and for the request."""
    choices, rest = {}, {}
    for part in objects:
        if "error" in part:
            raise Failed("an error in an answer: %s" % json.dumps(part))
        for choice in part["choices"]:
            total = choices.setdefault(choice["index"], {"text": "", "logprobs": {}})
            message = choice.get("delta") or choice.get("message") or {}
            total["text"] += choice.get("text") or message.get("content") or ""
            add_logprobs(total["logprobs"], choice.get("logprobs"))
            total.update({key: value for key, value in choice.items()
                          if key not in ("text", "delta", "message", "logprobs") and value is not None})
        rest.update({key: value for key, value in part.items() if key not in ("id", "created", "object", "choices") and value is not None})
    return {"choices": [choices[index] for index in sorted(choices)], **rest}


def digests(answer):
    """[(request digest, chain)] of the choices."""
    return [(choice["request"], choice["chain"]) for choice in answer["verbatim"]["choices"]]


def streaming(body):
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


class Kind:
    """A request and the answer that it gets alone."""

    def __init__(self, url, path, body):
        self.path, self.body = path, body
        status, _, data = serving.ask(url, path, streaming(body))
        if status != 200:
            raise Failed("%s %s: %d %s" % (path, json.dumps(body), status, data[:500]))
        self.answer = fold(events(data))
        whole = fold([serving.answer_of(url, path, body)])
        if whole != self.answer:
            raise Failed("%s: streamed and whole answers differ:\n%s\n%s" % (json.dumps(body), json.dumps(self.answer), json.dumps(whole)))
        self.data = json.dumps(streaming(body)).encode()

    def request(self, place):
        return b"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
            self.path.encode(), place.netloc.encode(), len(self.data), self.data)


def compare_with_run(found):
    """Completions computed by `verbatim run` have the digests that the server gave."""
    asked = [kind for kind in found if kind.path == "/v1/completions"]
    lines = "".join(json.dumps({"id": str(index), **{key: value for key, value in kind.body.items() if key != "model"}}) + "\n"
                    for index, kind in enumerate(asked))
    with tempfile.TemporaryDirectory(prefix="verbatim-load-") as folder:
        receipt = os.path.join(folder, "receipt")
        serving.run_program("run", serving.make_plan(folder), serving.MODEL_DIR, "--jsonl", "-", "--device", "cpu", "--quiet", "--output",
                            "jsonl", "--receipt", receipt, stdin=lines)
        with open(receipt, encoding="utf-8") as file:
            rows = [row for row in map(json.loads, file) if "chain" in row]
    made = {}
    for row in rows:
        made.setdefault(int(row["id"].split("#")[0]), []).append((row["sample_index"], row["request"], row["chain"]))
    for index, kind in enumerate(asked):
        wanted = [(request, chain) for _, request, chain in sorted(made[index])]
        if digests(kind.answer) != wanted:
            raise Failed("%s: the server's digests %s, those of verbatim run %s" % (json.dumps(kind.body), digests(kind.answer), wanted))


# === Clients ================================================================================================================


class Left(Exception):
    """A client that left before its answer ended, on purpose."""


class Tally:
    """The results of the clients of a phase."""

    def __init__(self):
        self.answers = self.left = self.tokens = 0
        self.first_token, self.whole, self.wrong = [], [], []

    def end_badly(self, kind, error):
        if isinstance(error, Left):
            self.left += 1
        else:
            self.wrong.append("%s: no answer: %r" % (json.dumps(kind.body), error))

    def add(self, kind, data, times):
        answer = fold(events(data))
        if answer != kind.answer:
            self.wrong.append("%s: alone %s, in company %s" % (json.dumps(kind.body), json.dumps(kind.answer), json.dumps(answer)))
        self.answers += 1
        self.tokens += answer["usage"]["completion_tokens"]
        self.first_token.append(times[1] - times[0])
        self.whole.append(times[2] - times[0])


class Phase:
    """Clients that ask kinds at random until the time is over, or until that many answers have come."""

    def __init__(self, name, found, seconds, leaving=0.0, answers=0):
        self.name, self.found, self.seconds, self.leaving, self.answers = name, found, seconds, leaving, answers
        self.tally, self.samples, self.took = Tally(), [], 0.0

    def goes_on(self):
        now = time.monotonic()
        enough = self.answers and self.tally.answers >= self.answers and now >= self.begin + SMALL_SECONDS
        return now < self.end and not enough

    async def run(self, url, clients, pid):
        self.begin = time.monotonic()
        self.end, self.place = self.begin + self.seconds, urllib.parse.urlsplit(url)
        tasks = [self.client(random.Random("%s/%d" % (self.name, index))) for index in range(clients)]
        await asyncio.gather(self.watch(pid), *tasks)
        self.took = time.monotonic() - self.begin

    async def client(self, draw):
        """Uses one connection for as long as it lasts."""
        reader = writer = None
        while self.goes_on():
            kind = draw.choice(self.found)
            leave_after = draw.randrange(1, 12) if draw.random() < self.leaving else 0
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection(self.place.hostname, self.place.port, limit=HEAD_BYTES_MAX)
                await asyncio.wait_for(exchange(reader, writer, kind, self.place, leave_after, self.tally), ANSWER_SECONDS)
            except Failed as error:
                self.tally.wrong.append(str(error))
            except (Left, OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
                self.tally.end_badly(kind, error)
                if writer:
                    writer.transport.abort()
                writer = None
        if writer:
            writer.close()

    async def watch(self, pid):
        while pid and self.goes_on():
            self.samples.append((self.tally.answers, serving.resident_bytes(pid)))
            await asyncio.sleep(SAMPLE_SECONDS)

    def growth_bytes(self):
        """The largest memory in the second half of the answers minus that in the first."""
        halves = [[size for answers, size in self.samples if (2 * answers > self.tally.answers) == second] for second in (False, True)]
        return max(halves[1]) - max(halves[0]) if all(halves) else 0

    def report(self):
        tally = self.tally
        return {"phase": self.name, "seconds": round(self.took, 1), "answers": tally.answers, "left_early": tally.left,
                "wrong": len(tally.wrong), "requests_per_s": round(tally.answers / self.took, 1),
                "tokens_per_s": round(tally.tokens / self.took, 1), "first_token_s": percentiles(tally.first_token),
                "whole_s": percentiles(tally.whole), "resident_bytes": max((size for _, size in self.samples), default=0),
                "growth_bytes": self.growth_bytes()}

    def wrong(self):
        wrong = list(self.tally.wrong)
        if self.growth_bytes() > (self.tally.answers // 2 * LEAK_BYTES if self.answers else GROWTH_BYTES_MAX):
            wrong.append("resident memory grew by %d bytes" % self.growth_bytes())
        if self.tally.answers < max(1, self.answers):
            wrong.append("%d answers in %d s" % (self.tally.answers, self.seconds))
        return ["%s: %s" % (self.name, each) for each in wrong]


async def exchange(reader, writer, kind, place, leave_after, tally):
    pieces = []

    async def note(_):
        pieces.append(time.monotonic())
        if leave_after and len(pieces) > leave_after:
            raise Left()

    begin = time.monotonic()
    writer.write(kind.request(place))
    await writer.drain()
    answer = await read_message(reader, note)
    if answer is None:
        raise ConnectionError("the connection ended")
    if " 200 " not in answer.first:
        raise Failed("%s: %s %s" % (json.dumps(kind.body), answer.first, bytes(answer.body[:500])))
    tally.add(kind, answer.body, (begin, pieces[min(1, len(pieces) - 1)], time.monotonic()))  # the first piece is the head


class AtOnce(Phase):
    """Clients that have had an answer ask again while the server is stopped, so that it finds them all at once. They are as many as it can
    see at once, 128, or twice that: a library that asks for more before it serves these makes them wait for another event.
    """

    def __init__(self, found, stopped=STOPPED_SECONDS, most=AT_ONCE_SECONDS):
        super().__init__("at once", found, 0)
        self.stopped, self.most = stopped, most

    async def run(self, url, clients, pid):
        self.place = urllib.parse.urlsplit(url)
        links = [await asyncio.open_connection(self.place.hostname, self.place.port, limit=HEAD_BYTES_MAX) for _ in range(clients)]
        await self.ask(links)
        begin = time.monotonic()
        if pid:
            os.kill(pid, signal.SIGSTOP)
        try:
            asking = asyncio.ensure_future(self.ask(links))
            await asyncio.sleep(self.stopped)
        finally:
            if pid:
                os.kill(pid, signal.SIGCONT)
        await asking
        self.took = time.monotonic() - begin
        for _, writer in links:
            writer.close()

    async def ask(self, links):
        kinds = [self.found[index % len(self.found)] for index in range(len(links))]
        exchanges = [exchange(*link, kind, self.place, 0, self.tally) for link, kind in zip(links, kinds)]
        ended = await asyncio.gather(*[asyncio.wait_for(each, ANSWER_SECONDS) for each in exchanges], return_exceptions=True)
        for kind, error in zip(kinds, ended):
            if error:
                self.tally.end_badly(kind, error)

    def wrong(self):
        late = self.took > self.most
        return super().wrong() + (["at once: answers after %.1f s, %d are expected at most" % (self.took, self.most)] if late else [])


def percentiles(values):
    values = sorted(values)
    return {"p%d" % p: round(values[min(len(values) - 1, len(values) * p // 100)], 4) for p in (50, 90, 99)} if values else {}


def require_idle(url):
    """Soon after the clients have gone no request runs or waits: those who left early took their requests with them."""
    for _ in range(100):
        _, _, data = serving.ask(url, "/metrics")
        lines = [line.rsplit(" ", 1) for line in data.decode().splitlines() if line.startswith(("vllm:num_requests_running",
                                                                                               "vllm:num_requests_waiting"))]
        if len(lines) == 2 and all(float(value) == 0 for _, value in lines):
            return
        time.sleep(0.1)
    raise Failed("requests are left behind: %s" % lines)


def phases_of(found, small, seconds, answers=SMALL_ANSWERS):
    return [Phase("all stay", found, seconds), Phase("some leave", found, seconds, leaving=LEAVING),
            Phase("small", small, max(120, seconds), answers=answers), AtOnce(small)]


def run_load(url, phases, clients, pid):
    """[report] of the phases; prints them. Failed if anything is wrong."""
    reports, wrong = [], []
    for each in phases:
        asyncio.run(each.run(url, clients, pid))
        reports.append(each.report())
        print(json.dumps(reports[-1]), flush=True)
        wrong += each.wrong()
    if wrong:
        raise Failed("%d answers are not what they should be; the first: %s" % (len(wrong), wrong[0][:4000]))
    require_idle(url)
    return reports


# === The command line =======================================================================================================


def found_fault(upstream, fault, phases, args):
    """The message of the load against a server behind a proxy that breaks it; "" if there is none. The watched memory is the proxy's."""
    command = [sys.executable, os.path.join(serving.ROOT, "tests/serve/proxy.py"), upstream] + (["--fault", fault] if fault else [])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            run_load(proxy.stdout.readline().strip(), phases, args.clients, proxy.pid)
        except Failed as error:
            return str(error)
        finally:
            proxy.kill()
    return ""


def self_test(url, found, small, args):
    failures = 0
    # Without a proxy all phases run, with twice as many answers.
    sound, load, lose, leak = [phases_of(found, small, args.seconds, SMALL_ANSWERS // 2) for _ in range(4)]
    late = [AtOnce(small, stopped=2, most=1)]
    for name, fault, phases in (("no fault", None, sound[:1] + sound[2:3]), ("load", "load", load[:1]), ("lose", "lose", lose[:1]),
                                ("leak", "leak", leak[2:3]), ("late", None, late)):
        said = found_fault(url, fault, phases, args)
        good = bool(said) == (name != "no fault")
        failures += not good
        print("%s %s: %s" % ("ok  " if good else "FAIL", name, said[:200] or "nothing found"), flush=True)
    if failures:
        raise Failed("%d faults were judged wrongly" % failures)


def judge(args, url, pid):
    begin = time.monotonic()
    found, small = [[Kind(url, path, body) for path, body in each] for each in (kinds(), small_kinds())]
    compare_with_run(found + small)
    print("%d kinds alone: streamed, whole and by verbatim run, %.1f s" % (len(found + small), time.monotonic() - begin), flush=True)
    if args.self_test:
        self_test(url, found, small, args)
        return
    reports = run_load(url, phases_of(found, small, args.seconds), args.clients, pid)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"clients": args.clients, "phases": reports}, file, indent=1)
            file.write("\n")


def main():
    parser = argparse.ArgumentParser(description="Load on the server.")
    parser.add_argument("--url", help="a server that runs, with the shipped model as \"%s\"" % serving.MODEL)
    parser.add_argument("--pid", type=int, default=0, help="its process, to see its memory, and to stop it for half a second")
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=12, help="of each of the first two phases (12)")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    parser.add_argument("--self-test", action="store_true", help="plant faults and see them found")
    parser.add_argument("--builddir", default=serving.BUILDDIR)
    args = parser.parse_args()
    serving.BUILDDIR = args.builddir
    try:
        if args.url:
            judge(args, args.url, args.pid)
            return 0
        with tempfile.TemporaryDirectory(prefix="verbatim-load-") as folder, Server(serving.make_plan(folder)) as server:
            judge(args, server.url, server.pid)
        return 0
    except Failed as error:
        print("load.py: %s" % error)
        return 1


if __name__ == "__main__":
    sys.exit(main())

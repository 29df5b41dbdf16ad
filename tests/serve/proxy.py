#!/usr/bin/env python3
"""proxy.py - stands between a client and the server: passes everything on, records it, and can break it on purpose.

  tests/serve/proxy.py http://127.0.0.1:8000 --record bodies.jsonl     the client uses the URL that is printed

Owns: the record of requests and answers that replay_bodies.py sends again, and the faults that prove that the checks notice them: FAULTS
below. HTTP as these clients and the server use it (Content-Length or chunks). Needs only the standard library. Read next: replay_bodies.py,
load.py.
"""
import argparse
import asyncio
import json
import re
import sys
import threading
import urllib.parse

HEAD_BYTES_MAX = 1 << 20
CLIENT_GONE = (ConnectionError, asyncio.IncompleteReadError)

FAULTS = {
    "load": "the last digit of a completion's log-probabilities and of a chain depends on how many requests are under way",
    "greedy": "token_logprobs are printed with fewer digits than top_logprobs",
    "swap": "two answers that are under way at once change places",
    "lose": "one answer in 40 ends before its end",
    "leak": "what is kept grows by 1 KiB a request",
    "retry": "one request in 8 is answered 429 with Retry-After",
}


class Message:
    """A request or an answer as it came: its first line, its headers, its whole body, its bytes."""

    def __init__(self, head):
        self.raw, self.body = bytearray(head), bytearray()
        lines = head.decode("latin-1").split("\r\n")
        self.first = lines[0]
        self.headers = dict(re.split(r":\s*", line, maxsplit=1) for line in lines[1:] if line)
        self.lower = {name.lower(): value for name, value in self.headers.items()}

    @property
    def is_chunked(self):
        return "chunked" in self.lower.get("transfer-encoding", "").lower()

    @property
    def has_body(self):
        return self.is_chunked or int(self.lower.get("content-length", "0")) > 0


async def read_message(reader, pass_on):
    """One message; pass_on gets each part of it as it arrives. None: the connection has ended."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    message = Message(head)
    await pass_on(head)
    if not message.is_chunked:
        message.body += await reader.readexactly(int(message.lower.get("content-length", "0")))
        await pass_on(bytes(message.body))
        return message
    while True:
        line = await reader.readuntil(b"\r\n")
        data = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
        await pass_on(line + data)
        if data == b"\r\n":
            return message
        message.body += data[:-2]


def jsonable(data):
    """A body as the record holds it: an object, or text."""
    try:
        return json.loads(data)
    except ValueError:
        return bytes(data).decode("utf-8", "replace")


class Proxy:
    """Serves on 127.0.0.1 in a thread of its own until stopped. `with Proxy(url) as proxy: ... proxy.url`"""

    def __init__(self, upstream, record=None, fault=None):
        self.place = urllib.parse.urlsplit(upstream)
        self.record = open(record, "w", encoding="utf-8") if record else None
        self.fault, self.kept, self.held = fault, [], None
        self.count = self.under_way = self.peak = 0  # peak: the most that were under way at once
        self.loop = asyncio.new_event_loop()
        self.started = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        self.started.wait()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join()
        if self.record:
            self.record.close()

    def run(self):
        self.loop.run_until_complete(self.serve())
        self.loop.close()

    async def serve(self):
        self.stopping = asyncio.Event()
        server = await asyncio.start_server(self.client, "127.0.0.1", 0, limit=HEAD_BYTES_MAX, backlog=1024)
        self.url = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        self.started.set()
        await self.stopping.wait()
        server.close()
        clients = asyncio.all_tasks() - {asyncio.current_task()}
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await asyncio.sleep(0)  # lets the closed connections say that they end

    async def client(self, reader, writer):
        up_writer = None
        try:
            up_reader, up_writer = await asyncio.open_connection(self.place.hostname, self.place.port, limit=HEAD_BYTES_MAX)
            while await self.exchange(reader, writer, up_reader, up_writer):
                pass
        except (*CLIENT_GONE, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, up_writer):
                if each:
                    each.transport.abort()

    async def exchange(self, reader, writer, up_reader, up_writer):
        """Handles one request and its answer. Returns whether another may follow."""
        request = await read_message(reader, self.to(up_writer))
        if request is None:
            return False
        self.count += 1
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        number, whole = self.count, not b'"stream": true' in request.body and not b'"stream":true' in request.body
        if self.fault == "leak":
            self.kept.append(bytes(1024))
        answered = asyncio.ensure_future(read_message(up_reader, self.to_nobody if whole else self.to(writer, number)))
        try:
            answer = await self.unless_gone(reader, answered)
            if answer is None:
                return False
            if whole:
                await self.send_whole(writer, request, answer, number)
        finally:
            self.under_way -= 1
            answered.cancel()
        self.write_record(request, answer)
        return "close" not in answer.lower.get("connection", "").lower()

    @staticmethod
    async def unless_gone(reader, answered):
        """The answer; none if the client leaves first, so that the server's connection is closed too."""
        while not answered.done():
            await asyncio.wait({answered}, timeout=0.05)
            if not answered.done() and (reader.at_eof() or reader.exception()):
                return None
        return answered.result()

    def to(self, writer, number=None):
        async def pass_on(data):
            if self.fault == "lose" and number and number % 40 == 0 and b"[DONE]" in data:
                raise ConnectionError("lost on purpose")
            if self.fault == "load" and number and self.under_way > 1:
                data = re.sub(rb'("chain":"[0-9a-f]{31})[0-9a-f]', rb"\g<1>0", data)
            writer.write(data)
            await writer.drain()
        return pass_on

    async def to_nobody(self, data):
        pass

    async def send_whole(self, writer, request, answer, number):
        body, first = bytes(answer.body), answer.first
        extra = ""
        if self.fault == "swap" and request.body:
            body = await self.swapped(body)
        elif self.fault == "load" and self.under_way > 1:
            body = re.sub(rb'"token_logprobs":\[[^\]]*\]', lambda m: re.sub(rb"(\.\d*)\d", rb"\g<1>3", m.group(0)), body)
            body = re.sub(rb'("chain":"[0-9a-f]{31})[0-9a-f]', rb"\g<1>0", body)
        elif self.fault == "greedy":
            body = re.sub(rb'"token_logprobs":\[[^\]]*\]', lambda m: re.sub(rb"(\.\d{3})\d+", rb"\1", m.group(0)), body)
        elif self.fault == "lose" and number % 40 == 0:
            raise ConnectionError("lost on purpose")
        elif self.fault == "retry" and number % 8 == 1 and request.body:
            first, extra = "HTTP/1.1 429 Too Many Requests", "Retry-After: 0\r\n"
            body = b'{"error":{"message":"full","type":"rate_limit_error","param":null,"code":null}}'
        names = {"content-length", "transfer-encoding", "connection"}
        head = "".join("%s: %s\r\n" % pair for pair in answer.headers.items() if pair[0].lower() not in names)
        head = "%s\r\n%s%sContent-Length: %d\r\n\r\n" % (first, head, extra, len(body))
        await self.to(writer)(head.encode("latin-1") + body)

    async def swapped(self, body):
        """Two answers wait here for each other and are swapped; one alone leaves after a moment."""
        if self.held:
            other, self.held = self.held, None
            other[1].set_result(body)
            return other[0]
        mine = self.held = (body, asyncio.get_running_loop().create_future())
        try:
            return await asyncio.wait_for(mine[1], 0.1)
        except asyncio.TimeoutError:
            if self.held is mine:
                self.held = None
            return body

    def write_record(self, request, answer):
        if not self.record:
            return
        method, path, _ = request.first.split(" ")
        row = {"method": method, "path": path, "body": jsonable(request.body) if request.body else None,
               "status": int(answer.first.split(" ")[1]), "answer": bytes(answer.body).decode("utf-8", "replace")}
        self.record.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.record.flush()


def main():
    parser = argparse.ArgumentParser(description="A recording proxy in front of a server.")
    parser.add_argument("upstream", help="URL of the server")
    parser.add_argument("--record", metavar="FILE", help="write requests and answers as JSONL")
    parser.add_argument("--fault", choices=FAULTS, help="break the answers: " + "; ".join("%s: %s" % item for item in FAULTS.items()))
    args = parser.parse_args()
    with Proxy(args.upstream, args.record, args.fault) as proxy:
        print(proxy.url, flush=True)
        try:
            proxy.thread.join()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    sys.exit(main())

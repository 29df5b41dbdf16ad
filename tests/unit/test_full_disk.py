#!/usr/bin/env python3
"""Every file that the program writes, on a disk without room: test_full_disk.py [--builddir DIR] [Limits|Disks]

OUTPUTS has every command with every output. Each is written under a file-size limit and to a full disk: the command must end with exit
code 3 and name the file; a file that is written whole must be the earlier one, a file of lines must hold whole lines, and no other file may
be left. A live server must answer requests whose receipt it cannot write with an error, and go on once it can. Limits needs no rights;
Disks mounts small file systems (tmpfs), which takes root. Must not know what the files mean, but for the receipt.
"""
import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = builddir.take()
MODEL = os.path.join(ROOT, "tests/tiny")
ERR_IO = 3
DISK_BYTES = 1 << 20
SECONDS = 60
WHOLE, LINES, PIECES = "whole", "lines", "pieces"  # replaced at once; grows by whole lines; grows by any piece
EARLIER = b"an earlier file\n"

# (name, how it is written, the words of the command). OUT is the output; the other capitals are inputs.
RUN = ["run", "PLAN", "MODEL", "--jsonl", "PROMPTS", "--quiet", "--max-tokens", "4"]
SCORE = ["score", "PLAN", "MODEL", "--jsonl", "ITEMS", "--quiet"]
VERIFY = ["verify", "RECEIPT", "PLAN", "MODEL", "--quiet"]
CALIBRATE = ["calibrate", "PLAN", "OWN", "--jsonl", "PROMPTS", "--quiet", "--force"]
BENCH = ["bench", "PLAN", "--op", "lm_head", "--rows", "1", "--quiet"]
EVAL = ["eval", "TASK", "--plan", "PLAN", "--model", "MODEL", "--quiet"]
SERVE = ["serve", "PLAN", "MODEL", "--port", "0", "--quiet"]
OUTPUTS = [
    ("plan", WHOLE, ["plan", "MODEL", "--quiet", "--force", "-o", "OUT"]),
    ("plan of a deployment file", WHOLE, ["score", "OUT", "MODEL", "--config", "DEPLOY", "--jsonl", "ITEMS", "--quiet"]),
    ("receipt of run", LINES, [*RUN, "--receipt", "OUT"]),
    ("stats of run", WHOLE, [*RUN, "--stats", "OUT"]),
    ("trace of run", PIECES, [*RUN, "--trace", "OUT"]),
    ("logits of run", PIECES, [*RUN, "--logits", "OUT"]),
    ("receipt of score", LINES, [*SCORE, "--receipt", "OUT"]),
    ("stats of score", WHOLE, [*SCORE, "--stats", "OUT"]),
    ("trace of score", PIECES, [*SCORE, "--trace", "OUT"]),
    ("summary of score", WHOLE, [*SCORE, "--summary", "OUT"]),
    ("receipt of verify", LINES, [*VERIFY, "--receipt", "OUT"]),
    ("stats of verify", WHOLE, [*VERIFY, "--stats", "OUT"]),
    ("trace of verify", PIECES, [*VERIFY, "--trace", "OUT"]),
    ("receipt of calibrate", LINES, [*CALIBRATE, "--receipt", "OUT"]),
    ("stats of calibrate", WHOLE, [*CALIBRATE, "--stats", "OUT"]),
    ("figures of bench", WHOLE, [*BENCH, "--json", "OUT"]),
    ("picture of bench", WHOLE, [*BENCH, "--roofline", "OUT"]),
    ("stats of eval", WHOLE, [*EVAL, "--output", "EVAL", "--stats", "OUT"]),
    ("ready file of serve", WHOLE, [*SERVE, "--ready-file", "OUT"]),
    ("receipt of serve", LINES, [*SERVE, "--receipt", "OUT"]),
]
# Commands that print: stdout is /dev/full.
PRINTS = [RUN, [*RUN, "--output", "jsonl"], SCORE, VERIFY, BENCH, ["show", "PLAN"], ["show", "PLAN", "--json"], ["digest", "PLAN", "MODEL"],
          ["diff", "RECEIPT", "RECEIPT"], ["diff", "TRACE", "TRACE"], ["audit", "TRACE", "PLAN", "MODEL"], ["doctor", "PLAN", "MODEL"],
          ["plan", "MODEL", "--dump-config"], ["plan", "MODEL", "--force", "-o", "OTHER"], CALIBRATE, [*EVAL, "--output", "EVAL"],
          ["version"], ["help"], ["run", "--help"]]


def program():
    return os.path.join(ROOT, BUILDDIR, "verbatim")


class Inputs:
    """What the commands of the tables read, made once."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="verbatim-full-disk-")
        self.words = {"MODEL": MODEL}
        for name in ("PLAN", "PROMPTS", "ITEMS", "RECEIPT", "TRACE", "DEPLOY", "OTHER", "OWN", "EVAL", "TASK", "LINES"):
            self.words[name] = os.path.join(self.folder.name, name.lower())
        self.write("PROMPTS", "".join('{"id": "%d", "prompt": "add: %d+1="}\n' % (i, i) for i in range(8)))
        self.write("ITEMS", "".join('{"id": "%d", "context": "add: %d+1=", "continuation": "2"}\n' % (i, i) for i in range(8)))
        self.write("DEPLOY", "model: %s\nmax-num-seqs: 8\nmax-model-len: 256\nmax-num-batched-tokens: 64\n" % MODEL)
        line = '{"prompt": "count: X in XX%sX =", "choices": ["1", "2", "3"], "answer": 2}\n'
        self.write("LINES", "".join(line % ("O" * i) for i in range(9)))
        self.write("TASK", "name: few\nkind: choice\nitems: lines\n")
        shutil.copytree(MODEL, self.words["OWN"])
        self.ok("plan", "MODEL", "--config", "DEPLOY", "-o", "PLAN", "--quiet")
        self.ok(*RUN, "--receipt", "RECEIPT", "--trace", "TRACE", "--trace-values", "audit:layer=0,position=0")

    def write(self, name, text):
        with open(self.words[name], "w", encoding="utf-8") as file:
            file.write(text)

    def command(self, words, out=""):
        found = [out if word == "OUT" else self.words.get(word, word) for word in words]
        takes_device = words[0] in ("run", "score", "verify", "eval", "serve", "calibrate", "bench", "doctor")
        return [program(), *found, *(["--device", "cpu"] if takes_device and "--help" not in words else [])]

    def ok(self, *words):
        subprocess.run(self.command(words), check=True, capture_output=True, timeout=SECONDS)

    def close(self):
        self.folder.cleanup()


def limited(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def call(command, size=None, **options):
    """(exit code, stderr). A server that started is ended: it did not need the room."""
    options.setdefault("stdout", subprocess.PIPE)
    child = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=limited(size) if size is not None else None, **options)
    try:
        _, said = child.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    return child.returncode, said.decode(errors="replace")


class Tables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.inputs = Inputs()

    @classmethod
    def tearDownClass(cls):
        cls.inputs.close()

    def fresh(self):
        """Removes what an earlier command left."""
        shutil.rmtree(self.inputs.words["EVAL"], ignore_errors=True)

    def check(self, kind, code, said, folder):
        out = os.path.join(folder, "out")
        self.assertEqual(code, ERR_IO, said)
        self.assertIn(out, said)
        self.assertLessEqual(set(os.listdir(folder)), {"out", "filler"})
        content = b""
        if os.path.exists(out):
            with open(out, "rb") as file:
                content = file.read()
        if kind == WHOLE:
            self.assertIn(content, (b"", EARLIER))
        if kind == LINES:
            self.assertTrue(content == b"" or content.endswith(b"\n"), content[-100:])
            for line in content.splitlines():
                self.assertNotIn("digest", json.loads(line))


class Limits(Tables):
    """Under a file-size limit (ulimit -f), which sends a signal unless it is ignored; and on /dev/full."""

    def size_of(self, words):
        """The size of the output with all the room it needs."""
        with tempfile.TemporaryDirectory(prefix="verbatim-full-disk-") as folder:
            out = os.path.join(folder, "out")
            self.fresh()
            code, said = call(self.inputs.command(words, out))
            self.assertEqual(code, 0, said)
            return os.path.getsize(out)

    def test_every_output(self):
        for name, kind, words in OUTPUTS:
            if words[0] == "eval":  # the limit would stop its folder first
                continue
            size = self.size_of(words) if words[0] != "serve" else 0  # a server would go on
            for limit in sorted({size // 2} if kind == WHOLE else {0, size // 2, max(0, size - 1)}):
                with self.subTest(name, limit=limit), tempfile.TemporaryDirectory(prefix="verbatim-full-disk-") as folder:
                    out = os.path.join(folder, "out")
                    self.fresh()
                    if kind == WHOLE and "deployment" not in name:
                        with open(out, "wb") as file:
                            file.write(EARLIER)
                    code, said = call(self.inputs.command(words, out), limit)
                    self.check(kind, code, said, folder)

    def test_everything_that_is_printed(self):
        for words in PRINTS:
            with self.subTest(words), open("/dev/full", "wb") as full:
                self.fresh()
                code, said = call(self.inputs.command(words), stdout=full)
                self.assertEqual(code, ERR_IO, said)
                self.assertIn("stdout", said)

    def test_an_evaluation_goes_on(self):
        """Whatever could not be written, --resume gives the digest of a run with room."""
        whole = self.evaluate("whole")
        sizes = sorted({0, 500, *(os.path.getsize(os.path.join(self.path("whole"), name)) - 1 for name in os.listdir(self.path("whole")))})
        for size in sizes:
            with self.subTest(size):
                shutil.rmtree(self.path("cut"), ignore_errors=True)
                code, said = call(self.inputs.command([*EVAL, "--output", self.path("cut")]), size)
                self.assertEqual(code, ERR_IO, said)
                self.assertIn(self.path("cut"), said)
                self.assertFalse([name for name in os.listdir(self.path("cut")) if ".tmp" in name])
                self.assertEqual(self.evaluate("cut", "--resume"), whole)
                self.assertEqual(self.files("cut"), self.files("whole"))

    def path(self, name):
        return os.path.join(self.inputs.folder.name, name)

    def evaluate(self, name, *options):
        words = [*EVAL, "--output", self.path(name), *options]
        done = subprocess.run(self.inputs.command(words), capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def files(self, name):
        def content(file):
            with open(os.path.join(self.path(name), file), "rb") as opened:
                return opened.read()
        return {file: content(file) for file in os.listdir(self.path(name)) if file in ("results.jsonl", "receipt")}, sorted(
            os.listdir(self.path(name)))

    def test_a_replay_leaves_nothing(self):
        self.evaluate("replayed")
        with tempfile.TemporaryDirectory(prefix="verbatim-full-disk-") as folder:
            code, said = call(self.inputs.command(["replay", self.path("replayed/manifest.json"), "--device", "cpu", "--quiet"]), 1000,
                              env=dict(os.environ, TMPDIR=folder))
            self.assertEqual(code, ERR_IO, said)
            self.assertEqual(os.listdir(folder), [])

    def test_scales(self):
        own = self.inputs.words["OWN"]
        before = sorted(set(os.listdir(own)) - {"kv_scales.safetensors"})
        code, said = call(self.inputs.command(CALIBRATE), 100)
        self.assertEqual(code, ERR_IO, said)
        self.assertIn("kv_scales.safetensors", said)
        self.assertEqual(sorted(set(os.listdir(own)) - {"kv_scales.safetensors"}), before)

    def test_a_server(self):
        """The limit of a live server is lowered to what it has written, and raised again."""
        for option in ("--receipt", "--access-log"):
            with self.subTest(option), tempfile.TemporaryDirectory(prefix="verbatim-full-disk-") as folder:
                out = os.path.join(folder, "out")
                with Server(self.inputs, [option, out]) as server:
                    def fill():
                        size = os.path.getsize(out) + 50
                        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

                    def free():
                        everything = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, everything)
                    check_server(self, server, option, out, fill, free)


class Disks(Tables):
    """On a tmpfs with no room."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="verbatim-full-disk-")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % DISK_BYTES, "tmpfs", self.folder], check=True)

    def tearDown(self):
        subprocess.run(["umount", self.folder], check=True)
        os.rmdir(self.folder)

    def fill(self):
        """Takes all the room that is left."""
        with contextlib.suppress(OSError), open(os.path.join(self.folder, "filler"), "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def free(self):
        os.remove(os.path.join(self.folder, "filler"))

    def test_every_output(self):
        out = os.path.join(self.folder, "out")
        for name, kind, words in OUTPUTS:
            with self.subTest(name):
                self.fresh()
                if kind == WHOLE and "deployment" not in name:
                    with open(out, "wb") as file:
                        file.write(EARLIER)
                self.fill()
                code, said = call(self.inputs.command(words, out))
                self.check(kind, code, said, self.folder)
                self.assertIn("No space left on device", said)
                self.free()
                with contextlib.suppress(FileNotFoundError):
                    os.remove(out)

    def test_a_server(self):
        for option in ("--receipt", "--access-log"):
            with self.subTest(option):
                out = os.path.join(self.folder, "out" + option)
                with Server(self.inputs, [option, out]) as server:
                    check_server(self, server, option, out, self.fill, self.free)


class Server:
    """A running server; at the end of the block it must answer SIGTERM with exit code 0."""

    def __init__(self, inputs, options):
        self.folder = tempfile.TemporaryDirectory(prefix="verbatim-full-disk-")
        ready = os.path.join(self.folder.name, "ready")
        self.log = open(os.path.join(self.folder.name, "log"), "w+", encoding="utf-8")
        command = inputs.command([*SERVE, "--served-model-name", "tiny", "--ready-file", ready, *options])
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log)
        self.wait(lambda: os.path.exists(ready) and os.path.getsize(ready) > 0)
        with open(ready, encoding="utf-8") as file:
            self.address = file.read().strip()[len("http://"):]

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(SECONDS)
        self.log.close()
        self.folder.cleanup()
        if kind is None and code != 0:
            raise AssertionError("the server ended with %d" % code)

    def wait(self, condition):
        end = time.monotonic() + SECONDS
        while not condition():
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError("the server did not do what was expected:\n" + self.said())
            time.sleep(0.02)

    def said(self):
        with open(self.log.name, encoding="utf-8") as file:
            return file.read()

    def ask(self, method, path, body=None):
        """(status, text)"""
        connection = http.client.HTTPConnection(self.address, timeout=SECONDS)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def complete(self, **fields):
        """A request whose line in the receipt is longer than a page, the unit in which a tmpfs has room."""
        body = {"model": "tiny", "prompt": "add: 1+2=", "max_tokens": 16, "ignore_eos": True, "echo": True, "logprobs": 20, **fields}
        return self.ask("POST", "/v1/completions", body)

    def health(self):
        return self.ask("GET", "/health")[0]


def check_server(test, server, option, out, fill, free):
    """A disk fills and is freed twice. Replies whose receipt is not written are errors; nothing of them is in the file."""
    answered = 0
    for _ in range(2):
        test.assertEqual(server.complete()[0], 200)
        answered += 1
        test.assertEqual(server.health(), 200)
        told = server.said().count("cannot be written")
        fill()
        whole, many = server.complete(), server.complete(n=3)
        status, events = server.complete(stream=True)
        if option == "--receipt":
            for reply in (whole, many):
                test.assertEqual(reply[0], 500, reply)
                error = json.loads(reply[1])["error"]
                test.assertEqual((error["type"], error["code"]), ("server_error", "receipt_not_written"))
                test.assertIn(out, error["message"])
            test.assertTrue(status == 500 or events.rstrip().endswith("[DONE]"), events)
            test.assertIn('"receipt_not_written"', events)
        server.wait(lambda: server.health() == 503)  # a line of the access log may find room in the last page
        test.assertEqual(server.ask("GET", "/v1/models")[0], 200)
        test.assertEqual(server.said().count("cannot be written"), told + 1)  # once
        free()
        server.wait(lambda: server.health() == 200)  # without a request for tokens
        test.assertIn("can be written again", server.said())
    test.assertEqual(server.complete()[0], 200)
    server.wait(lambda: server.health() == 200)
    with open(out, "rb") as file:
        content = file.read()
    test.assertTrue(content.endswith(b"\n"))
    lines = [json.loads(line) for line in content.splitlines()]
    if option == "--receipt":
        test.assertEqual(len([line for line in lines if "id" in line]), answered + 1)
        server.process.send_signal(signal.SIGTERM)
        test.assertEqual(server.process.wait(SECONDS), 0, server.said())
        code, said = call(test.inputs.command(["verify", out, "PLAN", "MODEL", "--quiet"]))
        test.assertEqual(code, 0, said)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Runs the commands of README.md, EVALUATION.md and SERVING.md on the CPU: test_guides.py [--builddir DIR] [Guides|Serving|OpenAI]

A ```console block holds commands, each on a line that begins with "$ ", and their output. A ```yaml block of EVALUATION.md is a file of
tests/examples. In SERVING.md the block with `verbatim serve` starts the server that all other blocks use; a ```python block is followed by
its output. Whole lines are compared; only the words of VARYING and the lines of TIMELY may differ. The controls change one number or key of
a text and expect the same check to find it. Must not know what the commands do.
"""
import argparse
import contextlib
import difflib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = "build"
READY_SECONDS = 60
ENGINE_COMMANDS = r"(verbatim (?:run|eval|replay|serve|verify|score)\b)"  # those that take --device
VARYING = [(r'"id": ?"(?:cmpl|chatcmpl)-[^"]*"', '"id":"..."'), (r'"created": ?\d+', '"created":0'),
           (r"\d+\.\d+ (s|tokens/s|GB)\b", r"N \1"), (r"CPU, \d+ threads?, \w+", "CPU")]
TIMELY = r"device: |(\d+)/(?!\1 )\d+ requests, "  # lines that depend on the machine or its speed: progress before the end


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def fences(text):
    """[(language, content)] of the text's blocks, in order."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)


def blocks(text, language):
    return [block for name, block in fences(text) if name == language]


def commands(block):
    """[(command, output)] of a console block."""
    parts = re.split(r"^\$ ", block, flags=re.M)
    if parts[0]:
        raise AssertionError("a console block begins with a command, found %r" % parts[0])
    found = []
    for part in parts[1:]:
        command, rest = part.split("\n", 1)
        while command.endswith("\\"):
            line, rest = rest.split("\n", 1)
            command = command[:-1] + line.strip()
        found.append((command, rest))
    return found


def comparable(text):
    for pattern, fixed in VARYING:
        text = re.sub(pattern, fixed, text)
    return [line for line in text.splitlines() if not re.match(TIMELY, line)]


class Reader:
    """A user in the root of the repository who types the commands of a guide. `build` is a folder of its own with the program in it."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="verbatim-guides-")
        self.root, self.address, self.told = self.folder.name, "", None
        os.mkdir(self.path("build"))
        os.symlink(os.path.join(ROOT, BUILDDIR, "verbatim"), self.path("build/verbatim"))
        for name in ("tests", "tools"):
            os.symlink(os.path.join(ROOT, name), self.path(name))

    def path(self, name):
        return os.path.join(self.root, name)

    def here(self, text):
        """The text with the address of this server and this backend in place of the guide's."""
        return re.sub(ENGINE_COMMANDS, r"\1 --device cpu", text.replace("localhost:8000", self.address or "localhost:8000"))

    def remembers(self):
        """From now on a command that was typed before is answered from memory: a control changes a text, not the program."""
        self.told = {}

    def type(self, command, merged=False):
        if self.told is not None and command in self.told:
            return self.told[command]
        result = subprocess.run(["sh", "-c", self.here(command)], cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT if merged else subprocess.PIPE, text=True, check=False)
        if result.returncode != 0:
            raise AssertionError("%s: status %d\n%s%s" % (command, result.returncode, result.stdout, result.stderr or ""))
        if self.told is not None:
            self.told[command] = result.stdout
        return result.stdout

    def close(self):
        self.folder.cleanup()


def same(command, shown, found):
    shown, found = comparable(shown), comparable(found)
    if shown != found:
        raise AssertionError("%s\n%s" % (command, "\n".join(difflib.unified_diff(shown, found, "the guide", "the program", lineterm=""))))


def check_console(reader, text, merged=False):
    """Runs every console block; returns the number of commands."""
    pairs = [pair for block in blocks(text, "console") for pair in commands(block)]
    for command, shown in pairs:
        same(command, shown, reader.type(command, merged))
    return len(pairs)


def check_examples(text):
    """The yaml blocks of the text are the files of tests/examples."""
    folder = os.path.join(ROOT, "tests/examples")
    files = {name: read("tests/examples/" + name) for name in os.listdir(folder) if name.endswith(".yaml")}
    shown = {re.search(r"^name: (\S+)$", block, re.M).group(1) + ".yaml": block for block in blocks(text, "yaml")}
    for name in sorted(set(files) | set(shown)):
        same("tests/examples/" + name, shown.get(name, ""), files.get(name, ""))
    return len(shown)


class Server:
    """Starts the server of the guide's sh block, whose last line is its command, on a port of its own."""

    def __init__(self, reader, text):
        *before, start = blocks(text, "sh")[0].splitlines()
        self.reader, self.log = reader, open(reader.path("log"), "w+", encoding="utf-8")
        for command in before:
            reader.type(command)
        words = shlex.split(reader.here(start)) + ["--port", "0", "--ready-file", reader.path("ready")]
        self.process = subprocess.Popen(words, cwd=reader.root, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.monotonic() + READY_SECONDS
        while not os.path.exists(reader.path("ready")) or not read(reader.path("ready")).endswith("\n"):
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                raise AssertionError("the guide's server did not start: %s" % read(reader.path("log")))
            time.sleep(0.01)
        reader.address = read(reader.path("ready")).strip().replace("http://", "")

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(READY_SECONDS)
        self.log.close()


def check_python(reader, program, shown, python):
    path = reader.path("client.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(reader.here(program))
    result = subprocess.run([python, path], cwd=reader.root, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    same(program, shown, result.stdout)


def check_serving(text, needs_openai, python=sys.executable):
    """Sends the guide's requests to the server, in order: those with OpenAI's client, or all others. Returns the number of blocks."""
    done = 0
    with contextlib.closing(Reader()) as reader, contextlib.closing(Server(reader, text)):
        found = fences(text)
        for (language, block), (_, following) in zip(found, found[1:]):
            if language == "python" and ("openai" in block) == needs_openai:
                check_python(reader, block, following, python)
            elif language == "console" and not needs_openai:
                check_console(reader, "```console\n%s```" % block)
            else:
                continue
            done += 1
    return done


class Guides(unittest.TestCase):
    def setUp(self):
        self.reader = Reader()
        self.addCleanup(self.reader.close)
        self.reader.remembers()

    def test_evaluation(self):
        text = read("EVALUATION.md")
        self.assertEqual(check_examples(text), 3)
        self.assertGreaterEqual(check_console(self.reader, text), 6)
        for old, new, found in (("acc                   0.9500", "acc                   0.9501", r"\n-count .* 0\.9501"),
                                ("equal: 120 items", "equal: 121 items", r"\n\+equal: 120 items"),
                                ("/manifest.json\n", "/no.json\n", "status 3")):
            self.assertIn(old, text)
            with self.assertRaisesRegex(AssertionError, found):
                check_console(self.reader, text.replace(old, new))
        with self.assertRaisesRegex(AssertionError, "-window: 513"):
            check_examples(text.replace("window: 512", "window: 513"))

    def test_readme(self):
        self.reader.type("mkdir build/try && build/verbatim plan tests/tiny --config tests/tiny/deploy.yaml -o build/try/tiny.plan --quiet")
        text = read("README.md")
        self.assertGreaterEqual(check_console(self.reader, text, merged=True), 2)
        digest = "\nreceipt 7c212d3c"
        self.assertIn(digest, text)
        with self.assertRaisesRegex(AssertionError, r"\n\+receipt 7c212d3c"):
            check_console(self.reader, text.replace(digest, "\nreceipt 7c212d3d"), merged=True)


class Serving(unittest.TestCase):
    def test_serving(self):
        self.assertGreaterEqual(check_serving(read("SERVING.md"), False), 7)

    def test_controls(self):
        text = read("SERVING.md")
        for old, new, found in (('"text": "10738"', '"text": "10739"', r'\n-.*"10739"'),
                                ('"prompt": "copy: VERBATIM ="', '"prompt": "copy: V ="', r"\n\+V"),
                                ("requests verified", "requests proven", r"\n-.* requests proven")):
            self.assertIn(old, text)
            with self.assertRaisesRegex(AssertionError, found):
                check_serving(text.replace(old, new), False)


class OpenAI(unittest.TestCase):
    def test_client(self):
        self.assertEqual(check_serving(read("SERVING.md"), True), 1)

    def test_control(self):
        with self.assertRaisesRegex(AssertionError, r"\n-MMMX"):
            check_serving(re.sub(r"^MMM\w*", "MMMX", read("SERVING.md"), flags=re.M), True)


def parse():
    parser = argparse.ArgumentParser(description="Runs the guides.")
    parser.add_argument("--builddir", default=BUILDDIR)
    return parser.parse_known_args()


if __name__ == "__main__":
    known, others = parse()
    BUILDDIR = known.builddir
    unittest.main(argv=[sys.argv[0], *others], verbosity=1)

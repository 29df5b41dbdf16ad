#!/usr/bin/env python3
"""Runs what README.md, EVALUATION.md and SERVING.md show their readers, on the CPU: test_guides.py [--builddir DIR]

A ```console block holds commands, each on a line that begins with "$ ", and what they print. A ```yaml block of EVALUATION.md is a file of
tests/examples. In SERVING.md the block with `verbatim serve` is the server that all others speak to; a ```python block is followed by what
it prints. Compared are whole lines; only the words of VARYING may differ. The controls change one number or key of a text and expect the
same check to find it. Must not know what the commands do.
"""
import argparse
import contextlib
import difflib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = "build"
READY_SECONDS = 60
VENV = os.path.join(ROOT, "build/venv/bin/python")
ENGINE_COMMANDS = r"(verbatim (?:run|eval|replay|serve|verify|score)\b)"  # those that take --device
VARYING = [(r'"id": ?"(?:cmpl|chatcmpl)-[^"]*"', '"id":"..."'), (r'"created": ?\d+', '"created":0'),
           (r"\d+\.\d+ (s|tokens/s|GB)\b", r"N \1"), (r"CPU, \d+ threads?, \w+", "CPU"),
           (r'("plan": ?)"[0-9a-f]{32}"', r'\1"..."')]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def blocks(text, language):
    return re.findall(r"^```%s\n(.*?)^```$" % language, text, re.M | re.S)


def commands(block):
    """[(command, what it prints)] of a console block."""
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
    return [line for line in text.splitlines() if not line.startswith("device: ")]


class Reader:
    """Somebody in the repository's root who types what a guide says. `build` is a folder of its own with the program in it."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="verbatim-guides-")
        self.root, self.address = self.folder.name, ""
        os.mkdir(self.path("build"))
        os.symlink(os.path.join(ROOT, BUILDDIR, "verbatim"), self.path("build/verbatim"))
        for name in ("tests", "tools"):
            os.symlink(os.path.join(ROOT, name), self.path(name))

    def path(self, name):
        return os.path.join(self.root, name)

    def here(self, text):
        """The text with the address of this server and this backend in place of the guide's."""
        return re.sub(ENGINE_COMMANDS, r"\1 --device cpu", text.replace("localhost:8000", self.address or "localhost:8000"))

    def type(self, command, merged=False):
        result = subprocess.run(["sh", "-c", self.here(command)], cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT if merged else subprocess.PIPE, text=True, check=False)
        if result.returncode != 0:
            raise AssertionError("%s: status %d\n%s%s" % (command, result.returncode, result.stdout, result.stderr or ""))
        return result.stdout

    def close(self):
        self.folder.cleanup()


def same(command, shown, found):
    shown, found = comparable(shown), comparable(found)
    if shown != found:
        raise AssertionError("%s\n%s" % (command, "\n".join(difflib.unified_diff(shown, found, "the guide", "the program", lineterm=""))))


def check_console(reader, text, merged=False):
    """Runs every console block; returns how many commands that were."""
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


class Guides(unittest.TestCase):
    def setUp(self):
        self.reader = Reader()
        self.addCleanup(self.reader.close)

    def test_evaluation(self):
        text = read("EVALUATION.md")
        self.assertEqual(check_examples(text), 3)
        self.assertGreaterEqual(check_console(self.reader, text), 6)

    def test_readme(self):
        self.reader.type("mkdir build/try && build/verbatim plan tests/tiny --config tests/tiny/deploy.yaml -o build/try/tiny.plan --quiet")
        self.assertGreaterEqual(check_console(self.reader, read("README.md"), merged=True), 2)

    def test_controls(self):
        text = read("EVALUATION.md")
        for old, new, found in (("acc                   0.9500", "acc                   0.9501", r"\n-count .* 0\.9501"),
                                ("equal: 120 items", "equal: 121 items", r"\n\+equal: 120 items"), ("/manifest.json\n", "/no.json\n", "status 3")):
            self.assertIn(old, text)
            with contextlib.closing(Reader()) as reader, self.assertRaisesRegex(AssertionError, found):
                check_console(reader, text.replace(old, new))
        with self.assertRaisesRegex(AssertionError, "-window: 513"):
            check_examples(text.replace("window: 512", "window: 513"))


def parse():
    parser = argparse.ArgumentParser(description="Runs the guides.")
    parser.add_argument("--builddir", default=BUILDDIR)
    return parser.parse_known_args()


if __name__ == "__main__":
    known, others = parse()
    BUILDDIR = known.builddir
    unittest.main(argv=[sys.argv[0], *others], verbosity=1)

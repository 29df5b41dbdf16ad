#!/usr/bin/env python3
"""`verbatim chat` in a terminal: a prompt, an answer as it is generated, Ctrl-C that ends an answer, /exit.

tests/e2e/test_conversation.c has the rest. Run after ninja, from the root of the repository:
tests/unit/test_chat_terminal.py [--builddir DIR]
"""
import os
import pty
import select
import signal
import sys
import tempfile
import time
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = builddir.take()
SECONDS = 60


class Terminal:
    def __init__(self, *words):
        self.child, self.descriptor = pty.fork()
        self.seen = ""
        if self.child == 0:
            os.chdir(ROOT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
            os.execv(os.path.join(ROOT, BUILDDIR, "verbatim"), ["verbatim", "chat", *words])

    def wait_for(self, word):
        """What is printed up to the word."""
        end = time.monotonic() + SECONDS
        while word not in self.seen:
            if not select.select([self.descriptor], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError("no %r in %r" % (word, self.seen))
            try:
                self.seen += os.read(self.descriptor, 4096).decode(errors="replace")
            except OSError as error:
                raise AssertionError("the end, and no %r in %r" % (word, self.seen)) from error
        before, self.seen = self.seen.split(word, 1)
        return before

    def type(self, text):
        os.write(self.descriptor, text.encode())

    def end(self):
        end = time.monotonic() + SECONDS
        while True:
            child, status = os.waitpid(self.child, os.WNOHANG)
            if child:
                break
            if time.monotonic() > end:
                os.kill(self.child, signal.SIGKILL)
            time.sleep(0.01)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status)


class Conversation(unittest.TestCase):
    def setUp(self):
        self.cache = tempfile.TemporaryDirectory()
        self.words = ["tests/tiny", "--device", "cpu", "--threads", "1", "--cache-dir", self.cache.name, "--ignore-eos"]

    def tearDown(self):
        self.cache.cleanup()

    def test_a_conversation(self):
        terminal = Terminal(*self.words)
        self.assertIn("/reset", terminal.wait_for("> "))
        terminal.type("add: 820+9918=\n")  # answered for ever: the model's own end does not end it
        terminal.wait_for("10738")
        terminal.type("\x03")
        terminal.wait_for("note: interrupted after ")
        terminal.wait_for("> ")
        terminal.type("/exit\n")
        terminal.wait_for("receipt ")
        self.assertEqual(terminal.end(), 0)

    def test_the_ends(self):
        terminal = Terminal(*self.words, "--max-tokens", "5", "--quiet")
        terminal.wait_for("> ")
        terminal.type("add: 820+9918=\n")
        terminal.wait_for("10738\r\n")
        terminal.wait_for("> ")
        terminal.type("\x04")  # end of the input
        terminal.wait_for("receipt ")
        self.assertEqual(terminal.end(), 0)
        terminal = Terminal(*self.words, "--quiet")
        terminal.wait_for("> ")
        terminal.type("\x03")  # no answer is under way
        self.assertEqual(terminal.end(), -2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

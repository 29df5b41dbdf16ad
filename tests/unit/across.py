"""across.py - tests of a program that is built for another machine and runs in an emulator: test_aarch64.py, test_macos.py.

What it computes is compared with a native build's plans and with receipts that GPUs wrote. An emulator is slow: one or two requests of a
golden receipt for every kind of attention and of weights. Nothing here measures a speed.
"""
import os
import shlex
import subprocess
import sys
import tempfile

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NATIVE = builddir.take()
LIBRARIES = "build/aarch64/debian"
LIMITS = "max-num-seqs: 16\nmax-num-batched-tokens: 512\nmax-model-len: 1024\nkv_pages: 64\nladder: [1]\nchunk_tokens: 64\n"
GROUPS = "group_chunks: 2\n"
RECEIPTS = {  # of tests/golden -> lines of the deployment besides LIMITS, requests
    "llama": ("", "r00", "r01"),                       # grouped-query attention
    "qwen3-fp8": ("", "r00", "r01"),                   # the same with e4m3 weights
    "v3": (GROUPS, "r00", "r01"),                      # latent attention, experts
    "v32-fp8": (GROUPS, "sparse-1"),                  # sparse attention, e4m3 weights and cache
}


def call(*words, check=True):
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if check and done.returncode != 0:
        raise AssertionError("%s ended with %d:\n%s" % (" ".join(words), done.returncode, done.stdout))
    return done


def configure(target, folder, level="-O1"):
    """Half of the time to compile; the ops keep -O2 (configure.py), and no bit depends on it. Returns the words that call ninja."""
    libraries = ["--libraries=" + LIBRARIES] if target == "aarch64-linux-gnu" else []
    call(sys.executable, "configure.py", "--target=" + target, "--builddir=" + folder, "--flags=%s -g0 -Werror" % level, *libraries)
    return ["ninja", "-f", folder + "/build.ninja"]


class Across:
    """To be inherited next to TestCase. self.build: the folder; self.ninja: the words that call ninja there; self.emulated(path, *words):
    runs a program."""
    receipts = tuple(RECEIPTS)

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def program(self, *words):
        return self.emulated(self.build + "/verbatim", *words).stdout

    def test_program_names_its_instruction_set(self):
        self.assertRegex(self.program("version"), r"^verbatim .*, neon\n$")

    def test_plans_and_receipts_are_those_of_other_machines(self):
        plans = [self.path("native.plan"), self.path("emulated.plan")]
        words = ["plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "--quiet", "-o"]
        call(NATIVE + "/verbatim", *words, plans[0])
        self.program(*words, plans[1])
        with open(plans[0], "rb") as native, open(plans[1], "rb") as other:
            self.assertEqual(native.read(), other.read())
        self.verify("sampled", plans[1], "tests/tiny", "s000")

    def verify(self, name, plan, model, *requests):
        wanted = [word for request in requests for word in ("--id", request)]
        said = self.program("verify", "tests/golden/%s.receipt" % name, plan, model, "--device", "cpu", *wanted)
        self.assertRegex(said, r"device: CPU, \d+ threads, neon,")
        self.assertIn("%d requests verified, 0 differ" % len(requests), said, name)

    def test_receipts_of_random_models(self):
        for name in self.receipts:
            more, *requests = RECEIPTS[name]
            model, plan, deploy = (self.path(name + end) for end in ("", ".plan", ".yaml"))
            with open(deploy, "w", encoding="ascii") as file:
                file.write(LIMITS + more)
            call(NATIVE + "/random_model", "tests/oracle/small-%s.json" % name, model, "--seed", "1")
            call(NATIVE + "/verbatim", "plan", model, "--config", deploy, "--quiet", "-o", plan)
            self.verify(name, plan, model, *requests)

    def command(self, output):
        """The words of the command that makes the target."""
        return shlex.split(call(*self.ninja, "-t", "commands", "-s", output).stdout.strip())

    def changed(self, output, source, edit, flags):
        """Links a binary with a changed object: by edit, (old, new) or None, and flags. Returns its path."""
        with open(os.path.join(ROOT, source), encoding="utf-8") as file:
            text = file.read()
        if edit:
            self.assertEqual(text.count(edit[0]), 1)
            text = text.replace(*edit)
        changed, ours, program = self.path("changed.c"), self.path("changed.o"), self.path("changed")
        with open(changed, "w", encoding="utf-8") as file:
            file.write(text)
        words = self.command("%s/obj/%s.o" % (self.build, source[:-2]))
        at = words.index("-MF")
        words[at - 1:at + 2] = []
        words[words.index("-o") + 1] = ours
        words[words.index(source)] = changed
        call(*words, *flags)
        words = self.command(output)
        words[words.index("-o") + 1:words.index("-o") + 2] = [program, ours]  # before the archive that holds the sound one
        call(*words)
        return program

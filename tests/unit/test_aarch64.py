#!/usr/bin/env python3
"""The CPU backend on aarch64: the program and some tests are built across, run in an emulator, and must give the bits that GPUs recorded.

tools/setup_aarch64.sh installs what it needs. An emulator is slow, so these are the cheap ones of the tests: the tensor cores'
definitions in NEON and in plain C, digests of ops, and one or two requests of a golden receipt for every kind of attention and of weights.
Nothing here measures a speed. Run after ninja: test_aarch64.py [--builddir DIR]
"""
import os
import shlex
import subprocess
import sys
import tempfile
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NATIVE = builddir.take()
LIBRARIES = "build/aarch64/debian"
BUILD = "build/aarch64/check"
# Half of the time to compile; the ops keep -O2 (configure.py), and no bit depends on it.
CONFIGURE = [sys.executable, "configure.py", "--target=aarch64-linux-gnu", "--libraries=" + LIBRARIES, "--builddir=" + BUILD,
             "--flags=-O1 -g0"]
NINJA = ["ninja", "-f", BUILD + "/build.ninja"]
EMULATED = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E", "LD_LIBRARY_PATH=%s/usr/lib/aarch64-linux-gnu" % LIBRARIES]

UNITS = ["h16", "h32", "num", "json_text", "strbuf", "yaml"]
OPS = ["accept", "act_quant", "adjust", "attn_cut", "attn_fold", "embed", "exchange", "moe_fold", "moe_sort", "rmsnorm", "router",
       "row_digest"]
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


def emulated(program, *words, check=True):
    return call(*EMULATED, "%s/%s" % (BUILD, program), *words, check=check)


def command(output):
    """The words of the command that makes the target."""
    return shlex.split(call(*NINJA, "-t", "commands", "-s", output).stdout.strip())


class Aarch64(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        call(*CONFIGURE)
        call(*NINJA, BUILD + "/verbatim", *("%s/tests/test_%s" % (BUILD, name) for name in UNITS + OPS))
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def test_program_names_its_instruction_set(self):
        self.assertRegex(emulated("verbatim", "version").stdout, r"^verbatim .*, neon\n$")

    def test_units_and_digests_of_ops(self):
        for name in UNITS + OPS:
            self.assertIn("PASSED", emulated("tests/test_" + name).stdout, name)

    def test_plans_and_receipts_are_those_of_other_machines(self):
        plans = [self.path("native.plan"), self.path("emulated.plan")]
        words = ["plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "--quiet", "-o"]
        call(NATIVE + "/verbatim", *words, plans[0])
        emulated("verbatim", *words, plans[1])
        with open(plans[0], "rb") as native, open(plans[1], "rb") as other:
            self.assertEqual(native.read(), other.read())
        self.verify("sampled", plans[1], "tests/tiny", "s000")

    def verify(self, name, plan, model, *requests):
        wanted = [word for request in requests for word in ("--id", request)]
        done = emulated("verbatim", "verify", "tests/golden/%s.receipt" % name, plan, model, "--device", "cpu", *wanted)
        self.assertRegex(done.stdout, r"device: CPU, \d+ threads, neon,")
        self.assertIn("%d requests verified, 0 differ" % len(requests), done.stdout, name)

    def test_receipts_of_random_models(self):
        for name, (more, *requests) in RECEIPTS.items():
            model, plan, deploy = (self.path(name + end) for end in ("", ".plan", ".yaml"))
            with open(deploy, "w", encoding="ascii") as file:
                file.write(LIMITS + more)
            call(NATIVE + "/random_model", "tests/oracle/small-%s.json" % name, model, "--seed", "1")
            call(NATIVE + "/verbatim", "plan", model, "--config", deploy, "--quiet", "-o", plan)
            self.verify(name, plan, model, *requests)

    def broken(self, test, source, edit, flags):
        """Runs a test that is linked with a changed object. edit: (old, new), or None."""
        built = "%s/obj/%s.o" % (BUILD, source[:-2])
        with open(os.path.join(ROOT, source), encoding="utf-8") as file:
            text = file.read()
        if edit:
            self.assertEqual(text.count(edit[0]), 1)
            text = text.replace(*edit)
        changed, ours, program = self.path("changed.c"), self.path("changed.o"), self.path("test")
        with open(changed, "w", encoding="utf-8") as file:
            file.write(text)
        words = command(built)
        at = words.index("-MF")
        words[at - 1:at + 2] = []
        words[words.index("-o") + 1] = ours
        words[words.index(source)] = changed
        call(*words, *flags)
        words = command("%s/tests/test_%s" % (BUILD, test))
        words[words.index("-o") + 1:words.index("-o") + 2] = [program, ours]  # before the archive that holds the sound one
        call(*words)
        return call(*EMULATED, program, check=False)

    def test_contraction_is_found(self):
        """Control: a multiplication and a subtraction that the compiler joins change the digest of adjust."""
        found = self.broken("adjust", "engine/cpu/adjust.c", None, ["-ffp-contract=fast"])
        self.assertIn("[  FAILED  ] golden_digest", found.stdout)

    def test_an_assumed_signed_char_is_found(self):
        """Control: a line that is right only where char is signed, as on x86-64."""
        edit = ("text[at] < 0x80 ? is_plain", "(bytes[at] & 0x100) == 0 ? is_plain")
        self.assertEqual(self.broken("strbuf", "engine/base/strbuf.c", edit, ["-fsigned-char"]).returncode, 0)
        self.assertIn("[  FAILED  ]", self.broken("strbuf", "engine/base/strbuf.c", edit, []).stdout)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The CPU backend on aarch64: the program and some tests are built across, run in an emulator, and must give the bits that GPUs recorded.

tools/setup_aarch64.sh installs what it needs. Besides what across.py has: the tensor cores' definitions in NEON and in plain C, and digests
of ops. Run after ninja: test_aarch64.py [--builddir DIR]
"""
import unittest

from across import LIBRARIES, Across, call, configure

BUILD = "build/aarch64/check"
EMULATED = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E", "LD_LIBRARY_PATH=%s/usr/lib/aarch64-linux-gnu" % LIBRARIES]

UNITS = ["h16", "h32", "num", "json_text", "strbuf", "yaml"]
OPS = ["accept", "act_quant", "adjust", "attn_cut", "attn_fold", "embed", "exchange", "moe_fold", "moe_sort", "rmsnorm", "router",
       "row_digest"]


class Aarch64(Across, unittest.TestCase):
    build = BUILD

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ninja = configure("aarch64-linux-gnu", BUILD)
        call(*cls.ninja, BUILD + "/verbatim", *("%s/tests/test_%s" % (BUILD, name) for name in UNITS + OPS))

    def emulated(self, program, *words, check=True):
        return call(*EMULATED, program, *words, check=check)

    def test_units_and_digests_of_ops(self):
        for name in UNITS + OPS:
            self.assertIn("PASSED", self.emulated("%s/tests/test_%s" % (BUILD, name)).stdout, name)

    def broken(self, test, source, edit, flags):
        """Runs a test that is linked with a changed object."""
        return self.emulated(self.changed("%s/tests/test_%s" % (BUILD, test), source, edit, flags), check=False)

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

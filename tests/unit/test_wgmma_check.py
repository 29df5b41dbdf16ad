#!/usr/bin/env python3
"""Tests of tools/wgmma_check.py: small PTX texts that use registers while an asynchronous matrix multiplication is using them."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")]
import wgmma_check  # noqa: E402

MULTIPLY = ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, %rd1, 1, 1, 1, 1;\n"
            "wgmma.commit_group.sync.aligned;\n")
WAIT = "wgmma.wait_group.sync.aligned 0;\n"
LOAD = "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%rd2];\n"
STORE = "st.global.f32 [%rd3], %f1;\n"


def hazards(text):
    return wgmma_check.hazards(".visible .entry k(\n.param .u64 p\n)\n{\n.reg .f32 %f<9>;\n" + text + "ret;\n}\n")


class Hazards(unittest.TestCase):
    def test_waiting_first_is_sound(self):
        self.assertEqual(hazards(LOAD + MULTIPLY + WAIT + LOAD + MULTIPLY + WAIT + STORE), [])

    def test_an_operand_loaded_too_early(self):
        found = hazards(LOAD + MULTIPLY + LOAD + WAIT)
        self.assertEqual(len(found), 4)
        self.assertIn("%r1 is written while a multiplication reads it", found[0])

    def test_a_sum_read_or_written_too_early(self):
        self.assertIn("%f1 is used while a multiplication adds to it", hazards(MULTIPLY + STORE + WAIT)[0])
        self.assertIn("%f2 is used", hazards(MULTIPLY + "mov.f32 %f2, %f8;\n" + WAIT)[0])

    def test_operands_may_be_read_and_stored(self):
        self.assertEqual(hazards(MULTIPLY + "st.shared.u32 [%rd2], %r1;\nadd.u32 %r9, %r2, 1;\n" + WAIT), [])

    def test_another_multiplication_may_go_on(self):
        self.assertEqual(hazards(MULTIPLY + MULTIPLY + WAIT), [])

    def test_a_wait_for_all_but_the_newest(self):
        other = MULTIPLY.replace("%r", "%r1").replace("%rd1", "%rd9").replace("%f", "%f1")
        newest_open = MULTIPLY + other + WAIT.replace("0;", "1;")
        self.assertEqual(hazards(newest_open + LOAD + WAIT), [])
        self.assertTrue(hazards(newest_open + LOAD.replace("%r", "%r1") + WAIT))

    def test_around_a_loop(self):
        loop = "$L1:\n" + MULTIPLY.replace("%", "%%") + "%s$L2:\n%s@%%p1 bra $L1;\n"
        self.assertEqual(hazards(loop % (WAIT, LOAD)), [])
        self.assertTrue(hazards(loop % ("", LOAD + WAIT)))
        self.assertTrue(hazards(LOAD + "$L1:\n" + MULTIPLY + "@%p1 bra $L1;\n" + LOAD + WAIT))

    def test_on_one_of_two_ways(self):
        text = ("@%%p1 bra $L1;\n" + MULTIPLY.replace("%", "%%") + "%s$L1:\n" + (LOAD + WAIT).replace("%", "%%"))
        self.assertEqual(hazards(text % WAIT), [])
        self.assertTrue(hazards(text % ""))

    def test_labels_of_inline_blocks_are_passed_over(self):
        spin = ("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%r9], %r8;\n@done bra END;\nbra AGAIN;\n"
                "END:\n}\n")
        self.assertEqual(hazards(MULTIPLY + spin + WAIT + LOAD), [])
        self.assertTrue(hazards(MULTIPLY + spin + LOAD + WAIT))

    def test_a_kernel_without_multiplications(self):
        self.assertEqual(hazards(LOAD + STORE), [])


if __name__ == "__main__":
    unittest.main()

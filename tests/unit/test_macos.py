#!/usr/bin/env python3
"""The program for macOS on arm64, without a Mac: it is built across, its file is inspected, and it runs under a loader in an emulator.

tools/setup_macos.sh and tools/setup_aarch64.sh install what it needs. The loader (tests/macos/macho_run.c) executes the program's own code
and answers what it asks of the system by Linux's. So what this compiler made, for Apple's calling convention and structs, must give the
plans of other machines and the bits that GPUs recorded; Apple's C library and kernel are not seen. Run after ninja:
test_macos.py [--builddir DIR]
"""
import glob
import os
import re
import struct
import unittest

from across import NATIVE, ROOT, Across, call, configure

BUILD, RUNNER = "build/macos/check", "build/macos/runner"
RUN = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", RUNNER + "/macho_run"]
MAGIC, ARM64, OBJECT, EXECUTABLE, IS_PIE = 0xfeedfacf, 0x0100000c, 1, 2, 0x200000
SYMTAB, LOAD_DYLIB, CODE_SIGNATURE, BUILD_VERSION = 0x2, 0xc, 0x1d, 0x32
IS_DEBUGGING, KIND, UNDEFINED, DEFINED, IS_EXTERNAL = 0xe0, 0x0e, 0x0, 0xe, 0x1  # of a symbol
MACOS = 1


class MachO:
    """A program or an object: its head, commands (kind -> bytes of each) and the names of external symbols that it uses and has."""

    def __init__(self, path):
        with open(os.path.join(ROOT, path), "rb") as file:
            data = file.read()
        magic, self.cpu, _, self.kind, count, _, self.flags, _ = struct.unpack_from("<8I", data)
        assert magic == MAGIC, path
        self.commands, self.used, self.defined, at = {}, set(), set(), 32
        for _ in range(count):
            kind, size = struct.unpack_from("<2I", data, at)
            self.commands.setdefault(kind & 0x7fffffff, []).append(data[at:at + size])
            at += size
        for command in self.commands.get(SYMTAB, []):
            symbols, count, names = struct.unpack_from("<3I", command, 8)
            for i in range(count):
                name, kind = struct.unpack_from("<IB", data, symbols + 16 * i)
                text = data[names + name:data.index(b"\0", names + name)].decode()
                if not kind & IS_DEBUGGING and kind & IS_EXTERNAL:
                    {UNDEFINED: self.used, DEFINED: self.defined}[kind & KIND].add(text)

    def libraries(self):
        return [command[struct.unpack_from("<I", command, 8)[0]:].split(b"\0")[0].decode() for command in self.commands[LOAD_DYLIB]]


def shadowed(program, objects):
    """Names that objects of ours define and that the program takes from the system instead."""
    return program.used & set().union(*(MachO(path).defined for path in objects))


class Macos(Across, unittest.TestCase):
    build = BUILD
    receipts = ("llama", "qwen3-fp8", "v3")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ninja = configure("arm64-apple-macos", BUILD, "-O0 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=0")
        call(*cls.ninja, BUILD + "/verbatim")
        call(*configure("aarch64-linux-gnu", RUNNER), RUNNER + "/macho_run")
        cls.file = MachO(BUILD + "/verbatim")

    def emulated(self, program, *words, check=True):
        return call(*RUN, program, *words, check=check)

    def compiled(self, text, *flags):
        """By the compiler of the build. Returns its end, and where the result is."""
        source, result = self.path("planted.c"), self.path("planted")
        with open(source, "w", encoding="ascii") as file:
            file.write(text)
        return call(self.command(BUILD + "/verbatim")[0], *flags, "-o", result, source, check=False), result

    def test_file_is_a_signed_program_for_arm64_and_macos(self):
        self.assertEqual((self.file.cpu, self.file.kind, self.file.flags & IS_PIE), (ARM64, EXECUTABLE, IS_PIE))
        self.assertEqual(struct.unpack_from("<I", self.file.commands[BUILD_VERSION][0], 8)[0], MACOS)
        self.assertEqual(len(self.file.commands[CODE_SIGNATURE]), 1)  # a Mac ends a program without one

    def test_needs_the_system_alone(self):
        self.assertEqual(self.file.libraries(), ["/usr/lib/libSystem.B.dylib"])
        with open(glob.glob(os.path.join(ROOT, "build/macos/zig/python/lib/*/*/ziglang/lib/libc/darwin/libSystem.tbd"))[0]) as file:
            system = set(re.findall(r"[\w$]+", file.read()))
        self.assertEqual(self.file.used - system, set())
        self.assertIn("_open_memstream", self.file.used)  # libfyaml has one of its own
        done, _ = self.compiled("int eventfd(unsigned, int);\nint main(void) { return eventfd(0, 0); }\n")
        self.assertNotEqual(done.returncode, 0)  # control: a call that Linux alone has
        self.assertIn("eventfd", done.stdout)

    def test_no_function_has_the_name_of_one_of_the_system(self):
        """The linker would take either. Control: a name that macOS has, too."""
        objects = glob.glob(os.path.join(ROOT, BUILD, "obj/**/*.o"), recursive=True)
        self.assertGreater(len(objects), 300)
        self.assertEqual(shadowed(self.file, objects), set())
        done, planted = self.compiled("void pthread_kill(void);\nvoid pthread_kill(void) {}\n", "-c")
        self.assertEqual((done.returncode, shadowed(self.file, [planted])), (0, {"_pthread_kill"}), done.stdout)

    def test_contraction_is_found(self):
        """Control: a multiplication and an addition that the compiler joins. The known answers that every start computes name the op."""
        plan = self.path("control.plan")
        call(NATIVE + "/verbatim", "plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "--quiet", "-o", plan)
        changed = self.changed(BUILD + "/verbatim", "engine/cpu/mla_fold.c", None, ["-ffp-contract=fast"])
        words = ["verify", "tests/golden/sampled.receipt", plan, "tests/tiny", "--device", "cpu", "--id", "s000"]
        self.assertRegex(self.emulated(changed, *words, check=False).stdout, "self-check: .* of op mla_fold .*: expected digest ")


if __name__ == "__main__":
    unittest.main()

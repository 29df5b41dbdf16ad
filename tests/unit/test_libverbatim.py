#!/usr/bin/env python3
"""Tests of build/libverbatim.so as its users see it: its symbols, dependencies and data, its header, and the two examples.

Run from the root of the repository: tests/unit/test_libverbatim.py [--builddir DIR]
"""
import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = builddir.take()
HEADER = "engine/verbatim.h"
ABI = "tools/python/verbatim/abi.py"
PROMPT = [0, 70, 69, 69, 28, 2, 300, 17, 5]

# Writable data of the shared library. Our own is only the thread's error text; the rest belongs to the toolchain, and the last two to
# libcrypto, whose constructor notes what the processor can.
WRITABLE = {"record": ".tbss", "completed.0": ".bss", "__TMC_END__": ".data", "__dso_handle": ".data", "__cpu_model": ".bss",
            "__cpu_features2": ".bss", "OPENSSL_ia32cap_P": ".bss", "trigger.0": ".bss"}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def built(name):
    path = os.path.join(ROOT, BUILDDIR, name)
    if not os.path.exists(path):
        raise AssertionError("%s is not built; hint: ninja" % path)
    return path


def module_at(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], os.path.join(ROOT, path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def symbols(path, *options):
    """(name, section) of nm's table."""
    rows = [[word.strip() for word in line.split("|")] for line in output_of("nm", "--format=sysv", *options, path).splitlines()]
    return [(row[0], row[6]) for row in rows if len(row) == 7 and row[0] != "Name"]


def is_writable(section):
    return bool(re.match(r"\.(data|bss|tdata|tbss)\b|\*COM\*", section)) and not section.startswith(".data.rel.ro")


class Symbols(unittest.TestCase):
    def test_shows_what_the_header_declares(self):
        code = re.sub(r"/\*.*?\*/", "", read(HEADER), flags=re.S)
        code = re.sub(r"^\s*#(?:[^\n\\]|\\\n)*", "", code, flags=re.M)
        declared = set(re.findall(r"^\w[\w *]*?\b(verbatim_\w+)\(", code, re.M))
        self.assertIn("verbatim_poll", declared)
        shown = {name for name, _ in symbols(built("libverbatim.so"), "-D", "--defined-only")}
        self.assertEqual(shown, declared)

    def test_writes_nothing_but_the_error_text(self):
        found = {name: section for name, section in symbols(built("libverbatim.so")) if is_writable(section)}
        self.assertEqual(found.get("record"), ".tbss")
        self.assertLessEqual(set(found.items()), set(WRITABLE.items()))

    def test_no_object_of_the_engine_writes_static_data(self):
        """Sections instead of symbols, because the compiler gives some data no name. The planner and the command line must obey the rule
        too.
        """
        objects = [os.path.join(folder, name) for part in ("engine", "planner", "gen")
                   for folder, _, names in os.walk(built("obj/" + part)) for name in names if name.endswith(".o")]
        self.assertGreater(len(objects), 60)
        for path in objects:
            sizes = re.findall(r"^(\.\S+)\s+(\d+)\s", output_of("size", "-A", path), re.M)
            found = {section for section, size in sizes if is_writable(section) and int(size)}
            self.assertEqual(found, {".tbss"} if path.endswith("/engine/base/fail.o") else set(), path)

    def test_needs_and_name(self):
        output = output_of("readelf", "-d", built("libverbatim.so"))
        named = {kind: set(re.findall(r"\(%s\).*\[(.*)\]" % kind, output)) for kind in ("NEEDED", "SONAME")}
        version = re.search(r'VERBATIM_VERSION "(\d+\.\d+)\.\d+"', read(HEADER)).group(1)
        self.assertEqual(named["SONAME"], {"libverbatim.so." + version})
        self.assertEqual({name.split(".so")[0] for name in named["NEEDED"]} - {"ld-linux-x86-64"},
                         {"libc", "libm", "libxxhash", "libjansson", "libpcre2-8"})


class Header(unittest.TestCase):
    def compiles(self, *command):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(ROOT, HEADER), folder)  # alone: no file next to it can help
            source = '#include "verbatim.h"\n#include "verbatim.h"\nint main(void) { return verbatim_error() == 0; }\n'
            result = subprocess.run([*command, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I", folder, "-"],
                                    input=source, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_stands_alone_in_c_and_cpp(self):
        compilers = [("gcc", "g++")] + ([("clang", "clang++")] if shutil.which("clang++") else [])
        for c, cpp in compilers:
            for standard in ("c11", "c17"):
                self.compiles(c, "-x", "c", "-std=" + standard)
            for standard in ("c++11", "c++20"):
                self.compiles(cpp, "-x", "c++", "-std=" + standard)

    def test_every_struct_tells_its_size(self):
        library = module_at(ABI).load(built("libverbatim.so"))
        names = re.findall(r"^(?:typedef )?struct (verbatim_\w+) \{", read(HEADER), re.M)
        self.assertGreaterEqual(len(names), 7)
        self.assertEqual(set(names), set(module_at(ABI).STRUCTS))
        for name in names:
            self.assertGreater(library.verbatim_sizeof(name.encode()), 0, name)
        self.assertEqual(library.verbatim_sizeof(b"verbatim_nonsense"), 0)


class PythonStructs(unittest.TestCase):
    def test_fields_are_the_headers(self):
        """Names, offsets and sizes of all fields, compared by the C compiler; no field at the end of a struct is left out."""
        abi = module_at(ABI)
        lines = ["#include <stddef.h>", '#include "verbatim.h"']
        for name, struct in abi.STRUCTS.items():
            lines.append('_Static_assert(sizeof(%s) == %d, "%s");' % (name, ctypes.sizeof(struct), name))
            for field, kind in struct._fields_:
                place, size = getattr(struct, field).offset, ctypes.sizeof(kind)
                lines.append('_Static_assert(offsetof(%s, %s) == %d && sizeof(((%s *)0)->%s) == %d, "%s.%s");'
                             % (name, field, place, name, field, size, name, field))
        self.assertGreater(len(lines), 70)
        result = subprocess.run(["cc", "-std=c11", "-x", "c", "-fsyntax-only", "-Iengine", "-"], cwd=ROOT, input="\n".join(lines) + "\n",
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_another_size_is_refused(self):
        abi = module_at(ABI)
        abi.STRUCTS["verbatim_token"] = abi.Alternative
        with self.assertRaisesRegex(abi.LibraryError, "verbatim_token has 8 bytes here and 24"):
            abi.load(built("libverbatim.so"))

    def test_functions_and_version_are_the_headers(self):
        abi = module_at(ABI)
        self.assertTrue(re.search(r'VERBATIM_VERSION "%s\.\d+"' % re.escape(abi.VERSION), read(HEADER)))
        declared = set(re.findall(r"^\w[\w *]*?\b(verbatim_\w+)\(", read(HEADER), re.M))
        self.assertEqual(set(abi.FUNCTIONS) | {"verbatim_sizeof"}, declared)


class Examples(unittest.TestCase):
    """Both run the shipped model on the CPU; the program makes the plan."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.plan = cls.folder.name + "/plan"
        output_of(built("verbatim"), "plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "-o", cls.plan)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_c(self):
        self.assertEqual(output_of(built("embed_example"), self.plan, "tests/tiny", "cpu").splitlines(), [
            "add: 820+9918= 10738 (stop, 6 tokens)", "  19 18 25 21 26 1",
            "copy: N51IPB0RURIX1QXL7KP8I6TZTYULQMT0YFOJYXLAJIIX3G506 = N51IP (cancelled, 5 tokens)", "  48 23 19 43 50",
            "roman: 3264 = MMMCCLXIV (stop, 10 tokens)", "  47 47 47 37 37 46 58 43 56 1"])

    def test_c_says_what_is_wrong(self):
        result = subprocess.run([built("embed_example"), self.plan, "tests", "cpu"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("embed: open: ", result.stderr)

    def test_python_gives_the_programs_logits(self):
        ids = [str(i) for i in PROMPT]
        ours, theirs = self.folder.name + "/ours", self.folder.name + "/theirs"
        said = output_of(sys.executable, "tests/examples/embed.py", self.plan, "tests/tiny", *ids, "--logits", ours, "--device", "cpu",
                         "--library", built("libverbatim.so")).splitlines()
        made = output_of(built("verbatim"), "run", self.plan, "tests/tiny", "--ids", " ".join(ids), "--max-tokens", "1", "--logits",
                         theirs, "--device", "cpu", "--quiet")
        with open(ours, "rb") as one, open(theirs, "rb") as other:
            rows = one.read()
            self.assertEqual(len(rows), 4 * 768 * len(PROMPT))
            self.assertEqual(rows, other.read())
        self.assertEqual(len(said), len(PROMPT) + 1)
        token = re.match(r"made token (\d+), log-probability -\d", said[-1]).group(1)
        self.assertEqual(token, made.strip())
        self.assertTrue(said[-2].startswith("position %d: token %s, " % (len(PROMPT) - 1, token)), said[-2:])

    def test_ranks_change_no_bit(self):
        """A plan of two ranks, which the CPU runs in lockstep; the control is another prompt."""
        two, rows = self.folder.name + "/two", []
        output_of(built("verbatim"), "plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "--tensor-parallel-size", "2", "-o", two)
        self.assertEqual(output_of(built("embed_example"), two, "tests/tiny", "cpu"),
                         output_of(built("embed_example"), self.plan, "tests/tiny", "cpu"))
        for plan, ids in ((self.plan, PROMPT), (two, PROMPT), (two, PROMPT[:-1])):
            path = self.folder.name + "/rows"
            said = output_of(sys.executable, "tests/examples/embed.py", plan, "tests/tiny", *[str(i) for i in ids], "--logits", path,
                             "--device", "cpu", "--library", built("libverbatim.so"))
            with open(path, "rb") as file:
                rows.append((said, file.read()))
        self.assertEqual(rows[0], rows[1])
        self.assertNotEqual(rows[0][1], rows[2][1])
        abi, engine = module_at(ABI), ctypes.c_void_p()
        library = abi.load(built("libverbatim.so"))
        config = abi.Config(plan_path=two.encode(), model_dir=b"tests/tiny", device=-2)
        self.assertEqual(library.verbatim_open(ctypes.byref(engine), ctypes.byref(config)), 0)
        info = library.verbatim_describe(engine)
        self.assertEqual((info.ranks, bool(info.gpus)), (2, False))
        library.verbatim_close(engine)

    def test_python_passes_errors_on(self):
        result = subprocess.run([sys.executable, "tests/examples/embed.py", self.plan, "tests/tiny", "99999", "--device", "cpu",
                                 "--library", built("libverbatim.so")], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "^verbatim: .*99999")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()

#!/usr/bin/env python3
"""Tests of the build itself: build.ninja is reproducible, the program needs only libc and libm, texts are embedded byte for
byte, and the test runner cannot take a crash, a hang or an empty run for success. Run after ninja: test_build.py [--builddir DIR]
"""
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [ROOT, os.path.join(ROOT, "tools")]
import configure  # noqa: E402
import test as runner  # noqa: E402

BUILDDIR = builddir.take()


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def readelf(*words):
    return subprocess.run(["readelf", "-W", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@unittest.skipUnless(shutil.which("readelf"), "readelf is not installed")
class Hardening(unittest.TestCase):
    """What the flags of configure.py leave in the files. Control: an object without them has none of it."""

    def test_addresses_are_bound_at_start_and_then_read_only(self):
        for name in ("verbatim", "libverbatim.so"):
            path = os.path.join(BUILDDIR, name)
            self.assertRegex(readelf("-d", path), r"FLAGS_1\).*\bNOW\b", name)
            segments = readelf("-l", path)
            self.assertRegex(segments, r"GNU_RELRO", name)
            self.assertRegex(segments, r"GNU_STACK .* RW +0x", name)  # not executable
        self.assertRegex(readelf("-d", os.path.join(BUILDDIR, "verbatim")), r"FLAGS_1\).*\bPIE\b")

    def marks(self, path):
        names = set(re.findall(r"\b__\w+_chk\b|__stack_chk_fail", readelf("-s", path)))
        return ("__stack_chk_fail" in names, len(names) > 1, bool(re.search("x86 feature: IBT, SHSTK", readelf("-n", path))))

    def test_stacks_copies_and_jumps_are_guarded(self):
        self.assertEqual(self.marks(os.path.join(BUILDDIR, "obj/engine/cli/serve.o")), (True, True, True))
        text = '#include <string.h>\n#include <stdio.h>\nint f(const char *a) { char b[64]; strcpy(b, a); return puts(b); }\n'
        with tempfile.TemporaryDirectory() as folder:
            hardened = [*configure.HARDENED, configure.JUMPS["x86_64"]]
            for flags, expected in ((hardened, (True, True, True)), (["-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fcf-protection=none"],
                                                                     (False, False, False))):
                subprocess.run(["cc", "-O2", *flags, "-x", "c", "-c", "-", "-o", folder + "/f.o"], input=text, text=True, check=True)
                self.assertEqual(self.marks(folder + "/f.o"), expected)


class Version(unittest.TestCase):
    def test_names_every_library_that_is_linked(self):
        """In numbers; the libraries of the link line are the list."""
        said = json.loads(subprocess.run([os.path.join(ROOT, BUILDDIR, "verbatim"), "version", "--json"], capture_output=True, text=True,
                                         check=True).stdout)
        linked = said["linked"]
        names = {re.sub(r"-l:lib(\w+?)(_core)?(-8)?\.a", r"\1", word) for word in configure.LIBRARIES if word != "-lm"}
        found = {name.lower().removeprefix("lib") for name in linked}
        self.assertLessEqual({name.lower() for name in names}, found)
        self.assertEqual(found - names, {"gcc", "glibc"} if "gcc" in linked else {"clang", "glibc"})
        for name, version in linked.items():
            self.assertRegex(version, r"^\d+\.\d+", name)
        text = subprocess.run([os.path.join(ROOT, BUILDDIR, "verbatim"), "version", "--verbose"], capture_output=True, text=True).stdout
        self.assertEqual(dict(line.split(None, 1) for line in text.splitlines()[1:]), linked)
        self.assertIn(said["isa"], ("avx512", "avx2", "neon", "portable"))
        self.assertTrue(text.splitlines()[0].endswith(", " + said["isa"]), text)


class BuildFile(unittest.TestCase):
    def test_committed_file_is_what_configure_writes(self):
        for path, text in configure.generate(configure.parse_arguments([])).items():
            self.assertEqual(read(path), text, path + " is stale; hint: ./configure.py")

    def test_same_bytes_from_another_process(self):
        code = "import configure; print(end=''.join(configure.generate(configure.parse_arguments([])).values()))"
        texts = {subprocess.run([sys.executable, "-B", "-c", code], cwd=ROOT, env=dict(os.environ, PYTHONHASHSEED=seed),
                                capture_output=True, text=True, check=True).stdout for seed in ("1", "2")}
        self.assertEqual(texts, {read("build.ninja") + read("tests/build.ninja")})

    def test_a_new_file_is_built_once_configure_has_run(self):
        """Plants a file in every folder whose files configure.py finds, in a copy of the tree. Control: none is built before it runs."""
        planted = {
            "engine/base/novel.h": "int novel(void);\n",
            "engine/base/novel.c": '#include "base/novel.h"\nint novel(void) { return 7; }\n',
            "engine/cli/novel_command.c": "int novel_command(void);\nint novel_command(void) { return 0; }\n",
            "planner/novel_plan.c": "int novel_plan(void);\nint novel_plan(void) { return 0; }\n",
            "kernels_src/rows/novel.cuh": "",
            "tests/unit/base/novel_help.h": "",
            "tests/unit/base/novel_help.c": "int __wrap_novel(void);\nint __wrap_novel(void) { return 8; }\n",
            "tests/unit/base/test_novel.c": '#include "tests/unit/base/novel_help.h"\nint main(void) { return 0; }\n',
            "tests/fuzz/fuzz_novel.c": "int main(void) { return 0; }\n",
            "tests/unit/test_novel.py": "",
        }
        with tempfile.TemporaryDirectory() as folder:
            for name in ("engine", "planner", "kernels_src", "tests", "tools"):
                shutil.copytree(os.path.join(ROOT, name), os.path.join(folder, name), ignore=shutil.ignore_patterns("__pycache__", "seeds"))
            for name in ("configure.py", "build.ninja"):
                shutil.copy(os.path.join(ROOT, name), folder)
            for path, text in planted.items():
                with open(os.path.join(folder, path), "w", encoding="ascii") as file:
                    file.write(text)

            def said(*words):
                return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout

            self.assertFalse("novel" in said("ninja", "-t", "targets", "all"))
            said(sys.executable, "configure.py")
            targets = said("ninja", "-t", "targets", "all")
            for path in planted:
                if path.endswith(".c"):
                    folders = ["build/fuzz"] if "/fuzz/" in path else ["build", "build/san"]
                    for root in folders:
                        self.assertTrue("\n%s/obj/%s.o: " % (root, path[:-2]) in targets, path)
            link = said("ninja", "-t", "commands", "-s", "build/tests/test_novel")
            self.assertIn("build/obj/tests/unit/base/novel_help.o", link)
            self.assertIn("-Wl,--wrap=novel", link)
            self.assertTrue("kernels_src/rows/novel.cuh" in said("ninja", "-t", "commands", "-s", "build/gen/kernel_sources.c"))
            listed = said(sys.executable, "tools/test.py", "--list").split()
            self.assertLessEqual({"unit/base/test_novel", "san/unit/base/test_novel", "check/novel"}, set(listed))

    def test_only_relative_paths(self):
        for word in (read("build.ninja") + read("tests/build.ninja")).split():
            self.assertFalse(word.startswith("/"), word)

    def test_the_top_file_is_short(self):
        self.assertLessEqual(len(read("build.ninja")), 100000)

    def test_options_write_beside_the_committed_file(self):
        args = configure.parse_arguments(["--cc", "clang", "--builddir", "build/clang"])
        self.assertEqual(configure.output_paths(args), ("build/clang/build.ninja", "build/clang/tests.ninja"))
        self.assertIn("build build/clang/build.ninja: configure | configure.py ", configure.generate(args)["build/clang/build.ninja"])


class Program(unittest.TestCase):
    def test_needs_only_libc_and_libm(self):
        self.assertTrue(os.path.exists(os.path.join(ROOT, BUILDDIR, "verbatim")), "not built; hint: ninja")
        output = subprocess.run(["readelf", "-d", BUILDDIR + "/verbatim"], cwd=ROOT, capture_output=True, text=True,
                                check=True).stdout
        needed = {line.split("[")[1].rstrip("]") for line in output.splitlines() if "(NEEDED)" in line}
        self.assertIn("libc.so.6", needed)
        self.assertLessEqual(needed, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})


class Embed(unittest.TestCase):
    PRINTER = """
#include "engine/base/kernel_sources.h"
#include <stdio.h>
int main(void) {
  for (size_t i = 0; i < kernel_sources_count; i++) printf("%s\\n%s", kernel_sources[i].name, kernel_sources[i].text);
  return 0;
}
"""

    def embed(self, folder, files):
        command = [sys.executable, "tools/embed.py", "-o", folder + "/out.c", "--table", "kernel_sources", "--header",
                   "engine/base/kernel_sources.h", "--root", folder] + files
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    def test_texts_come_back_byte_for_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            odd = folder + "/odd.cu"
            with open(odd, "w", encoding="ascii") as file:
                file.write('\n\n"quoted" \\ back\\n ??= ??/ \t%d %s\nno newline at the end')
            files = [os.path.join(ROOT, path) for path in configure.kernel_texts()] + [odd]
            self.assertEqual(self.embed(folder, files).returncode, 0)
            with open(folder + "/print.c", "w", encoding="ascii") as file:
                file.write(self.PRINTER)
            subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I.", "-o", folder + "/print",
                            folder + "/print.c", folder + "/out.c"], cwd=ROOT, check=True)
            output = subprocess.run([folder + "/print"], capture_output=True, text=True, check=True).stdout
            self.assertEqual(output, "".join("%s\n%s" % (os.path.relpath(path, folder), read(path)) for path in files))

    def test_other_bytes_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for data in (b"caf\xc3\xa9\n", b"a\0b", b"a\r\n"):
                with open(folder + "/bad.cu", "wb") as file:
                    file.write(data)
                result = self.embed(folder, [folder + "/bad.cu"])
                self.assertEqual(result.returncode, 1, data)
                self.assertIn("bad.cu", result.stderr)


class Runner(unittest.TestCase):
    GOOD = "[ RUN      ] a\n[       OK ] a\n"

    def judge(self, status, output):
        passed, failed, skipped = runner.judge(runner.Test("x", []), status, output)
        return passed, failed, len(skipped)

    def test_counts(self):
        self.assertEqual(self.judge(0, self.GOOD), (1, 0, 0))
        self.assertEqual(self.judge(0, self.GOOD + "[ RUN      ] b\n[  SKIPPED ] b\n[  SKIPPED ] 1 test(s), listed below:\n"
                                    "[  SKIPPED ] b\n"), (1, 0, 1))
        self.assertEqual(self.judge(1, self.GOOD + "[ RUN      ] b\n[  FAILED  ] b\n[  FAILED  ] b\n"), (1, 1, 0))

    def test_skips_carry_their_reasons(self):
        output = "[ RUN      ] a\n  SKIPPED: no GPU: x\n[  SKIPPED ] a\n[ RUN      ] b\n[  SKIPPED ] b\n"
        self.assertEqual(runner.count_cases(output), (0, 0, ["no GPU: x", "b gives no reason"]))

    def test_crash_after_success_is_a_failure(self):
        self.assertEqual(self.judge(1, self.GOOD), (1, 1, 0))

    def test_case_that_never_ends_is_a_failure(self):
        self.assertEqual(self.judge(-11, self.GOOD + "[ RUN      ] b\n"), (1, 1, 0))

    def test_no_case_is_a_failure(self):
        self.assertEqual(self.judge(0, "hello\n"), (0, 1, 0))

    def test_no_gpu_is_a_skip_only_on_success(self):
        self.assertEqual(self.judge(0, "SKIPPED: no GPU\n"), (0, 0, 1))
        self.assertEqual(self.judge(1, "SKIPPED: no GPU\n"), (0, 1, 0))

    def test_processor_seconds_of_a_test_and_its_children(self):
        busy = runner.run(runner.Test("x", ["sh", "-c", "timeout 1 sh -c 'while :; do :; done'; exit 0"], "check"), 60)
        idle = runner.run(runner.Test("x", ["sleep", "1"], "check"), 60)
        self.assertEqual([(r.passed, r.failed) for r in (busy, idle)], [(1, 0)] * 2)
        self.assertGreater(busy.wall_s, 0.9)
        self.assertGreater(busy.processor_s, 5 * idle.processor_s)
        self.assertLess(idle.processor_s, 0.5)

    def test_the_sum_is_the_last_line(self):
        results = [runner.Result(runner.Test("quick%d" % i, []), 1, 0, wall_s=i, processor_s=2.0 * i) for i in range(12)]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertFalse(runner.print_sum(results))
        lines = printed.getvalue().splitlines()
        self.assertEqual(lines[-1], "12 passed, 0 failed")
        self.assertEqual([line.split()[0] for line in lines if line.startswith("  quick")], ["quick%d" % i for i in range(11, 1, -1)])
        self.assertRegex(lines[1], r"  quick11 +11.00 s, +22.00 s of processor")

    def test_long_tests_exist(self):
        names = {test.name for test in runner.all_tests("build")}
        self.assertLessEqual(set(runner.LONG), names)
        self.assertLessEqual({*runner.NOT_UNDER_SANITIZERS}, names)
        self.assertFalse({"san/" + name for name in runner.NOT_UNDER_SANITIZERS} & names)

    def test_hang_missing_program_and_signal(self):
        hang = runner.run(runner.Test("x", ["sleep", "60"]), 1)
        busy = runner.run(runner.Test("x", ["sh", "-c", "sh -c 'while :; do :; done'"]), 3)
        missing = runner.run(runner.Test("x", ["build/no_such_test"]), 1)
        signal = runner.run(runner.Test("x", ["sh", "-c", "kill -SEGV $$"]), 10)
        self.assertEqual([(r.passed, r.failed) for r in (hang, busy, missing, signal)], [(0, 1)] * 4)
        self.assertIn("stopped after 1 s, 0.0 s of processor time", hang.output)
        self.assertRegex(busy.output, r"stopped after 3 s, (?!0\.0 )\d+\.\d s of processor time")
        self.assertIn("hint: ninja", missing.output)
        self.assertIn("signal 11", signal.output)


if __name__ == "__main__":
    unittest.main()

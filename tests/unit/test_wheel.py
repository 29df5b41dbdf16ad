#!/usr/bin/env python3
"""Tests of tools/wheel.py: the wheel of the build, installed without network into a fresh environment, plans and answers in another folder;
its tag is that of the symbols it needs, and what would need another library is refused.

Needs pip and setuptools, as build/venv has them. Run after ninja: tests/unit/test_wheel.py [--builddir DIR]
"""
import glob
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = builddir.take()
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "tools")]
import wheel as maker  # noqa: E402  # tools/wheel.py

TINY = os.path.join(ROOT, "tests/tiny")
ASK = """import re, sys, verbatim
with verbatim.Engine(sys.argv[1], sys.argv[2], device="cpu", threads=1) as engine:
    print(engine.generate(["add: 820+9918="], max_tokens=8)[0].text)
with open("/proc/self/maps") as maps:
    print(*sorted(set(re.findall(r"/\\\\S+/(?:libverbatim|libjansson|libpcre2|libxxhash)\\\\S*", maps.read()))))
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.at = folder.name
        made = subprocess.run([os.path.join(ROOT, "tools/wheel.py"), "--builddir", BUILDDIR, "--output", os.path.join(cls.at, "dist")],
                              cwd=cls.at, capture_output=True, text=True)
        if made.returncode != 0:
            raise AssertionError(made.stdout + made.stderr)
        [cls.path] = glob.glob(os.path.join(cls.at, "dist", "*.whl"))
        venv.create(os.path.join(cls.at, "fresh"), with_pip=False)
        cls.bin = os.path.join(cls.at, "fresh", "bin")
        installed = cls.run_in(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", os.path.join(cls.bin, "python"),
                               "install", "--no-index", cls.path)
        if installed.returncode != 0:
            raise AssertionError(installed.stdout + installed.stderr)

    @classmethod
    def run_in(cls, *command, **variables):
        environment = {key: value for key, value in os.environ.items() if key not in ("VERBATIM_LIBRARY", "PYTHONPATH")}
        return subprocess.run(command, cwd=cls.at, env={**environment, **variables}, capture_output=True, text=True)

    def must(self, *command, **variables):
        result = self.run_in(*command, **variables)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_plans_and_answers_from_another_folder(self):
        program, plan = os.path.join(self.bin, "verbatim"), os.path.join(self.at, "plan")
        self.must(program, "plan", TINY, "--config", TINY + "/deploy.yaml", "-o", plan, "--quiet")
        said = self.must(program, "run", plan, TINY, "add: 820+9918=", "--max-tokens", "8", "--device", "cpu", "--quiet")
        self.assertIn("10738", said)
        self.assertEqual(self.must(program, "version"), self.must(os.path.join(self.bin, "python"), "-m", "verbatim", "version"))
        self.assertEqual(self.run_in(program, "nonsense").returncode, 2)  # the program's exit code
        text, maps = self.must(os.path.join(self.bin, "python"), "-c", ASK.replace("\\\\", "\\"), plan, TINY).splitlines()
        self.assertIn("10738", text)
        self.assertGreaterEqual(len(maps.split()), 4)
        for path in maps.split():
            self.assertIn("/site-packages/verbatim/lib", path)

    def test_the_tag_is_that_of_its_symbols(self):
        """By objdump's list of symbols, where wheel.py reads the table of versions."""
        name = os.path.basename(self.path)
        version, minor = re.fullmatch(r"verbatim-([\d.]+)-py3-none-manylinux_2_(\d+)_x86_64\.whl", name).groups()
        self.assertIn("verbatim %s," % version, self.must(os.path.join(self.bin, "verbatim"), "version"))
        [package] = glob.glob(os.path.join(self.at, "fresh/lib/python3*/site-packages/verbatim"))
        found = set()
        for path in [package + "/bin/verbatim", *glob.glob(package + "/*.so.*")]:
            symbols = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
            found |= {int(number) for number in re.findall(r"\(GLIBC_2\.(\d+)[.\d]*\)", symbols)}
        self.assertEqual(int(minor), max(found))
        self.assertTrue(os.stat(package + "/bin/verbatim").st_mode & stat.S_IXOTH)

    def test_holds_the_licences(self):
        with zipfile.ZipFile(self.path) as file:
            names = {os.path.basename(name): name for name in file.namelist() if ".dist-info/" in name}
            for name in ("LICENSE", "NOTICE"):
                with open(os.path.join(ROOT, name), "rb") as own:
                    self.assertEqual(file.read(names[name]), own.read())
            self.assertLess(sum(info.compress_size for info in file.infolist()), 8 << 20)

    def test_what_would_not_load_elsewhere_is_refused(self):
        folder = os.path.join(self.at, "refused")
        os.makedirs(folder)
        shutil.copy(os.path.join(ROOT, BUILDDIR, "wheel", maker.configure.soname()), folder)
        with self.assertRaisesRegex(SystemExit, r"libverbatim\.so\.\S+: .*needs libjansson\S+, libpcre2-8\S+, libxxhash\S+; hint"):
            maker.platform_tag(folder)
        result = self.run_in(os.path.join(ROOT, "tools/wheel.py"), "--builddir", "nothing")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"(?m)^wheel\.py: .*hint: ninja$")

    def test_without_its_program_it_hands_over_or_says_what_to_do(self):
        [inside] = glob.glob(os.path.join(self.at, "fresh/lib/python3*/site-packages/verbatim/bin/verbatim"))
        os.rename(inside, inside + ".away")
        self.addCleanup(os.rename, inside + ".away", inside)
        other = os.path.join(self.at, "other")
        os.makedirs(other)
        result = self.run_in(os.path.join(self.bin, "verbatim"), "version", PATH=self.bin + ":" + other)
        self.assertEqual(result.returncode, 1)
        self.assertIn("expected the program in", result.stderr)
        with open(os.path.join(other, "verbatim"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho other $1\n")
        os.chmod(os.path.join(other, "verbatim"), 0o755)
        self.assertEqual(self.must(os.path.join(self.bin, "verbatim"), "version", PATH="%s:%s:/bin" % (self.bin, other)), "other version\n")


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tests of `pip install tools/python`: in a fresh environment the package answers, and where it could not the build fails with what to run.

Needs pip and setuptools, as build/venv has them, and no network. Run after ninja, from the root of the repository:
tests/unit/test_package.py [--builddir DIR]
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = builddir.take()
ASK = """import sys, verbatim
with verbatim.Engine(sys.argv[1], sys.argv[2], device="cpu", threads=1) as engine:
    print(verbatim.__file__, engine.generate(["add: 820+9918="], max_tokens=8)[0].text)
"""


class Package(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = self.folder.name
        self.tree = os.path.join(self.at, "tree")  # a copy, since a build writes into the folder of the package
        shutil.copytree(os.path.join(ROOT, "tools", "python"), os.path.join(self.tree, "tools", "python"),
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        os.makedirs(os.path.join(self.tree, "engine"))
        shutil.copy(os.path.join(ROOT, "engine", "verbatim.h"), os.path.join(self.tree, "engine"))
        venv.create(os.path.join(self.at, "fresh"), with_pip=False)
        self.python = os.path.join(self.at, "fresh", "bin", "python")

    def build_library(self, kept=True):
        os.makedirs(os.path.join(self.tree, "build"))
        if kept:
            for name in ("libverbatim.so", "libverbatim.so.0.1"):
                shutil.copy(os.path.join(ROOT, BUILDDIR, name), os.path.join(self.tree, "build"), follow_symlinks=False)

    def run_in(self, *command, **variables):
        environment = {key: value for key, value in os.environ.items() if key not in ("VERBATIM_LIBRARY", "PYTHONPATH")}
        return subprocess.run(command, cwd=self.at, env={**environment, **variables}, capture_output=True, text=True)

    def install(self, **variables):
        """What `pip install` does, in its two steps: the fresh environment has no setuptools and may fetch none."""
        pip, plain = [sys.executable, "-m", "pip", "--disable-pip-version-check"], ["--no-index", "--no-deps"]
        wheels = os.path.join(self.at, "wheels")
        built = self.run_in(*pip, "wheel", *plain, "--no-build-isolation", "-w", wheels, os.path.join(self.tree, "tools", "python"),
                            **variables)
        if built.returncode != 0:
            return built
        names = os.listdir(wheels)
        self.assertEqual([name.endswith("-any.whl") for name in names], [False])  # it holds a library of this machine
        return self.run_in(*pip, "--python", self.python, "install", *plain, os.path.join(wheels, names[0]))

    def ask(self, **variables):
        plan = os.path.join(self.at, "plan")
        made = self.run_in(os.path.join(ROOT, BUILDDIR, "verbatim"), "plan", os.path.join(ROOT, "tests/tiny"), "--config",
                           os.path.join(ROOT, "tests/tiny/deploy.yaml"), "-o", plan, "--quiet")
        self.assertEqual(made.returncode, 0, made.stderr)
        return self.run_in(self.python, "-c", ASK, plan, os.path.join(ROOT, "tests/tiny"), **variables)

    def test_a_fresh_environment_gets_the_built_library(self):
        self.build_library()
        result = self.install()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        shutil.rmtree(self.tree)
        result = self.ask()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("site-packages", result.stdout)
        self.assertIn("10738", result.stdout)

    def test_a_named_library_is_taken(self):
        result = self.install(VERBATIM_LIBRARY=os.path.join(ROOT, BUILDDIR, "libverbatim.so"))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("10738", self.ask().stdout)

    def test_without_a_library_the_build_fails_with_what_to_run(self):
        result = self.install()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("ninja build/libverbatim.so", result.stdout + result.stderr)
        self.build_library(kept=False)
        with open(os.path.join(self.tree, "build", "libverbatim.so.0.1"), "w", encoding="utf-8") as file:
            file.write("not a library")
        result = self.install()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("ninja build/libverbatim.so", result.stdout + result.stderr)
        self.assertNotEqual(self.ask().returncode, 0)

    def test_the_package_of_a_repository_uses_its_build(self):
        path = os.path.join(self.tree, "tools", "python")
        self.assertNotEqual(self.ask(PYTHONPATH=path).returncode, 0)
        self.build_library()
        self.assertIn("10738", self.ask(PYTHONPATH=path).stdout)


if __name__ == "__main__":
    unittest.main()

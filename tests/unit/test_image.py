#!/usr/bin/env python3
"""Tests of tools/deploy/Dockerfile: builds the image without CUDA (`--target cpu`), and its program plans and answers in a container.

Needs an engine that can build, docker with its daemon or podman, and its network; takes minutes there. Run it as test_image.py. Read next:
test_deploy.py, which checks what the recipe says.
"""
import os
import shutil
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAME = "verbatim-test-image"


def engine():
    """The first engine that answers; None: there is none."""
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, timeout=60, check=False).returncode == 0:
            return name
    return None


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = engine()
        if not cls.engine:
            raise unittest.SkipTest("no container engine answers: docker's daemon or podman")
        subprocess.run([cls.engine, "build", "--target", "cpu", "-f", "tools/deploy/Dockerfile", "-t", NAME, "."], cwd=ROOT, check=True)
        cls.addClassCleanup(subprocess.run, [cls.engine, "rmi", "-f", NAME], capture_output=True, check=False)

    def run_in(self, *words):
        return subprocess.run([self.engine, "run", "--rm", "--network", "none", "-v", ROOT + "/tests:/tests:ro", *words], cwd=ROOT,
                              capture_output=True, text=True, timeout=300, check=False)

    def test_the_program_answers_as_another_user(self):
        steps = "id -u && verbatim plan /tests/tiny --config /tests/tiny/deploy.yaml -o /var/lib/verbatim/p --quiet && " \
                "verbatim run /var/lib/verbatim/p /tests/tiny 'add: 820+9918=' --max-tokens 8 --quiet"
        result = self.run_in("--entrypoint", "sh", NAME, "-c", steps)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines()[0], "10001")
        self.assertIn("10738", result.stdout)

    def test_the_licences_are_there_and_a_missing_model_is_named(self):
        result = self.run_in("--entrypoint", "sh", NAME, "-c", "ls /usr/local/share/doc/verbatim")
        self.assertEqual(result.stdout.split(), ["LICENSE", "NOTICE"])
        result = self.run_in(NAME)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("/srv/verbatim/model", result.stderr)


if __name__ == "__main__":
    unittest.main()

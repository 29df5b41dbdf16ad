#!/usr/bin/env python3
"""Pins the packages from PyPI that the checks of tests/serve need: pin.py > tests/serve/requirements.txt

Asks pip for the dependencies of the roots below, for each version of Python that may build the environment, and prints name, version and
the hash of each package's wheel. Owns the roots and the exclusions: packages that a root names but never loads in these checks, because
they are large or exist only as source. pip's resolver does the rest. Read next: tools/setup_python.sh, requirements.txt.
"""
import json
import subprocess
import sys

ROOTS = ["lm_eval[api]==0.4.13", "openai==3.54.0", "inspect_ai==0.3.285", "transformers==5.23.0", "tiktoken==0.14.0",
         "pydantic-ai-slim[openai]==2.68.0", "jsonschema==4.26.0"]
PYTHONS = ["3.11", "3.12", "3.13"]  # Debian 12, Ubuntu 24.04, Debian 13
LEFT_OUT = set("""absl-py aiobotocore aioitertools beautifulsoup4 boto3 cloudpickle debugpy defusedxml evaluate hf-xet joblib jsonpath-ng
jsonref mdit-py-plugins more-itertools narwhals nltk pathlib-abc rouge-score s3fs s3transfer scikit-learn scipy
shellingham soupsieve sqlitedict threadpoolctl typer universal-pathlib word2number wrapt zipp""".split())

HEAD = """# What the checks of tests/serve need from PyPI, written by tests/serve/pin.py: lm-evaluation-harness, inspect-ai, the
# OpenAI client, pydantic-ai and jsonschema, as published, and those packages that they load here. Wheels alone, for
# CPython %s on x86-64 Linux.
"""


def report(*arguments):
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["install"]


def name_of(item):
    return item["metadata"]["name"].lower().replace("_", "-").replace(".", "-")


def main():
    pins = {name_of(item): item["metadata"]["version"] for item in report(*ROOTS) if name_of(item) not in LEFT_OUT}
    hashes = {name: [] for name in pins}
    for python in PYTHONS:
        wheels = report("--no-deps", "--only-binary=:all:", "--python-version", python, "--target", "unused",
                        *["%s==%s" % pin for pin in pins.items()])
        for item in wheels:
            digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
            if digest not in hashes[name_of(item)]:
                hashes[name_of(item)].append(digest)
    print(HEAD % ", ".join(PYTHONS), end="")
    for name, version in sorted(pins.items()):
        print(" \\\n    ".join(["%s==%s" % (name, version)] + ["--hash=sha256:" + digest for digest in hashes[name]]))


if __name__ == "__main__":
    main()

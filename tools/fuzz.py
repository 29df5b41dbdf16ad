#!/usr/bin/env python3
"""Runs the fuzz targets, one after the other: fuzz.py [--seconds S] [--filter REGEX] [--builddir DIR]

Every target starts from its committed seeds (tests/fuzz/seeds/<target>) and the corpus of earlier runs (<builddir>/fuzz/corpus/<target>).
Prints a row per target for the table of tests/fuzz/README.md. An input that breaks a target is stored in <builddir>/fuzz/found, its report
is printed, and the exit status is 1. Build first: ninja fuzz.
"""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path[:0] = [ROOT]
import configure  # noqa: E402  (the list of targets lives there)

INPUT_BYTES_MAX = {"plan": 65536, "tokenizer_json": 16384}  # all other targets: INPUT_BYTES
INPUT_BYTES = 8192
SEED_FOLDERS = {"config": ["tests/data/configs"]}  # in addition to those of tests/fuzz/seeds
REPORT_LINES_SHOWN = 60
NO_JSON = ("deploy", "eval_task", "serve_router", "serve_parse", "tiktoken", "split_pattern", "text", "plan", "trace", "hub")


def write_dictionary(name, path):
    """Writes the dictionary of the target, with JSON's words if it reads JSON. Returns libFuzzer's option."""
    sources = ["tests/fuzz/words/%s.dict" % word for word in ([name] if name in NO_JSON else [name, "json"])]
    with open(path, "w", encoding="utf-8") as output:
        for source in filter(os.path.exists, sources):
            with open(source, encoding="utf-8") as words:
                output.write(words.read())
    return ["-dict=" + path] if os.path.getsize(path) else []


def run(name, seconds, builddir):
    """(status, output of the target)"""
    program = "%s/fuzz/fuzz_%s" % (builddir, name)
    if not os.path.exists(program):
        return 1, "%s is not built; hint: ninja fuzz" % program
    corpus, found = "%s/fuzz/corpus/%s" % (builddir, name), "%s/fuzz/found/" % builddir
    for folder in (corpus, found):
        os.makedirs(folder, exist_ok=True)
    command = [program, "-max_total_time=%d" % seconds, "-max_len=%d" % INPUT_BYTES_MAX.get(name, INPUT_BYTES), "-timeout=10",
               "-rss_limit_mb=2048", "-artifact_prefix=%s%s-" % (found, name), corpus]
    command += write_dictionary(name, "%s/fuzz/%s.dict" % (builddir, name))
    command += filter(os.path.isdir, ["tests/fuzz/seeds/" + name] + SEED_FOLDERS.get(name, []))
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return result.returncode, result.stdout.decode("utf-8", "replace")


def print_result(name, seconds, status, output):
    done = re.search(r"#(\d+)\s+DONE\s+cov: (\d+) ft: (\d+) corp: (\d+)/", output)
    if status == 0 and done:
        print("| %s | %d | %s | %s | %s | %s |" % ((name, seconds) + done.groups()), flush=True)
        return True
    print("%s: status %d" % (name, status))
    report = [line for line in output.split("\n") if not re.match(r"#\d+\s+(?:NEW|REDUCE|RELOAD|pulse)\b", line)]
    print("\n".join("  | " + line for line in report[-REPORT_LINES_SHOWN:]), flush=True)
    return False


def parse_arguments():
    parser = argparse.ArgumentParser(description="Runs the fuzz targets.")
    parser.add_argument("--seconds", type=int, default=600, help="for each target (default: 600)")
    parser.add_argument("--filter", default="", help="run the targets whose name matches this regular expression")
    parser.add_argument("--builddir", default="build")
    return parser.parse_args()


def main():
    args = parse_arguments()
    os.chdir(ROOT)
    targets = [os.path.basename(path)[len("fuzz_"):-2] for path in configure.fuzz_sources()]
    names = [name for name in targets if re.search(args.filter, name)]
    print("| target | seconds | runs | edges | features | inputs kept |\n|---|---|---|---|---|---|", flush=True)
    good = [print_result(name, args.seconds, *run(name, args.seconds, args.builddir)) for name in names]
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

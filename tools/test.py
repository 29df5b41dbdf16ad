#!/usr/bin/env python3
"""Runs every test and sums up: test.py [--jobs N] [--filter REGEX] [--list] [--json FILE] [--timeout S] [--builddir DIR]

What is run: every C test as built, then again under the sanitizers, the GPU tests (they say SKIPPED where there is no GPU),
and the checks written in Python. Building is ninja's work (ninja all tests san). The last line is the sum:
"N passed, N failed", with ", N skipped" when something could not run here; each skip is listed with its reason.
"""
import argparse
import concurrent.futures
import ctypes
import filecmp
import glob
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path[:0] = [ROOT, os.path.join(ROOT, "tools")]
import configure  # noqa: E402  (the source lists live there)
import kernelc  # noqa: E402

OUTPUT_LINES_SHOWN = 120
# The fake stack of gcc before 13.3 misaligns objects of more than 32 bytes' alignment (GCC bug 110027).
ASAN_OPTIONS = "detect_stack_use_after_return=0"
SKIP_REASON = r"^\s*SKIPPED: (.*)$"

SCHEDULE_SECONDS = 60  # of random schedules; tests/schedule/README.md
SHORT_LOAD = ["--self-test", "--clients", "64", "--seconds", "4"]
VENV = "build/venv/bin/python"
FUZZ_SECONDS = 4  # for each target; tests/fuzz/README.md lists the long runs

ON_GPU_TOO = ["audit", "diff", "engines", "golden", "invariance", "invariance_sparse", "nonfinite", "schedules", "scoring", "sparse",
              "start_check", "trace", "verify"]  # end-to-end tests that run once more on the GPU


class Test:
    """One process to run. kind: "cmocka" (counted case by case) or "check" (one result, by exit status)."""

    def __init__(self, name, command, kind="cmocka", needs=None):
        self.name, self.command, self.kind = name, command, kind
        self.needs = needs  # what the check cannot do without: a function that returns "" or why it is skipped


class Result:
    def __init__(self, test, passed, failed, skipped, seconds, output):
        self.test, self.passed, self.failed, self.skipped = test, passed, failed, skipped  # skipped: [reason]
        self.seconds, self.output = seconds, output

    def as_dict(self):
        return {"name": self.test.name, "passed": self.passed, "failed": self.failed, "skipped": len(self.skipped),
                "seconds": round(self.seconds, 3)}


def c_tests(root, prefix):
    for kind in configure.TEST_KINDS:
        for source in configure.test_sources(kind):
            yield Test(prefix + source[len("tests/"):-2], ["%s/tests/%s" % (root, os.path.basename(source)[:-2])])


def all_tests(builddir):
    python = sys.executable
    tests = list(c_tests(builddir, "")) + list(c_tests(builddir + "/san", "san/"))
    tests += [Test(source[len("tests/"):-2], ["%s/gpu_tests/%s" % (builddir, os.path.basename(source)[:-2])])
              for source in configure.test_sources("gpu")]
    tests += [Test("gpu/" + name, ["%s/tests/test_%s" % (builddir, name), "--device", "gpu"]) for name in ON_GPU_TOO]
    tests += [
        Test("check/tidy", [python, "tools/tidy.py", "--builddir", builddir], "check"),
        Test("check/tidy_self_test", [python, "tools/tidy.py", "--self-test"], "check"),
        Test("check/build", [python, "tests/unit/test_build.py", "--builddir", builddir], "check"),
        Test("check/peers", [python, "tests/unit/test_peers.py"], "check"),
        Test("check/wgmma", [python, "tests/unit/test_wgmma_check.py"], "check"),
        Test("check/bench_report", [python, "tests/unit/test_bench_report.py"], "check"),
        Test("check/libverbatim", [python, "tests/unit/test_libverbatim.py", "--builddir", builddir], "check"),
        Test("check/install", [python, "tests/unit/test_install.py", "--builddir", builddir], "check",
             lambda: lacks_programs("pkg-config")),
        Test("check/python", [python, "tests/unit/test_python.py", "--builddir", builddir], "check"),
        Test("check/guides", [python, "tests/unit/test_guides.py", "--builddir", builddir, "Guides"], "check"),
        Test("check/guide_serving", [python, "tests/unit/test_guides.py", "--builddir", builddir, "Serving"], "check", lacks_curl),
        Test("check/guide_openai", [VENV, "tests/unit/test_guides.py", "--builddir", builddir, "OpenAI"], "check", lacks_venv),
    ]
    tests += [
        Test("check/kernels", [python, "tools/kernelc.py"], "check", lacks_nvrtc),
        Test("check/oracle_sparse", [VENV, "tests/oracle/check_sparse.py", "--builddir", builddir], "check", lacks_venv),
        Test("check/tokenizer_compare", [VENV, "tools/tokenizer_compare.py", "--builddir", builddir], "check", lacks_venv),
        Test("check/deploy", [python, "tests/unit/test_deploy.py", "Files"], "check", lacks_yaml),
        Test("check/deploy_unit", [python, "tests/unit/test_deploy.py", "--builddir", builddir, "Unit"], "check",
             lambda: lacks_programs("systemd-analyze") or lacks_yaml()),
        Test("check/deploy_server", [python, "tests/unit/test_deploy.py", "--builddir", builddir, "Server"], "check",
             lacks_yaml),
        Test("check/lm_eval", [VENV, "tests/unit/test_lm_eval.py", "--builddir", builddir], "check", lacks_venv),
    ]
    tests += serve_tests(builddir)
    tests.append(Test("check/schedule_fuzz", ["%s/schedule_fuzz" % builddir, "--seconds", str(SCHEDULE_SECONDS)], "check"))
    if builddir == "build":
        clang = "./configure.py --cc clang --builddir build/clang && ninja -f build/clang/build.ninja all tests"
        tests.append(Test("check/clang", ["sh", "-c", clang], "check", lacks_clang))
        fuzz = "ninja fuzz && tools/fuzz.py --seconds %d" % FUZZ_SECONDS
        tests.append(Test("check/fuzz", ["sh", "-c", fuzz], "check", lacks_clang))
        tests.append(Test("check/try", ["tools/try.sh"], "check", lacks_recording))
        tests.append(Test("check/controls", [python, "tools/controls.py", "--quick"], "check"))
        tests.append(Test("check/controls_self_test", [python, "tools/controls.py", "--self-test"], "check"))
    return tests


def serve_tests(builddir):
    """The server as others' clients see it: tests/serve/README.md."""
    checks = [("load", sys.executable, "load.py", []), ("load_self_test", sys.executable, "load.py", SHORT_LOAD),
              ("lm_eval", VENV, "check_lm_eval.py", []), ("lm_eval_self_test", VENV, "check_lm_eval.py", ["--self-test"]),
              ("openai", VENV, "check_openai.py", []), ("inspect", VENV, "check_inspect.py", [])]
    tests = [Test("check/serve_" + name, [python, "tests/serve/" + file, "--builddir", builddir, *options], "check",
                  lacks_venv if python == VENV else None) for name, python, file, options in checks]
    return tests + [Test("gpu/serve_lm_eval", [VENV, "tests/serve/check_lm_eval.py", "--builddir", builddir, "--gpu"], "check",
                         lambda: lacks_gpu() or lacks_venv())]


def lacks_gpu():
    try:
        return "" if ctypes.CDLL("libcuda.so.1").cuInit(0) == 0 else "no GPU: the driver does not start"
    except OSError:
        return "no GPU: no NVIDIA driver"


def lacks_venv():
    made_from, wanted = "build/venv/made-from.txt", "tests/serve/requirements.txt"
    return "" if os.path.exists(made_from) and filecmp.cmp(made_from, wanted, False) else "build/venv is not made; tools/setup_python.sh"


def lacks_nvrtc():
    try:
        ctypes.CDLL(kernelc.find_nvrtc())
    except OSError as error:
        return "no NVRTC: %s" % error
    return ""


def lacks_programs(*names):
    missing = [name for name in names if not shutil.which(name)]
    return " and ".join(missing) + " not installed" if missing else ""


def lacks_curl():
    if not shutil.which("curl"):
        return "curl is not installed"
    found = subprocess.run(["curl", "--help", "all"], capture_output=True, text=True, check=False).stdout
    return "" if "--json" in found else "curl has no --json: 7.82 or later"


def lacks_clang():
    return "" if shutil.which("clang") else "clang is not installed"


def lacks_yaml():
    return "" if importlib.util.find_spec("yaml") else "the Python module yaml is not installed"


def lacks_recording():
    return "" if os.path.exists("tests/golden/tiny.manifest") else "tests/golden/tiny.manifest is not recorded"


def count_cases(output):
    """(passed, failed, [skip reasons]) from cmocka's lines; a case that was started and never ended counts as failed."""
    preamble, *cases = re.split(r"^\[ RUN      \] ", output, flags=re.M)
    passed = len(re.findall(r"^\[       OK \] ", output, re.M))
    skipped = []
    for case in cases:
        name = case.split("\n")[0]
        if re.search(r"^\[  SKIPPED \] %s$" % re.escape(name), case, re.M):
            reason = re.search(SKIP_REASON, case, re.M) or re.search(SKIP_REASON, preamble, re.M)
            skipped.append(reason.group(1) if reason else "%s gives no reason" % name)
    return passed, len(cases) - passed - len(skipped), skipped


def judge(test, status, output):
    """(passed, failed, [skip reasons]). A process that fails without a failed case, or runs no case, is a failure."""
    if test.kind == "check":
        return (1, 0, []) if status == 0 else (0, 1, [])
    passed, failed, skipped = count_cases(output)
    nothing_ran = passed + failed + len(skipped) == 0
    whole = re.search(SKIP_REASON, output, re.M)
    if whole and status == 0 and nothing_ran:
        return 0, 0, [whole.group(1)]
    if nothing_ran or (status != 0 and failed == 0):
        failed += 1
    return passed, failed, skipped


def processor_seconds(session):
    """Of the session's processes and the children they have waited for: tells one that waits from one that is slow."""
    ticks = 0
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()  # from the state on, proc(5)'s third
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(test, timeout_s):
    begin = time.monotonic()
    lacking = test.needs() if test.needs else ""
    if lacking:
        return Result(test, 0, 0, [lacking], 0.0, "")
    environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="stdout", UBSAN_OPTIONS="print_stacktrace=1",
                       ASAN_OPTIONS=ASAN_OPTIONS)
    try:
        process = subprocess.Popen(test.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        return Result(test, 0, 1, [], 0.0, "cannot run %s: %s; hint: ninja all tests san\n" % (test.command[0], error))
    try:
        outputs = process.communicate(timeout=timeout_s)
        note = "" if process.returncode >= 0 else "\nended by signal %d\n" % -process.returncode
    except subprocess.TimeoutExpired:
        note = "\nstopped after %d s, %.0f s of processor time\n" % (timeout_s, processor_seconds(process.pid))
        os.killpg(process.pid, signal.SIGKILL)
        outputs = process.communicate()
    # Only stdout is counted: the two streams would cut each other's lines.
    counted, messages = [data.decode("utf-8", "replace") for data in outputs]
    passed, failed, skipped = judge(test, process.returncode, counted)
    return Result(test, passed, failed, skipped, time.monotonic() - begin, counted + messages + note)


def print_result(result):
    word = "FAIL" if result.failed else "skip" if result.skipped and not result.passed else "ok"
    print("%-4s %-40s %4d passed %7.2f s" % (word, result.test.name, result.passed, result.seconds), flush=True)
    if result.failed:
        lines = result.output.rstrip("\n").split("\n")
        left_out = max(0, len(lines) - OUTPUT_LINES_SHOWN)
        print("     command: " + " ".join(result.test.command))
        if left_out:
            print("     (%d earlier lines left out)" % left_out)
        for line in lines[left_out:]:
            print("     | " + line)


def print_skips(results):
    """One line per reason; what follows its first colon is the case's own matter."""
    programs = {}
    for result in results:
        for reason in result.skipped:
            programs.setdefault(reason.split(":")[0], []).append(result.test.name)
    for reason, names in sorted(programs.items()):
        distinct = sorted(set(names))
        more = ", and %d more programs" % (len(distinct) - 6) if len(distinct) > 6 else ""
        print("SKIPPED %d: %s (%s%s)" % (len(names), reason, ", ".join(distinct[:6]), more))


def print_sum(results):
    print_skips(results)
    for result in results:
        if result.failed:
            print("FAILED %s: %d" % (result.test.name, result.failed))
    passed, failed = sum(r.passed for r in results), sum(r.failed for r in results)
    skipped = sum(len(r.skipped) for r in results)
    tail = ", %d skipped" % skipped if skipped else ""
    print("%d passed, %d failed%s" % (passed, failed, tail), flush=True)
    return failed or not passed


def parse_arguments():
    parser = argparse.ArgumentParser(description="Runs every test and sums up.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--filter", default="", help="run the tests whose name holds this regular expression")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--json", metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--timeout", type=int, default=1200, metavar="S", help="seconds one test may take (default: 1200)")
    parser.add_argument("--builddir", default="build")
    return parser.parse_args()


def main():
    args = parse_arguments()
    os.chdir(ROOT)
    tests = [test for test in all_tests(args.builddir) if re.search(args.filter, test.name)]
    if args.list:
        print("\n".join(test.name for test in tests))
        return 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = []
        for future in concurrent.futures.as_completed([pool.submit(run, test, args.timeout) for test in tests]):
            results.append(future.result())
            print_result(results[-1])
    results.sort(key=lambda result: result.test.name)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump([result.as_dict() for result in results], file, indent=1)
            file.write("\n")
    return 1 if print_sum(results) else 0


if __name__ == "__main__":
    sys.exit(main())

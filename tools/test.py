#!/usr/bin/env python3
"""Runs every test and sums up: test.py [--jobs N] [--filter REGEX] [--list] [--json FILE] [--timeout S] [--builddir DIR]

Runs every C test, most of them again under the sanitizers, the GPU tests (they say SKIPPED if there is no GPU), and the checks written in
Python; long ones first, so that all processors are busy to the end. Build first: ninja all tests san. The report ends with the ten slowest
tests and the sum in the last line: "N passed, N failed", with ", N skipped" if something could not run here; each skip is listed with its
reason. Read next: tests/README.md.
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
import tempfile
import threading
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

SCHEDULE_SECONDS = 10  # seconds of random schedules; tests/schedule/README.md
LOAD = ["--seconds", "3"]
SHORT_LOAD = ["--self-test", "--clients", "64", "--seconds", "1.5"]
VENV = "build/venv/bin/python"
FUZZ_SECONDS = 1  # seconds for each target; tests/fuzz/README.md lists the long runs

# End-to-end tests that compare the bits of a few requests in many schedules or under many plans: minutes of instrumented code that
# san/schedule_fuzz also runs. It draws schedules over every model structure, with top-k lists, e4m3 caches that are dequantized, several
# ranks, prediction layers and fast-prefill. And minutes of the planner, which the fuzz targets config, deploy and plan run, and of
# evaluations, as test_eval.
NOT_UNDER_SANITIZERS = ["e2e/test_golden", "e2e/test_invariance", "e2e/test_invariance_grouped", "e2e/test_invariance_sparse",
                        "e2e/test_mtp", "e2e/test_nonfinite", "e2e/test_prefill", "e2e/test_published", "e2e/test_ranks",
                        "e2e/test_schedules", "e2e/test_sparse", "e2e/test_widen", "unit/planner/test_check_drafts",
                        "unit/planner/test_check_ranks", "unit/planner/test_check_sparse", "unit/planner/test_planner",
                        "unit/planner/test_planner_attention"]
SANITIZED_SCHEDULES = 30  # a run of at least 30 fails if it has no preemption, no reuse and so on

# These start first, led by those that keep several processors busy; the others follow in list order.
LONG = ["check/controls", "check/fuzz", "check/kernels", "check/serve_lm_eval", "unit/self_check/test_self_check", "check/aarch64",
        "check/serve_load_self_test", "check/serve_load", "e2e/test_eval", "e2e/test_ranks", "e2e/test_schedules", "check/clang",
        "check/tokenizer_compare", "e2e/test_prefill", "e2e/test_invariance_sparse", "e2e/test_widen", "check/oracle_sparse",
        "check/oracle_mtp", "check/serve_inspect", "san/e2e/test_eval", "san/schedule_fuzz", "check/schedule_fuzz", "check/try",
        "check/lm_eval", "check/guides", "check/serve_clients", "check/serve_lm_eval_self_test", "check/guide_serving"]
SLOWEST_SHOWN = 10

ON_GPU_TOO = ["audit", "diff", "engines", "golden", "invariance", "invariance_sparse", "nonfinite", "schedules", "scoring", "sparse",
              "start_check", "trace", "verify"]  # end-to-end tests that run once more on the GPU


class Test:
    """One process to run. kind: "cmocka" (counted case by case) or "check" (one result, by exit status)."""

    def __init__(self, name, command, kind="cmocka", needs=None):
        self.name, self.command, self.kind = name, command, kind
        self.needs = needs  # a requirement of the check: a function that returns "" or the reason for a skip


class Result:
    def __init__(self, test, passed, failed, skipped=(), wall_s=0.0, processor_s=0.0, output=""):
        self.test, self.passed, self.failed, self.skipped = test, passed, failed, skipped  # skipped: [reason]
        self.wall_s, self.processor_s, self.output = wall_s, processor_s, output

    def as_dict(self):
        return {"name": self.test.name, "passed": self.passed, "failed": self.failed, "skipped": len(self.skipped),
                "wall_s": round(self.wall_s, 3), "processor_s": round(self.processor_s, 3)}


def c_tests(folder, *kinds, prefix="", without=()):
    for source in configure.test_sources(*kinds):
        name = source[len("tests/"):-2]
        if name not in without:
            yield Test(prefix + name, ["%s/%s" % (folder, os.path.basename(name))])


def all_tests(builddir):
    python, san = sys.executable, builddir + "/san"
    tests = [*c_tests(builddir + "/tests", *configure.TEST_KINDS),
             *c_tests(san + "/tests", *configure.TEST_KINDS, prefix="san/", without=NOT_UNDER_SANITIZERS),
             Test("san/schedule_fuzz", [san + "/schedule_fuzz", "--schedules", str(SANITIZED_SCHEDULES), "--seed", "2"], "check"),
             *c_tests(builddir + "/gpu_tests", "gpu")]
    tests += [Test("gpu/" + name, ["%s/tests/test_%s" % (builddir, name), "--device", "gpu"]) for name in ON_GPU_TOO]
    tests += [
        Test("check/tidy", [python, "tools/tidy.py", "--builddir", builddir], "check"),
        Test("check/tidy_self_test", [python, "tools/tidy.py", "--self-test"], "check"),
        *python_checks(builddir),
    ]
    tests += [
        Test("check/kernels", [python, "tools/kernelc.py", "--each-value"], "check", lacks_nvrtc),
        Test("check/oracle_sparse", [VENV, "tests/oracle/check_sparse.py", "--builddir", builddir], "check", lacks_venv),
        Test("check/oracle_mtp", [VENV, "tests/oracle/check_mtp.py", "--builddir", builddir], "check", lacks_venv),
        Test("check/tokenizer_compare", [VENV, "tools/tokenizer_compare.py", "--builddir", builddir], "check", lacks_venv),
    ]
    tests += serve_tests(builddir)
    tests.append(Test("check/schedule_fuzz", ["%s/schedule_fuzz" % builddir, "--seconds", str(SCHEDULE_SECONDS)], "check"))
    if builddir == "build":
        # Not optimised but for the CPU's ops, which have this option of their own: nothing of it runs, and warnings come before.
        clang = "./configure.py --cc clang --builddir build/clang '--flags=-O0 -g0 -U_FORTIFY_SOURCE'"
        clang += " && ninja -f build/clang/build.ninja unfuzzed"
        tests.append(Test("check/clang", ["sh", "-c", clang], "check", lacks_clang))
        fuzz = "ninja fuzz && tools/fuzz.py --seconds %d" % FUZZ_SECONDS
        tests.append(Test("check/fuzz", ["sh", "-c", fuzz], "check", lacks_clang))
        tests.append(Test("check/try", ["tools/try.sh"], "check", lacks_recording))
        tests.append(Test("check/controls", [python, "tools/controls.py", "--quick"], "check"))
        tests.append(Test("check/controls_self_test", [python, "tools/controls.py", "--self-test"], "check"))
    return sorted(tests, key=lambda test: LONG.index(test.name) if test.name in LONG else len(LONG))


def python_checks(builddir):
    """tests/unit/test_*.py, split if its classes have different requirements. One that inspects the build takes --builddir."""
    parts = {  # file -> [name of the check, class, its requirement]
        "aarch64": [("aarch64", "", lacks_aarch64)],
        "macos": [("macos", "", lambda: lacks_aarch64() or lacks_macos())],
        "deploy": [("deploy", "Files", lacks_yaml), ("deploy_server", "Server", lacks_yaml),
                   ("deploy_unit", "Unit", lambda: lacks_programs("systemd-analyze") or lacks_yaml())],
        "full_disk": [("full_disk", "Limits", None), ("full_disk_tmpfs", "Disks", lacks_mount)],
        "guides": [("guides", "Guides", None), ("guide_serving", "Serving", lacks_curl), ("guide_openai", "OpenAI", lacks_venv)],
        "image": [("image", "", lacks_engine)],
        "install": [("install", "", lambda: lacks_programs("pkg-config"))],
        "import": [("import", "", lacks_venv)],
        "lm_eval": [("lm_eval", "", lacks_venv)],
        "package": [("package", "", lacks_venv)],
        "schema_judge": [("schema_judge", "", lacks_venv)],
        "wheel": [("wheel", "", lacks_venv)],
    }
    for path in configure.found("tests/unit/test_*.py"):
        name = os.path.basename(path)[len("test_"):-len(".py")]
        options = ["--builddir", builddir] if "--builddir" in configure.read(path) else []
        for check, part, needs in parts.get(name, [(name, "", None)]):
            python = VENV if needs == lacks_venv else sys.executable
            yield Test("check/" + check, [python, path, *options, *filter(None, [part])], "check", needs)


def serve_tests(builddir):
    """The server as seen by third-party clients: tests/serve/README.md."""
    checks = [("load", sys.executable, "load.py", LOAD), ("load_self_test", sys.executable, "load.py", SHORT_LOAD),
              ("lm_eval", VENV, "check_lm_eval.py", []), ("lm_eval_self_test", VENV, "check_lm_eval.py", ["--self-test"]),
              ("openai", VENV, "check_openai.py", []), ("answers", VENV, "check_answers.py", []), ("inspect", VENV, "check_inspect.py", []),
              ("clients", VENV, "check_clients.py", [])]
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


def lacks_engine():
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            return ""
    return "no container engine answers: docker's daemon or podman"


def lacks_aarch64():
    lacking = lacks_programs("aarch64-linux-gnu-gcc", "qemu-aarch64")
    if not lacking and not os.path.exists("build/aarch64/debian/made-from.txt"):
        lacking = "no arm64 libraries"
    return lacking and lacking + "; tools/setup_aarch64.sh"


def lacks_macos():
    return "" if os.path.exists("build/macos/zig/made-from.txt") else "no compiler and libraries for macOS; tools/setup_macos.sh"


def lacks_curl():
    if not shutil.which("curl"):
        return "curl is not installed"
    found = subprocess.run(["curl", "--help", "all"], capture_output=True, text=True, check=False).stdout
    return "" if "--json" in found else "curl has no --json: 7.82 or later"


def lacks_mount():
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False).returncode != 0:
            return "no file system can be mounted: not root"
        subprocess.run(["umount", folder], check=True)
    return ""


def lacks_clang():
    return "" if shutil.which("clang") else "clang is not installed"


def lacks_yaml():
    return "" if importlib.util.find_spec("yaml") else "the Python module yaml is not installed"


def lacks_recording():
    return "" if os.path.exists("tests/golden/tiny.manifest") else "tests/golden/tiny.manifest is not recorded"


def count_cases(output):
    """(passed, failed, [skip reasons]) from cmocka's lines; a case that started and never ended counts as failed."""
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
    """Processor seconds of the session's processes and the children they have waited for: distinguishes a process that waits from a slow
    one."""
    ticks = 0
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()  # fields from the state on, the third field in proc(5)
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(test, timeout_s):
    begin = time.monotonic()
    lacking = test.needs() if test.needs else ""
    if lacking:
        return Result(test, 0, 0, [lacking])
    environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="stdout", UBSAN_OPTIONS="print_stacktrace=1", ASAN_OPTIONS=ASAN_OPTIONS,
                       OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # tests run beside each other, on small matrices
    with tempfile.TemporaryFile() as counted, tempfile.TemporaryFile() as messages:
        try:
            process = subprocess.Popen(test.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=counted,
                                       stderr=messages, start_new_session=True)
        except OSError as error:
            return Result(test, 0, 1, output="cannot run %s: %s; hint: ninja all tests san\n" % (test.command[0], error))
        note, processor_s = wait(process, timeout_s)
        # Only stdout is parsed: the two streams would break each other's lines.
        outputs = [file.seek(0) or file.read().decode("utf-8", "replace") for file in (counted, messages)]
    passed, failed, skipped = judge(test, process.returncode, outputs[0])
    return Result(test, passed, failed, skipped, time.monotonic() - begin, processor_s, outputs[0] + outputs[1] + note)


def wait(process, timeout_s):
    """(text to add to its output, processor seconds of it and of the children it has waited for)"""
    stopped = []

    def stop():
        stopped.append(processor_seconds(process.pid))
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(timeout_s, stop)
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    if stopped:
        return "\nstopped after %d s, %.1f s of processor time\n" % (timeout_s, stopped[0]), stopped[0]
    note = "" if process.returncode >= 0 else "\nended by signal %d\n" % -process.returncode
    return note, usage.ru_utime + usage.ru_stime


def print_result(result):
    word = "FAIL" if result.failed else "skip" if result.skipped and not result.passed else "ok"
    print("%-4s %-40s %4d passed %7.2f s, %7.2f s of processor" % (word, result.test.name, result.passed, result.wall_s,
                                                                  result.processor_s), flush=True)
    if result.failed:
        lines = result.output.rstrip("\n").split("\n")
        left_out = max(0, len(lines) - OUTPUT_LINES_SHOWN)
        print("     command: " + " ".join(result.test.command))
        if left_out:
            print("     (%d earlier lines left out)" % left_out)
        for line in lines[left_out:]:
            print("     | " + line)


def print_skips(results):
    """One line per reason; the text after its first colon belongs to the case."""
    programs = {}
    for result in results:
        for reason in result.skipped:
            programs.setdefault(reason.split(":")[0], []).append(result.test.name)
    for reason, names in sorted(programs.items()):
        distinct = sorted(set(names))
        more = ", and %d more programs" % (len(distinct) - 6) if len(distinct) > 6 else ""
        print("SKIPPED %d: %s (%s%s)" % (len(names), reason, ", ".join(distinct[:6]), more))


def print_slowest(results):
    print("The slowest tests:")
    for result in sorted(results, key=lambda result: -result.wall_s)[:SLOWEST_SHOWN]:
        print("  %-40s %7.2f s, %7.2f s of processor" % (result.test.name, result.wall_s, result.processor_s))
    print("All %d tests: %.0f s of processor" % (len(results), sum(result.processor_s for result in results)))


def print_sum(results):
    print_slowest(results)
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
    parser.add_argument("--filter", default="", help="run the tests whose name matches this regular expression")
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

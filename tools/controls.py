#!/usr/bin/env python3
"""Plants faults in copies of the sources and shows which tests find them: controls.py [--quick | --check] [--fault NAME]... [--jobs N]

tests/controls/faults.toml holds the faults, DETECTORS below the tests that should find them, and tests/controls/README.md the matrix of
both, which a run without options rewrites. Every detector first runs on the sound build: one that fails there proves nothing.

  --check    compares with the recorded matrix and leaves it unchanged
  --quick    for each fault only the cheapest detector that finds it by the recorded matrix, and every detector once
  --fault    only this fault; prints its row. May be given again
  --list     prints the faults and stops
  --self-test  plants a harmless edit, a fault that crashes, and edits that do not apply or compile: none may count as found

The tree is never changed: each fault has a folder of links in build/controls/ with its changed files. Only objects made from those files
are recompiled; the rest comes from the build (run "ninja all tests" first). Exit status: 0; 1 if no detector finds a fault, an edit no
longer applies or compiles, the sound build fails, or the matrix differs; 2 for usage errors.
"""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "tools")]
from controls_build import Broken, Ninja, Variant  # noqa: E402

README_COLUMNS = 140
FAULTS, README = "tests/controls/faults.toml", "tests/controls/README.md"
BEGIN, END = "<!-- tools/controls.py writes from here -->", "<!-- to here -->"
TIMEOUT_S = 240  # for a test or another program: several times what the slowest takes on an idle machine
YES, NO, NOT_APPLICABLE, CRASH, TIMEOUT = "yes", "no", "n.a.", "crash", "timeout"
# Ends of a program that are not a comparison: a signal or an assertion, in it or in a program that it runs.
CRASH_MARKS = (r"^ended by signal|Test failed with exception|programmer error:|^\S*verbatim \w+ ended with -1:|"
               r"the process ended in the midst")
MISMATCH_EXIT = 8  # fail_exit_code(ERR_MISMATCH)


def load_module(name):
    """Imports tools/<name>.py under another name, since Python has a package called test."""
    spec = importlib.util.spec_from_file_location("tools_" + name, os.path.join(ROOT, "tools", name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


test = load_module("test")

# === Detectors: test programs ===============================================================================================


class Outcome:
    """text: the part of the detector that found it, or what happened instead."""

    def __init__(self, word, text=""):
        self.word, self.text, self.seconds = word, text, 0.0


class Case:
    """A build with a fault, or with none, to be given to a detector. variant: with the self-check off; checked: with it, as shipped."""

    def __init__(self, name, fault, variant, checked, scene):
        self.name = name
        self.fault, self.variant, self.checked, self.scene = fault, variant, checked, scene
        self.lock, self.recorded = threading.Lock(), None


def run_tests(variant, names):
    """Runs test programs one after the other until one finds something."""
    outcome = Outcome(NOT_APPLICABLE)
    for name in names:
        if variant.lacks_fault("tests/" + name):
            continue
        variant.program("verbatim")
        command = ["env", "TMPDIR=%s/%s/tmp" % (ROOT, variant.folder), variant.program("tests/" + name)]
        outcome = judge_test(name, test.run(test.Test(name, command), TIMEOUT_S))
        if outcome.word != NO:
            return outcome
    return outcome


def judge_test(name, result):
    if "\nstopped after" in result.output:
        return Outcome(TIMEOUT, name)
    crash = re.search(CRASH_MARKS, result.output, re.M)
    if crash:
        return Outcome(CRASH, "%s: %s" % (name, result.output[crash.start():].split("\n")[0]))
    if not result.failed:
        return Outcome(NO)
    if re.findall(r"^\[ *(\w*) *\] ", result.output, re.M)[-1:] == ["RUN"]:  # for example a signal in another thread than the case's
        return Outcome(CRASH, "%s: ended in the midst of a case" % name)
    cases = dict.fromkeys(re.findall(r"^\[  FAILED  \] (\w+)$", result.output, re.M))
    cases.pop("gpu_cases", None)  # runs only on some computers
    return Outcome(YES, "%s: %s" % (name, ", ".join(cases)))


def kernel_tests(fault):
    """The tests of the ops whose reference is changed; the parts of cpu/product belong to the ops that multiply."""
    stems = [stem_of(edit["file"]) for edit in fault["edits"]]
    stems = ["gemm" if stem.startswith("h16") else stem for stem in stems]
    return sorted({"test_" + stem for stem in stems} & set(all_kernel_tests()))


def all_kernel_tests():
    return [stem_of(path) for path in test.configure.test_sources("kernel")]


def detect_kernels(case):
    names = kernel_tests(case.fault) if case.fault else all_kernel_tests()
    return run_tests(case.variant, names)


def detect_with(*names):
    return lambda case: run_tests(case.variant, names)


# === Detectors: programs ====================================================================================================

DEPLOY = """max-num-seqs: 8
max-num-batched-tokens: 256
max-model-len: 640
kv_pages: 10
chunk_tokens: 64
ladder: [1, 2, 4, 8]
"""
GROUPS = "group_chunks: 2\n"  # of latent attention
CONFIG = "tests/controls/model.json"  # used unless a fault names another
VOCAB = 384


def stem_of(path):
    return os.path.splitext(os.path.basename(path))[0]


def is_latent(config):
    with open(config, encoding="utf-8") as file:
        return "kv_lora_rank" in json.load(file)


class Scene:
    """A random model, its plan and requests, made by the sound build at first use."""

    def __init__(self, ninja, config):
        self.builddir, self.folder, self.config = ninja.builddir, "%s/scene-%s" % (ninja.scratch, stem_of(config)), config
        self.lock, self.ready = threading.Lock(), False
        self.model, self.plan = self.folder + "/model", self.folder + "/plan"
        self.requests, self.few = self.folder + "/requests.jsonl", self.folder + "/few.jsonl"

    def sound(self, name):
        return "%s/%s" % (self.builddir, name)

    def prepare(self):
        with self.lock:
            if self.ready:
                return
            shutil.rmtree(self.folder, ignore_errors=True)
            os.makedirs(self.folder)
            with open(self.folder + "/deploy.yaml", "w", encoding="ascii") as file:
                file.write(DEPLOY + (GROUPS if is_latent(self.config) else ""))
            write_requests(self.requests, 28, 500, 40)
            write_requests(self.few, 8, 150, 12)
            for words in ([self.sound("random_model"), self.config, self.model],
                          [self.sound("verbatim"), "plan", self.model, "--config", self.folder + "/deploy.yaml", "-o", self.plan]):
                code, output = call(words)
                if code != 0:
                    raise Broken("%s: exit %s: %s" % (" ".join(words), code, output))
            self.ready = True


def write_requests(path, count, prompt_max, tokens_max):
    """Prompts of a few blocks of 64 tokens in many orders, and an odd rest: shared prefixes, and blocks that only look shared. The last
    requests have short prompts and long answers, and outgrow the pages."""
    state = 1

    def below(limit):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % limit

    blocks = [[3 + below(VOCAB - 3) for _ in range(64)] for _ in range(3)]
    with open(path, "w", encoding="ascii") as file:
        for i in range(count):
            grows = i >= 20
            length = 50 + below(12) if grows else 1 + below(prompt_max if i % 3 == 0 else prompt_max // 2)
            prompt = sum((blocks[below(3)] for _ in range(length // 64)), [])
            prompt += [3 + below(VOCAB - 3) for _ in range(length % 64)]
            request = {"id": "c%02d" % i, "prompt_ids": prompt, "max_tokens": 90 * grows + 1 + below(tokens_max),
                       "ignore_eos": True, "logprobs": i % 3}
            if i % 4:
                request.update({"temperature": 1.0, "seed": i, "top_k": [0, 20, 60][i % 3], "top_p": 0.95})
            if i % 5 == 2:
                request.update({"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.2})
            if i % 5 == 3:
                request["logit_bias"] = {str(below(VOCAB)): 3.0, str(VOCAB // 2): -2.0}
            file.write(json.dumps({key: value for key, value in request.items() if value != 0}) + "\n")


def call(words):
    """(exit code, "timeout" or the negative number of a signal; output)."""
    process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        output = process.communicate(timeout=TIMEOUT_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return TIMEOUT, ""
    return process.returncode, output.decode("utf-8", "replace")


def judge_program(words, code_found, proof=""):
    """code_found: the exit code for wrong bits; proof: text in the output in that case. NO is exit 0; anything else is not a finding."""
    code, output = call(words)
    name = "%s %s" % (os.path.basename(words[0]), words[1]) if os.path.basename(words[0]) == "verbatim" else os.path.basename(words[0])
    if code == TIMEOUT:
        return Outcome(TIMEOUT, name)
    if code == 0:
        return Outcome(NO)
    mark = re.search(CRASH_MARKS, output, re.M)
    if "it did not come to an end" in output:
        return Outcome(TIMEOUT, name)
    if code != code_found or mark or not re.search(proof, output, re.M):
        return Outcome(CRASH, "%s: exit %d: %s" % (name, code, " ".join(output[mark.start() if mark else -300:].split())[:300]))
    return Outcome(YES)


def run_words(case, variant, requests, *more):
    scene = case.scene
    scene.prepare()
    return [variant.program("verbatim"), "run", scene.plan, scene.model, "--jsonl", requests, "--output", "jsonl", "--device", "cpu",
            "--threads", "2", "--quiet", *more]


def detect_self_check(case):
    if case.checked.lacks_fault("verbatim"):
        return Outcome(NOT_APPLICABLE)
    words = run_words(case, case.checked, case.scene.few, "--batch", "1")
    code, output = call(words)
    probe = re.search(r'self-check: (probe "[^"]*" of op \w+)', output)
    if probe and code == MISMATCH_EXIT:
        return Outcome(YES, probe.group(1))
    return Outcome(NO) if code == 0 or code == MISMATCH_EXIT else judge_program(words, None)


def record(case, path):
    """Makes, once, a receipt of requests that share steps and pages. NaN in the logits is refused; then there is no receipt."""
    with case.lock:
        if case.recorded is None:
            stats = path + ".stats"
            words = run_words(case, case.variant, case.scene.requests, "--receipt", path, "--stats", stats)
            case.recorded = judge_program(words, MISMATCH_EXIT)
            if not case.fault and case.recorded.word == NO:
                expect_witnesses(stats)
        return case.recorded


def expect_witnesses(path):
    """For the sound build: a run without preemption shows nothing about preemption."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        steps = json.load(file)["steps"]
    for name in ("mixed_steps", "reused_tokens", "preemptions", "evicted_pages"):
        if not steps[name]:
            raise Broken("the requests that write_requests makes lead to no %s any more" % name)


def detect_verify(elsewhere):
    """Verifies the receipt of the faulty build: with itself or, elsewhere, with the sound build."""

    def run(case):
        if case.variant.lacks_fault("verbatim"):
            return Outcome(NOT_APPLICABLE)
        receipt = "%s/%s.receipt" % (case.variant.folder, stem_of(case.scene.config))
        made = record(case, receipt)
        if made.word != NO:
            return Outcome(made.word, made.text)
        program = case.scene.sound("verbatim") if elsewhere else case.variant.program("verbatim")
        return judge_program([program, "verify", receipt, case.scene.plan, case.scene.model, "--device", "cpu", "--quiet"], MISMATCH_EXIT)

    return run


def detect_audit(case):
    """A trace of the faulty build, whose ops the sound build recomputes."""
    if case.variant.lacks_fault("verbatim"):
        return Outcome(NOT_APPLICABLE)
    trace = "%s/%s.trace" % (case.variant.folder, stem_of(case.scene.config))
    made = judge_program(run_words(case, case.variant, case.scene.few, "--trace", trace, "--trace-values", "all"), MISMATCH_EXIT)
    if made.word != NO:
        return made
    return judge_program([case.scene.sound("verbatim"), "audit", trace, case.scene.plan, case.scene.model, "--quiet"], MISMATCH_EXIT)


def detect_fuzz(case):
    if case.variant.lacks_fault("schedule_fuzz"):
        return Outcome(NOT_APPLICABLE)
    models = case.scene.builddir + "/controls/models"
    words = [case.variant.program("schedule_fuzz"), "--schedules", "108", "--seed", "1", "--jobs", "1", "--shrink-seconds", "0",
             "--case-seconds", "60", "--model-dir-cache", models]
    return judge_program(words, 1, r"^FAILED: r\d+: ")


class Detector:
    """run(case) -> Outcome; also for the sound build, where case.fault is None."""

    def __init__(self, name, run):
        self.name, self.run = name, run


# Cheap ones first: --quick takes the first that finds a fault. tests/controls/README.md describes each.
DETECTORS = [
    Detector("self-check", detect_self_check),
    Detector("scheduler", detect_with("test_pages", "test_schedule_pages", "test_schedule", "test_schedule_random")),
    Detector("kernels", detect_kernels),
    Detector("audit", detect_audit),
    Detector("verify here", detect_verify(False)),
    Detector("verify elsewhere", detect_verify(True)),
    Detector("fuzzer", detect_fuzz),
    Detector("golden", detect_with("test_golden")),
    Detector("requests", detect_with("test_requests")),
    Detector("invariance", detect_with("test_invariance", "test_invariance_sparse", "test_invariance_grouped")),
]

SCENIC = ("self-check", "audit", "verify here", "verify elsewhere")  # detectors that run a scene

# === The matrix =============================================================================================================


def load_faults():
    """The faults, and the edits that turn the self-check off."""
    with open(os.path.join(ROOT, FAULTS), "rb") as file:
        table = tomllib.load(file)
    faults = table["fault"]
    names = [fault["name"] for fault in faults]
    for fault in faults:
        fault.setdefault("config", CONFIG)
        edits_are_whole = all(set(edit) == {"file", "find", "replace"} for edit in fault["edits"])
        if set(fault) != {"name", "what", "gpu", "edits", "config"} or not edits_are_whole:
            raise Broken("%s: %s: expected name, what, gpu and edits of file, find, replace; maybe config" % (FAULTS, fault.get("name")))
        if names.count(fault["name"]) > 1 or fault["name"].startswith("none"):
            raise Broken("%s: %s is there twice" % (FAULTS, fault["name"]))
    return faults, table["self_check_off"]


def sound_names(faults):
    """name of a sound case -> its scene's configuration: every configuration that a fault uses."""
    others = sorted({fault["config"] for fault in faults} - {CONFIG})
    return {"none": CONFIG, **{"none, %s" % stem_of(config): config for config in others}}


def matrix_text(faults, rows):
    """The part of README.md between the marks. rows: name of a fault or of a sound case -> name of a detector -> Outcome."""
    names = [detector.name for detector in DETECTORS]
    lines = ["", "| fault | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for name in list(sound_names(faults)) + [fault["name"] for fault in faults]:
        label = name.replace("none", "no fault", 1) if name.startswith("none") else "`%s`" % name
        lines.append("| %s | " % label + " | ".join(rows[name].get(column, Outcome(NOT_APPLICABLE)).word for column in names) + " |")
    lines += ["", "What each is, where a GPU implementation gets the same wrong, and the tests that find it:", ""]
    for fault in faults:
        outcomes = [(column, rows[fault["name"]][column]) for column in names]
        found = [column + (" (%s)" % outcome.text if outcome.text else "") for column, outcome in outcomes if outcome.word == YES]
        text = "- `%s`: %s. *GPU:* %s. *Found by:* %s." % (fault["name"], fault["what"], fault["gpu"], "; ".join(found) or "nothing")
        lines += textwrap.wrap(text, README_COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines + ["", ""])


def split_readme():
    with open(os.path.join(ROOT, README), encoding="utf-8") as file:
        text = file.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise Broken("%s: expected the lines %s and %s once" % (README, BEGIN, END))
    before, rest = text.split(BEGIN)
    middle, after = rest.split(END)
    return before + BEGIN + "\n", middle[1:], END + after


def committed_matrix():
    """name of a fault -> name of a detector -> word."""
    table = [[cell.strip().strip("`") for cell in line.strip("|").split("|")]
             for line in split_readme()[1].split("\n") if line.startswith("| ")]
    if not table:
        raise Broken("%s holds no matrix; hint: tools/controls.py" % README)
    return {row[0]: dict(zip(table[0][1:], row[1:])) for row in table[1:]}


# === Running ================================================================================================================


def run_pair(case, detector):
    begin = time.monotonic()
    outcome = detector.run(case)
    outcome.seconds = time.monotonic() - begin
    return case.name, detector.name, outcome


def make_cases(ninja, faults, off):
    """name -> Case. By the sound cases the others know which programs have the fault."""
    sound, checked, names = Variant(ninja, "none", off), Variant(ninja, "none-checked", []), sound_names(faults)
    scenes = {config: Scene(ninja, config) for config in names.values()}
    cases = {name: Case(name, None, sound, checked, scenes[config]) for name, config in names.items()}
    for fault in faults:
        cases[fault["name"]] = Case(fault["name"], fault, Variant(ninja, fault["name"], off + fault["edits"], sound),
                                    Variant(ninja, fault["name"] + "-checked", fault["edits"], checked), scenes[fault["config"]])
    return cases


def run_all(cases, pairs, jobs):
    """pairs: [(name of a case, detector)]. Returns name -> name of a detector -> Outcome, and a list of what is broken."""
    rows, broken = {name: {} for name in cases}, {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(run_pair, cases[name], detector) for name, detector in pairs]):
            try:
                name, column, outcome = future.result()
            except Broken as error:
                broken[str(error)] = True
                continue
            rows[name][column] = outcome
            print("%-8s %-26s %-17s %6.1f s  %s" % (outcome.word, name, column, outcome.seconds, outcome.text), flush=True)
    return rows, list(broken)


def choose_pairs(faults, quick):
    """The pairs to run. --quick: the suite runs the sound build anyway."""
    if not quick:
        pairs = [(name, detector) for name in ["none"] + [fault["name"] for fault in faults] for detector in DETECTORS]
        return pairs + [(name, detector) for name in list(sound_names(faults))[1:] for detector in DETECTORS if detector.name in SCENIC]
    matrix, pairs = committed_matrix(), []
    finders = {fault["name"]: [d for d in DETECTORS if matrix.get(fault["name"], {}).get(d.name) == YES] for fault in faults}
    for name, found_by in finders.items():
        if not found_by:
            raise Broken("%s has no row in %s that finds it; hint: tools/controls.py" % (name, README))
        pairs.append((name, found_by[0]))
    for detector in DETECTORS:
        able = [name for name, found_by in finders.items() if detector in found_by]
        if able and detector not in [used for _, used in pairs]:  # what most detectors find shows soonest
            pairs.append((max(able, key=lambda name: len(finders[name])), detector))
    return pairs


def complaints(rows, quick):
    """The errors in the outcomes. quick: all of them are known to find something."""
    for name, row in rows.items():
        for column, outcome in row.items():
            if name.startswith("none") and outcome.word != NO:
                yield "the sound build (%s) fails in %s: %s %s" % (name, column, outcome.word, outcome.text)
            if quick and outcome.word != YES:
                yield "%s does not find %s any more; hint: tools/controls.py" % (column, name)
        if not name.startswith("none") and not any(outcome.word == YES for outcome in row.values()):
            yield "%s is found by nothing: %s" % (name, ", ".join("%s %s" % (c, o.word) for c, o in row.items()))


def settle_readme(text, check):
    """Writes the matrix, or says how it differs."""
    before, middle, after = split_readme()
    if middle == text:
        return []
    if not check:
        with open(os.path.join(ROOT, README), "w", encoding="utf-8") as file:
            file.write(before + text + after)
        return []
    old, new = middle.split("\n"), text.split("\n")
    return ["%s differs; hint: tools/controls.py" % README] + ["- " + line for line in old if line not in new] + \
        ["+ " + line for line in new if line not in old]


# Edits of one op, and the required outcome of one detector for each: a word, or the start of an error.
SELF_TEST_FILE, SELF_TEST_FIND = "engine/cpu/moe_fold.c", "f32 sum = 0.0f;"  # its test is a short one
SELF_TEST = [
    ("wrong", SELF_TEST_FIND, "f32 sum = 1.0f;", YES),
    ("harmless", SELF_TEST_FIND, "f32 sum = 2 * 0.0f;", NO),
    ("crashing", SELF_TEST_FIND, "f32 sum = a->topk_weight[(u64)1 << 60];", CRASH),
    ("asserting", SELF_TEST_FIND, "f32 sum = 0.0f;\n    ASSERT(row > a->step->token_count);", CRASH),
    ("outdated", "f32 sum = 0;", "", "outdated: expected this text once"),
    ("ambiguous", "gate", "up", "ambiguous: expected this text once"),
    ("uncompiled", SELF_TEST_FIND, "nothing;", "uncompiled: cc"),
]


def self_test(ninja, off):
    """Number of SELF_TEST's edits with another outcome."""
    failures = 0
    faults = [{"name": name, "config": CONFIG, "edits": [{"file": SELF_TEST_FILE, "find": find, "replace": replace}]}
              for name, find, replace, _ in SELF_TEST]
    cases, kernels = make_cases(ninja, faults, off), [detector for detector in DETECTORS if detector.name == "kernels"][0]
    for name, _, _, expected in SELF_TEST:
        try:
            found = kernels.run(cases[name]).word
        except Broken as error:
            found = str(error)
        good = found == expected if expected in (YES, NO, CRASH) else found.startswith(expected)
        failures += not good
        print("%s %s: %s" % ("ok  " if good else "FAIL", name, found.split("\n")[0][:100]))
    print("%d cases, %d failed" % (len(SELF_TEST), failures))
    return failures


def parse_arguments():
    parser = argparse.ArgumentParser(description="Plants faults and sees what finds them.")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true",
                      help="for each fault only the cheapest detector that is known to find it, and every detector once")
    mode.add_argument("--check", action="store_true", help="compare with the matrix in %s instead of writing it" % README)
    mode.add_argument("--self-test", action="store_true", help="check that harmless and broken edits do not count as found faults")
    mode.add_argument("--list", action="store_true", help="print the faults and stop")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME", help="only this fault; the matrix is not changed")
    parser.add_argument("--json", metavar="FILE", help="also write the outcomes as JSON")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--builddir", default="build")
    args = parser.parse_args()
    faults, off = load_faults()
    unknown = set(args.fault) - {fault["name"] for fault in faults}
    if unknown:
        parser.error("no fault is called %s; hint: --list" % ", ".join(sorted(unknown)))
    return args, [fault for fault in faults if not args.fault or fault["name"] in args.fault], off


def main():
    args, faults, off = parse_arguments()
    if args.list:
        print("\n".join("%-28s %s" % (fault["name"], fault["what"]) for fault in faults))
        return 0
    os.chdir(ROOT)
    ninja = Ninja(args.builddir)
    try:
        if args.self_test:
            return 1 if self_test(ninja, off) else 0
        return run(ninja, args, faults, off)
    finally:
        shutil.rmtree(ninja.scratch, ignore_errors=True)


def run(ninja, args, faults, off):
    """The exit status."""
    if args.json:
        open(args.json, "w", encoding="utf-8").close()  # fails now rather than at the end
    pairs = choose_pairs(faults, args.quick)
    rows, wrong = run_all(make_cases(ninja, faults, off), pairs, args.jobs)
    wrong += complaints({name: row for name, row in rows.items() if row}, args.quick)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({name: {c: {"outcome": o.word, "by": o.text, "seconds": round(o.seconds, 3)} for c, o in row.items()}
                       for name, row in rows.items()}, file, indent=1)
            file.write("\n")
    if not wrong and not args.quick and not args.fault:
        wrong = settle_readme(matrix_text(faults, rows), args.check)
    print("\n".join(wrong + ["%d faults, %s" % (len(faults), "%d complaints" % len(wrong) if wrong else "each is found")]))
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as error:
        print("controls.py: %s" % error, file=sys.stderr)
        sys.exit(1)

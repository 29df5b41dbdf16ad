#!/usr/bin/env python3
"""several.py - plans of several ranks on all GPUs of a machine: several.py BINARIES OUTPUT [--seconds S] [--only WORD,WORD]

BINARIES holds verbatim, random_model, schedule_fuzz, gpu_tests/test_gpu_ranks and, where the system has none, libcmocka.so.0. First the
tests, as many at a time as there are GPUs for them: golden receipts on 1, 2, 4 ... GPUs, the test of faults, schedules. Then the timings,
one at a time: four models with random weights, decode steps and prompts, and the exchanges alone; and, where they fit, the largest models
whole, with contexts of 1,024 and 8,192 tokens, whose memory on each GPU must be what the plan says. OUTPUT gets a text of each part, the
JSON of each timing and sums.json. Each part has a timeout, and no part begins after --seconds. The last line counts parts; the exit code
is 1 if any failed. Uses only the standard library. Runs in the root of the repository. Read next: tools/test.py.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

GOLDEN_DEPLOY = """max-num-seqs: 64
max-num-batched-tokens: 512
max-model-len: 1024
kv_pages: 512
group_chunks: 2
ladder: [1, 2, 4, 8, 16, 32, 64]
"""
GOLDEN = {"v3": 64, "v2lite": 64, "v32": 64, "v32-fp8": 64, "v3-fp8": 64, "glm52-fp8": 64, "v32-heads-fp8": 128}  # chunk-tokens
OWNERS = "divide-rows-from: 5\nattention-by-requests-from: 16\n"  # owners of rows compute and attend, where they can
GOLDEN_TINY = {"tiny": [], "sampled": ["--batch", "5", "--direct"], "asked": ["--batch", "64", "--poison"]}

BATCHES = (1, 16, 64, 256)
BENCH_DEPLOY = """max-num-seqs: 256
max-num-batched-tokens: 8192
max-model-len: 33024
ladder: [1, 4, 16, 64, 256]
"""
FP8_ROWS = "kv-cache-dtype: fp8_ds_mla\n"
E4M3 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
# configuration, layers of an e4m3 model (0: all; None: bf16, whole), deployment
SHAPES = {"flash": ("glm-4.7-flash.json", None, ""), "v3": ("deepseek-v3.json", 8, FP8_ROWS),
          "v32": ("deepseek-v3.2.json", 8, FP8_ROWS), "v2lite": ("deepseek-v2-lite.json", None, "")}
# For 8 GPUs of 141 GB: 256 sequences of 1,024 tokens, or 64 of 8,192, fit next to the weights; half as many next to Kimi-K2's.
WHOLE = {"whole-v3": ("deepseek-v3.json", 0, FP8_ROWS + "kv-pages: 8512\n"),
         "whole-v32": ("deepseek-v3.2.json", 0, FP8_ROWS + "kv-pages: 8512\n"),
         "whole-kimi-k2": ("kimi-k2.json", 0, FP8_ROWS + "kv-pages: 4224\n")}


class Skip(Exception):
    """What a part cannot do here, and why."""


class Part:
    """gpus: how many it uses; run(self): returns the remark of a success, raises Skip, or fails with any other exception."""

    def __init__(self, name, gpus, timeout_s, run):
        self.name, self.gpus, self.timeout_s, self.run = name, gpus, timeout_s, run
        self.visible, self.state, self.remark, self.wall_s = "", "failed", "", 0.0


class Several:
    def __init__(self, args, scratch):
        self.args, self.scratch = args, scratch
        self.gpus, self.memory_bytes = find_gpus(args)  # of the smallest
        self.begin = time.monotonic()
        self.lock = threading.Condition()
        self.free = list(range(len(self.gpus)))
        self.parts = []

    def counts(self):
        """1, 2, 4 ... GPUs."""
        return [1 << i for i in range(5) if 1 << i <= len(self.gpus)]

    def binary(self, name):
        return os.path.join(os.path.abspath(self.args.binaries), name)

    def left_s(self):
        return self.args.seconds - (time.monotonic() - self.begin)

    def command(self, part, words, good=(0,)):
        """Output of a command, which is added to the part's file. Fails with its last lines."""
        libraries = os.pathsep.join(filter(None, [os.path.abspath(self.args.binaries), os.environ.get("LD_LIBRARY_PATH")]))
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES=part.visible, LD_LIBRARY_PATH=libraries, CMOCKA_MESSAGE_OUTPUT="stdout",
                           XDG_CACHE_HOME=os.path.join(self.scratch, "cache"))
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True, text=True, errors="replace")
        end = ""
        try:
            output = process.communicate(timeout=max(1.0, min(part.timeout_s, self.left_s() + 20)))[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
            end = "stopped after its time"
        with open(os.path.join(self.args.output, part.name + ".txt"), "a", encoding="utf-8") as file:
            file.write("$ CUDA_VISIBLE_DEVICES=%s %s\n%s" % (part.visible, " ".join(words), output))
        if end or process.returncode not in good:
            tail = " | ".join(output.strip().split("\n")[-4:])
            raise RuntimeError("%s: %s" % (end or "exit code %d" % process.returncode, tail[-600:]))
        return output

    def run(self, part):
        begin = time.monotonic()
        try:
            if self.left_s() < 5:
                raise RuntimeError("no time left")
            part.remark = part.run(part)
            part.state = "passed"
        except Skip as skip:
            part.state, part.remark = "skipped", str(skip)
        except Exception as error:  # each part's failure is counted, whatever it is
            part.state, part.remark = "failed", str(error) or repr(error)
        part.wall_s = time.monotonic() - begin
        print("%-7s %-24s %6.1f s  %s" % (part.state, part.name, part.wall_s, part.remark), flush=True)

    def take_gpus(self, part):
        with self.lock:
            self.lock.wait_for(lambda: len(self.free) >= part.gpus)
            taken, self.free = self.free[:part.gpus], self.free[part.gpus:]
        part.visible = ",".join(self.gpus[i] for i in taken)
        return taken

    def run_on(self, part, taken):
        self.run(part)
        with self.lock:
            self.free = sorted(self.free + taken)
            self.lock.notify_all()

    def is_wanted(self, part):
        return any(word in part.name for word in self.args.only.split(","))

    def run_all(self, parts, at_once):
        """Begins them in their order: one that needs many GPUs is not overtaken for ever."""
        threads = []
        for part in filter(self.is_wanted, parts):
            self.parts.append(part)
            thread = threading.Thread(target=self.run_on, args=(part, self.take_gpus(part)))
            thread.start()
            threads.append(thread)
            if not at_once:
                thread.join()
        for thread in threads:
            thread.join()


    def sum_up(self):
        """Returns the exit code."""
        counted = {state: sum(part.state == state for part in self.parts) for state in ("passed", "failed", "skipped")}
        sums = [{"name": part.name, "gpus": part.gpus, "state": part.state, "remark": part.remark, "seconds": round(part.wall_s, 1)}
                for part in self.parts]
        with open(os.path.join(self.args.output, "sums.json"), "w", encoding="utf-8") as file:
            json.dump(sums, file, indent=1)
        for part in self.parts:
            if part.state != "passed":
                print("%s %s: %s" % (part.state.upper(), part.name, part.remark))
        print("%.0f s\n%d passed, %d failed%s" % (time.monotonic() - self.begin, counted["passed"], counted["failed"],
                                                  ", %d skipped" % counted["skipped"] if counted["skipped"] else ""))
        return 1 if counted["failed"] or not counted["passed"] else 0


# === Plans ===================================================================================================================


def make_plan(several, part, model_dir, name, deploy, ranks):
    """Path of a plan. Skips a model that these ranks cannot divide, or that does not fit."""
    base = os.path.join(several.scratch, "%s-%d" % (name, ranks))
    with open(base + ".yaml", "w", encoding="utf-8") as file:
        file.write("%stensor-parallel-size: %d\n" % (deploy, ranks))
    try:
        several.command(part, [several.binary("verbatim"), "plan", model_dir, "--config", base + ".yaml", "-o", base + ".plan", "--force"])
    except RuntimeError as error:
        for words in ("cannot divide", "does not fit the device"):
            if words in str(error):
                raise Skip("%d GPUs: the plan %s" % (ranks, words)) from error
        raise
    return base + ".plan"


# === Golden receipts =========================================================================================================


def golden(several, name, ranks, options, form="", more=""):
    def verify(part):
        if name in GOLDEN:
            model_dir = os.path.join(several.scratch, "%s%s-%d.model" % (name, form, ranks))
            os.makedirs(model_dir)
            several.command(part, [several.binary("random_model"), "tests/oracle/small-%s.json" % name, model_dir])
            deploy = "%schunk_tokens: %d\n" % (GOLDEN_DEPLOY, GOLDEN[name])
        else:
            model_dir = "tests/tiny"
            with open("tests/tiny/deploy.yaml", encoding="utf-8") as file:
                deploy = file.read()
        plan = make_plan(several, part, model_dir, name + form, deploy + more, ranks)
        words = [several.binary("verbatim"), "verify", "tests/golden/%s.receipt" % name, plan, model_dir, "--quiet"]
        return several.command(part, words + ["--device", several.args.device] + options).strip().split("\n")[-1]

    return Part("golden-%s%s-%d" % (name, form, ranks), ranks, 100, verify)


def golden_parts(several):
    parts = []
    for ranks in several.counts():
        parts += [golden(several, name, ranks, options) for name, options in GOLDEN_TINY.items()]
        parts += [golden(several, name, ranks, ["--batch", "8"] if ranks > 1 else []) for name in GOLDEN]
        parts += [golden(several, name, ranks, ["--batch", "8"], "-owners", OWNERS) for name in GOLDEN if ranks > 1]
    return parts


# === Faults and schedules ====================================================================================================


def faults(several):
    def test(part):
        output = several.command(part, [several.binary("gpu_tests/test_gpu_ranks")])
        passed, skipped = re.search(r"\[  PASSED  \] (\d+)", output), re.search(r"SKIPPED: *(.*)", output)
        if not passed:
            raise Skip(skipped.group(1))
        return "%s tests" % passed.group(1) + (", others skipped: %s" % skipped.group(1) if skipped else "")

    return Part("faults", len(several.gpus), 240, test)


def schedules(several, ranks):
    def fuzz(part):
        words = [several.binary("schedule_fuzz"), "--device", several.args.device, "--schedules", str(several.args.schedules),
                 "--seed", str(20 + ranks), "--requests", "16", "--json", "--seconds", "75", "--shrink-seconds", "20",
                 "--model-dir-cache", os.path.join(several.scratch, "schedules-%d" % ranks)]
        # Several processes that wait for each other's time slices on the same GPUs would take most of the time.
        words += ["--jobs", "4"] if ranks == 1 else ["--jobs", "1", "--ranks", str(ranks)]
        found = json.loads(several.command(part, words).strip().split("\n")[-1])
        return "%d schedules, %d requests, %d preemptions" % tuple(found["counts"][key] for key in ("schedules", "requests", "preemptions"))

    return Part("schedules-%d" % ranks, ranks, 180, fuzz)


# === Timings =================================================================================================================


def make_shape(several, name):
    """Folder with the configuration, cut to some of its layers."""
    source, layers, deploy = {**SHAPES, **WHOLE}[name]
    folder = os.path.join(several.scratch, name)
    os.makedirs(folder, exist_ok=True)
    with open("tests/data/configs/" + source, encoding="utf-8") as file:
        config = json.load(file)
    text = config.get("text_config", config)
    if layers is not None:
        text.setdefault("quantization_config", E4M3)
    if layers:
        text["num_hidden_layers"] = layers
        for key in ("layer_types", "mlp_layer_types"):
            if key in text:
                text[key] = text[key][:layers]
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder, BENCH_DEPLOY + deploy + ("" if "kv-pages" in deploy else "kv-pages: 8448\n")


def shape_plan(several, part, name, ranks, more=""):
    folder, deploy = make_shape(several, name)
    return make_plan(several, part, folder, name, more + "%sdevice-memory-bytes: %d\ngpu-memory-utilization: 0.97\n" %
                     (deploy, several.memory_bytes), ranks)


def bench(several, part, plan, options):
    path = os.path.join(several.args.output, part.name + ".json")
    several.command(part, [several.binary("verbatim"), "bench", plan, "--device", several.args.device, "--quiet", "--json", path] + options)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def steps(several, name, ranks, contexts=(1024,), timeout_s=100, form="", more=""):
    def measure(part):
        options = ["--no-ops", "--context", ",".join(map(str, contexts))]
        found = bench(several, part, shape_plan(several, part, name, ranks, more), options)
        planned, reserved = found["memory"]["planned_bytes"], found["memory"]["reserved_bytes"]
        if set(reserved) - {planned}:
            raise RuntimeError("memory: expected %d bytes of each GPU, found %s" % (planned, reserved))
        decode = " ".join("%dx%d:%.0f" % (row["batch"], row["context"], row["step_us"])
                          for row in found["decode"] if row["batch"] in BATCHES)
        prompts = " ".join("%dx%d:%.1f" % (row["prompts"], row["tokens"], 1e-3 * row["us"]) for row in found["prefill"])
        return "decode us %s; prompts ms %s; %.2f GB of each GPU" % (decode, prompts, 1e-9 * planned)

    return Part("steps-%s%s-%d" % (name, form, ranks), ranks, timeout_s, measure)


def exchanges(several, name, ranks):
    def measure(part):
        plan = shape_plan(several, part, name, ranks)
        listed = several.command(part, [several.binary("verbatim"), "show", plan, "--ops"])
        names = sorted(set(re.findall(r"^ +\d+ (?:layer \d+ )?([^,]+), (?:exchange|rank_norm) \d+:", listed, re.M)))
        found = bench(several, part, plan, ["--op", ",".join(names), "--rows", ",".join(map(str, BATCHES)), "--context", "1024"])

        def sums(field):
            rows = sorted({op["rows"] for op in found["ops"]})
            return " ".join("%d:%.1f" % (count, sum((op[field] or 0) * op["instances"] for op in found["ops"] if op["rows"] == count))
                            for count in rows)

        return "us a step: %s%s" % (sums("us"), "; NCCL " + sums("nccl_us") if found["device"]["nccl_version"] else "")

    return Part("exchanges-%s-%d" % (name, ranks), ranks, 60, measure)


def timing_parts(several):
    several_ranks = [ranks for ranks in reversed(several.counts()) if ranks > 1]
    parts = [steps(several, name, ranks) for name in SHAPES for ranks in reversed(several.counts())]
    parts += [exchanges(several, name, ranks) for ranks in several_ranks for name in SHAPES]
    for form, more in (("-by-heads", ""), ("-by-requests", "attention-by-requests-from: 1\n")):
        parts += [steps(several, name, ranks, (1024, 8192, 32768), 200, form, more) for ranks in several_ranks for name in ("v2lite", "v3")]
    whole = several.counts()[-1]
    return parts + [part for name in WHOLE for part in (steps(several, name, whole, (1024, 8192), 400), exchanges(several, name, whole))]


# === The whole ===============================================================================================================


def find_gpus(args):
    """(numbers, bytes of the smallest one's memory)"""
    if args.device == "cpu":
        return ["cpu"] * (args.gpus or 1), 1 << 47
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip().split("\n")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit("several.py: expected a machine with GPUs: %s" % error)
    rows = [line.split(", ") for line in lines if line][:args.gpus or None]
    print("%d GPUs: %s" % (len(rows), ", ".join(sorted({row[1] for row in rows}))), flush=True)
    return [row[0] for row in rows], min(int(row[2]) for row in rows) << 20


def main():
    parser = argparse.ArgumentParser(description="Tests and times plans of several ranks on all GPUs of a machine.")
    parser.add_argument("binaries")
    parser.add_argument("output")
    parser.add_argument("--device", default="gpu", choices=("gpu", "cpu"), help="cpu: tries the script on a machine without a GPU")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="use the first N (default: all)")
    parser.add_argument("--seconds", type=float, default=520, metavar="S", help="begin no part after that long (default: 520)")
    parser.add_argument("--schedules", type=int, default=200, metavar="N",
                        help="random schedules for each count of GPUs, within 75 s (default: 200)")
    parser.add_argument("--only", default="", metavar="WORDS", help="parts whose name contains a word: golden-v3,faults")
    args = parser.parse_args()
    os.makedirs(args.output, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="verbatim-several-") as scratch:
        several = Several(args, scratch)
        tests = [faults(several)] + [schedules(several, ranks) for ranks in reversed(several.counts())] + golden_parts(several)
        several.run_all(tests, at_once=True)
        several.run_all(timing_parts(several), at_once=False)
    return several.sum_up()


if __name__ == "__main__":
    sys.exit(main())

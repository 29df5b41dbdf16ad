#!/usr/bin/env python3
"""check_lm_eval.py - lm-evaluation-harness, as published, evaluates the server: check_lm_eval.py [--gpu] [--record FILE] [--self-test]

Runs the tasks of tests/serve/tasks in many ways that must not matter (CASES) and compares the files of samples that the harness writes,
byte for byte; then compares its scores with `verbatim run` and `verbatim score` of the same items, to the last bit. --gpu also uses servers
on a GPU, after those on the CPU: their samples are the same. --record writes the requests and answers, for replay_bodies.py. --self-test
plants faults between the two and finds each one. Run with build/venv/bin/python. Must not know: the engine. Read next:
tasks/tiny_generate.yaml, server.py, proxy.py.
"""
import argparse
import contextlib
import functools
import glob
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time

HOME = tempfile.TemporaryDirectory(prefix="verbatim-lm-eval-")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=HOME.name, TQDM_DISABLE="1", LOGLEVEL="ERROR",
                  LMEVAL_LOG_LEVEL="ERROR", OPENAI_API_KEY="", TOKENIZERS_PARALLELISM="false", HF_HUB_DISABLE_PROGRESS_BARS="1",
                  TRANSFORMERS_VERBOSITY="error")
sys.dont_write_bytecode = True

import datasets  # noqa: E402
import lm_eval  # noqa: E402
import numpy  # noqa: E402
import transformers  # noqa: E402
from lm_eval.loggers import EvaluationTracker  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

import server as serving  # noqa: E402
from proxy import Proxy  # noqa: E402
from server import Failed, Server  # noqa: E402

TASKS = os.path.join(serving.ROOT, "tests/serve/tasks")
ITEMS = "tests/tiny/items.jsonl"
ALL = ["tiny_generate", "tiny_some", "tiny_sampled", "tiny_compare", "tiny_count", "tiny_texts"]
SCORED = ["tiny_compare", "tiny_count", "tiny_texts"]
SOME = ["tiny_some", "tiny_sampled", "tiny_compare", "tiny_texts"]
MADE = ["tiny_some", "tiny_sampled"]
HF = {"tokenizer": serving.MODEL_DIR, "tokenizer_backend": "huggingface", "add_bos_token": True}
HF_BARE = {"tokenizer": serving.MODEL_DIR, "tokenizer_backend": "huggingface"}
REMOTE = {"tokenizer_backend": "remote", "custom_prefix_token_id": 0}  # the harness treats a BOS with id 0 as none
TEXT = {"tokenized_requests": False}


class Case:
    """One run of the harness. Cases of one family must write the same samples; those of a server run against one process."""

    def __init__(self, family, name, tasks, server=0, chat=False, shuffled=False, template=False, shots=None, **arguments):
        self.family, self.name, self.tasks, self.server = family, name, tasks, server
        self.chat, self.shuffled, self.template, self.shots, self.arguments = chat, shuffled, template, shots, arguments


SERVERS = [[], [], ["--no-prefix-cache", "--chunk", "16", "--batch", "7"]]  # the second is the first, started again

CASES = [
    Case("ids", "one at a time", SOME + ["tiny_count"], num_concurrent=1, **HF),
    Case("ids", "64 at once", ALL, num_concurrent=64, **HF),
    Case("ids", "bodies of 7 prompts, 8 at once", SOME, batch_size=7, num_concurrent=8, **HF),
    Case("ids", "bodies of 5 texts, 8 at once", SOME, batch_size=5, num_concurrent=8, **HF, **TEXT),
    Case("ids", "server started again, 64 at once, shuffled", SOME, server=1, shuffled=True, num_concurrent=64, **HF),
    Case("ids", "no prefix cache, 7 sequences, chunks of 16", SOME, server=2, num_concurrent=64, **HF),
    Case("bare ids", "one at a time", SCORED, num_concurrent=1, **HF_BARE),
    Case("bare ids", "the server's tokenizer, 32 at once", SCORED, num_concurrent=32, **REMOTE),
    Case("few shots", "one at a time", ["tiny_some", "tiny_compare"], shots=3, num_concurrent=1, **HF),
    Case("few shots", "no prefix cache, 64 at once", ["tiny_some", "tiny_compare"], server=2, shots=3, num_concurrent=64, **HF),
    Case("chat", "one at a time", MADE, chat=True, template=True, num_concurrent=1),
    Case("chat", "64 at once", MADE, chat=True, template=True, num_concurrent=64),
    Case("template", "64 at once", MADE + ["tiny_compare"], template=True, num_concurrent=64, **HF_BARE),
    Case("template", "one at a time", MADE + ["tiny_compare"], template=True, num_concurrent=1, **HF_BARE),
]


def work_folder(shuffled):
    """A folder in which the tasks find their items under the name they have in the repository."""
    folder = os.path.join(HOME.name, "shuffled" if shuffled else "as-is")
    if not os.path.isdir(folder):
        os.makedirs(os.path.join(folder, os.path.dirname(ITEMS)))
        with open(os.path.join(serving.ROOT, ITEMS), encoding="utf-8") as file:
            lines = file.readlines()
        if shuffled:
            random.Random(7).shuffle(lines)
        with open(os.path.join(folder, ITEMS), "w", encoding="utf-8") as file:
            file.writelines(lines)
    return folder


def model_arguments(case, url):
    return {"model": serving.MODEL, "base_url": url + ("/v1/chat/completions" if case.chat else "/v1/completions"), "max_length": 1024,
            "max_retries": 1, **case.arguments}


@contextlib.contextmanager
def quiet():
    """The output of the harness and its children is shown only if it fails."""
    kept = [os.dup(number) for number in (1, 2)]
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            yield
        except BaseException:
            file.seek(0)
            os.write(kept[1], file.read()[-6000:] + b"\n")
            raise
        finally:
            sys.stdout.flush()
            for number, old in zip((1, 2), kept):
                os.dup2(old, number)
                os.close(old)


def run_case(case, url, manager):
    """{task: bytes of its file of samples}"""
    output = tempfile.mkdtemp(dir=HOME.name)
    os.chdir(work_folder(case.shuffled))
    arguments = model_arguments(case, url)
    tracker = EvaluationTracker(output_path=output)
    with quiet():
        results = lm_eval.simple_evaluate(
            model="local-chat-completions" if case.chat else "local-completions", model_args=arguments, tasks=case.tasks,
            batch_size=arguments.pop("batch_size", 1), num_fewshot=case.shots, task_manager=manager, log_samples=True, bootstrap_iters=0,
            apply_chat_template=case.template, evaluation_tracker=tracker)
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    return {task: read_samples(output, task) for task in case.tasks}


def read_samples(output, task):
    paths = glob.glob(os.path.join(glob.escape(output), "*", "samples_%s_*.jsonl" % task))
    if len(paths) != 1:
        raise Failed("%s: expected one file of samples, found %s" % (task, paths))
    with open(paths[0], "rb") as file:
        return file.read()


def by_item(data):
    """Samples by their item, without the number of the item's line in the file."""
    rows = [json.loads(line) for line in data.decode().splitlines()]
    for row in rows:
        del row["doc_id"]
    return json.dumps(sorted(rows, key=lambda row: row["doc"]["id"])).encode()


def compare(case, found, first, expected):
    """Compares with a family's first run, or records it; Failed if samples differ."""
    for task, data in found.items():
        if not data:
            raise Failed("%s, %s, %s: no samples" % (case.family, case.name, task))
        wanted = expected.setdefault(task, data)
        pair = (by_item(wanted), by_item(data)) if case.shuffled else (wanted, data)
        difference = serving.first_difference(*pair)
        if difference:
            raise Failed("%s, %s: samples of \"%s\" and \"%s\" differ at %s" % (case.family, task, first, case.name, difference))


def responses(data):
    """{item: [what the harness received for it]}: texts, [sum, is greedy] or sums."""
    def plain(value):
        return [plain(each) for each in value] if isinstance(value, list) else value
    return {row["doc"]["id"]: plain([each[0] for each in row["resps"]]) for row in map(json.loads, data.decode().splitlines())}


# === The output of `verbatim` for the same items ============================================================================


def items():
    with open(os.path.join(serving.ROOT, ITEMS), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def run_texts(plan, wanted, *options):
    """{item: text} by `verbatim run`."""
    lines = "".join(json.dumps({"id": item["id"], "prompt": item["prompt"]}) + "\n" for item in items() if item["id"] in wanted)
    output = serving.run_program("run", plan, serving.MODEL_DIR, "--jsonl", "-", "--device", "cpu", "--quiet", "--output", "jsonl",
                                 "--stop", "\n\n", *options, stdin=lines)
    return {row["id"]: row["text"] for row in map(json.loads, output.splitlines())}


def score(plan, rows, *options):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    output = serving.run_program("score", plan, serving.MODEL_DIR, "--device", "cpu", "--quiet", *options, stdin=lines)
    return {row["id"]: row for row in map(json.loads, output.splitlines())}


def total(row):
    """A sum computed like the harness's, with the sum of its Python: of the float32 numbers, which the server writes exactly."""
    return sum(float(numpy.float32(value)) for value in row["logprobs"])


def text_item(text, is_bare):
    """A whole text as the harness requests it: with add_bos_token it puts its prefix, the BOS, before a text that already has one."""
    if is_bare:
        return {"text": text}
    bos = tokenizer().bos_token_id
    return {"ids": [bos, bos] + tokenizer()(text, add_special_tokens=False).input_ids}


@functools.cache
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(serving.MODEL_DIR)


def compare_with_score(plan, found, what, *options):
    """Sums, greedy or not, of choices and of texts: those of `verbatim score`'s numbers to the last bit."""
    for task, data in found.items():
        told, docs = responses(data), {row["doc"]["id"]: row for row in map(json.loads, data.decode().splitlines())}
        if task == "tiny_texts":
            rows = [{"id": name, **text_item(row["target"], "--no-bos" in options)} for name, row in docs.items()]
            wanted = {name: [total(row)] for name, row in score(plan, rows, *options).items()}
            told = {name: [float(value) for value in values] for name, values in told.items()}
        else:
            rows = [{"id": name, "context": row["arguments"]["gen_args_0"]["arg_0"],
                     "continuations": [arguments["arg_1"] for arguments in row["arguments"].values()]} for name, row in docs.items()]
            wanted = {name: [[total(choice), choice["is_greedy"]] for choice in row["choices"]]
                      for name, row in score(plan, rows, *options).items()}
            told = {name: [[float(value), greedy == "True"] for value, greedy in values] for name, values in told.items()}
        require_equal("%s, %s: the harness and verbatim score" % (what, task), told, wanted)


def require_equal(what, told, wanted):
    if not wanted or set(told) != set(wanted):
        raise Failed("%s: %d and %d items" % (what, len(told), len(wanted)))
    for name, value in told.items():
        if value != wanted[name]:
            raise Failed("%s: %s: %r and %r" % (what, name, value, wanted[name]))


def compare_with_verbatim(plan, kept):
    ids = kept["ids"]
    told = {name: texts[0] for name, texts in responses(ids["tiny_generate"]).items()}
    require_equal("tiny_generate: the harness and verbatim run", told, run_texts(plan, told, "--max-tokens", "96"))
    if told != {item["id"]: item["answer"] for item in items()}:
        raise Failed("tiny_generate: not every answer is right")
    told = {name: texts[0] for name, texts in responses(ids["tiny_sampled"]).items()}
    sampling = ["--max-tokens", "48", "--temperature", "3", "--top-p", "0.99", "--top-k", "50", "--seed", "1234"]
    require_equal("tiny_sampled: the harness and verbatim run", told, run_texts(plan, told, *sampling))
    other = run_texts(plan, told, *sampling[:-1], "1235")
    if sum(other[name] != text for name, text in told.items()) < len(told) // 2:
        raise Failed("tiny_sampled: another seed gives the same answers")
    for family, options in (("ids", []), ("bare ids", ["--no-bos"]), ("few shots", [])):
        compare_with_score(plan, {task: data for task, data in kept[family].items() if task in SCORED}, family, *options)
    for task in MADE:
        chat, template = responses(kept["chat"][task]), responses(kept["template"][task])
        require_equal("%s: the server's chat template and the tokenizer's" % task, chat, template)


# === The command line =======================================================================================================


def run_command(url, expected):
    """The command that users type, once: its samples are those of the library."""
    output = tempfile.mkdtemp(dir=HOME.name)
    arguments = ",".join("%s=%s" % pair for pair in model_arguments(Case("", "", [], num_concurrent=8, **HF), url).items())
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments,
               "--tasks", "tiny_compare", "--include_path", TASKS, "--output_path", output, "--log_samples"]
    result = subprocess.run(command, cwd=work_folder(False), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Failed("lm_eval run: status %d\n%s" % (result.returncode, result.stderr[-4000:]))
    difference = serving.first_difference(expected, read_samples(output, "tiny_compare"))
    if difference:
        raise Failed("samples of the command and the library differ at %s" % difference)


def run_servers(plan, record, manager, device, kept, first):
    for number, options in enumerate(SERVERS):
        with Server(plan, *options, device=device) as server, contextlib.ExitStack() as stack:
            url = stack.enter_context(Proxy(server.url, record)).url if record and number == 0 else server.url
            for case in (case for case in CASES if case.server == number):
                begin = time.monotonic()
                found = run_case(case, url, manager)
                compare(case, found, first.setdefault(case.family, case.name), kept.setdefault(case.family, {}))
                print("%s %-10s %-45s %4d samples %6.1f s" % (device, case.family, case.name, sum(d.count(b"\n") for d in found.values()),
                                                             time.monotonic() - begin), flush=True)
            if number == 1:
                run_command(url, kept["ids"]["tiny_compare"])


def run_all(plan, record, manager, devices):
    kept, first = {}, {}
    for device in devices:
        run_servers(plan, record if device == devices[0] else None, manager, device, kept, first)
    compare_with_verbatim(plan, kept)
    print("samples are equal in each family, and what was scored is what verbatim run and verbatim score say")


# === The controls ===========================================================================================================


def found_fault(plan, url, fault, manager):
    """Whether the check notices a fault between the harness and the server. Returns its message, or ""."""
    tasks = ["tiny_some"] if fault == "swap" else ["tiny_compare"]
    try:
        kept = {}
        for concurrent in (1, 16):
            case = Case("control", "%d at once" % concurrent, tasks, num_concurrent=concurrent, **HF)
            with Proxy(url, fault=fault) as proxy:
                compare(case, run_case(case, proxy.url, manager), "1 at once", kept)
        if tasks == ["tiny_compare"]:
            compare_with_score(plan, kept, "control")
    except Exception as error:  # a lost answer makes the harness fail
        return str(error) or repr(error)
    return ""


def self_test(plan, manager):
    failures = 0
    with Server(plan) as server:
        for fault in (None, "load", "greedy", "swap", "lose"):
            said = found_fault(plan, server.url, fault, manager)
            good = bool(said) == bool(fault)
            failures += not good
            print("%s %s: %s" % ("ok  " if good else "FAIL", fault or "no fault", said[:200] or "nothing found"), flush=True)
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description="lm-evaluation-harness against the server.")
    parser.add_argument("--record", metavar="FILE", help="write requests and answers of the first server as JSONL")
    parser.add_argument("--gpu", action="store_true", help="on a GPU too")
    parser.add_argument("--self-test", action="store_true", help="plant faults and see them found")
    parser.add_argument("--builddir", default=serving.BUILDDIR)
    args = parser.parse_args()
    serving.BUILDDIR = args.builddir
    record = args.record and os.path.abspath(args.record)
    datasets.disable_progress_bars()
    logging.disable(logging.WARNING)
    plan = serving.make_plan(HOME.name)
    manager = TaskManager(include_path=TASKS, include_defaults=False)
    try:
        return self_test(plan, manager) if args.self_test else run_all(plan, record, manager, ["cpu", "gpu"] if args.gpu else ["cpu"])
    except Failed as error:
        print("check_lm_eval.py: %s" % error)
        return 1


if __name__ == "__main__":
    sys.exit(main())

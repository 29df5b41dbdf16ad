#!/usr/bin/env python3
"""No command writes over what it reads, nor two outputs into one file; a server that waits for the reader of a pipe ends by a signal.

Table: COMMANDS has every command and every option that names a file. Walk: for each output, each input and each other output, under its own
name, through a link and as a hard link, the command is refused and every byte is still there. Control: the commands of the table run when
their files are apart. Pipes: SIGTERM and SIGINT while an output is opened. Run after ninja: test_outputs.py [--builddir DIR]
"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = builddir.take()
MODEL_FILES = ["M/config.json", "M/tokenizer.json", "M/tokenizer_config.json", "M/model.safetensors"]
CPU = "--device cpu --threads 1 --quiet"
NAMES = r"^  (?:-\w, )?(--[a-z-]+) (?:FILE|DIR|PROFILE|PLAN|MODEL_DIR)\b"  # in the text of --help
WAIT_SECONDS = 20
# name: words, options that name outputs, inputs (files), options that name inputs or folders
ENGINE_OUTPUTS = ["--receipt", "--stats"]
LOGGED = {"id": "a", "path": "/v1/completions", "status": 400, "model": "M", "numerics_id": 32 * "0", "body": "{}"}
COMMANDS = {
    "plan": ("M --config deploy.yaml --profile profile", ["--output"], ["deploy.yaml", "profile", *MODEL_FILES], ["--config", "--profile"]),
    "run": ("plan M --jsonl items --max-tokens 1 " + CPU, [*ENGINE_OUTPUTS, "--logits", "--trace"], ["plan", "items", *MODEL_FILES],
            ["--jsonl", "--cache-dir", "--chat-template"]),
    "chat": ("plan M --max-tokens 1 " + CPU, ENGINE_OUTPUTS, ["plan", *MODEL_FILES], ["--cache-dir", "--chat-template"]),
    "serve": ("--config deploy.yaml --port 0 " + CPU, [*ENGINE_OUTPUTS, "--access-log", "--request-log", "--ready-file"],
              ["plan", "deploy.yaml", "profile", *MODEL_FILES], ["--config", "--cache-dir", "--chat-template"]),
    "score": ("--config deploy.yaml --jsonl scored " + CPU, [*ENGINE_OUTPUTS, "--summary", "--trace"],
              ["plan", "deploy.yaml", "profile", "scored", *MODEL_FILES], ["--config", "--jsonl", "--cache-dir"]),
    "eval": ("task.yaml --config deploy.yaml --output new " + CPU, ["--stats"],
             ["plan", "deploy.yaml", "profile", "task.yaml", "task.jsonl", *MODEL_FILES],
             ["--config", "--plan", "--model", "--output", "--cache-dir", "--receipt", "--chat-template"]),
    "verify": ("receipt plan M " + CPU, [*ENGINE_OUTPUTS, "--trace"], ["receipt", "plan", *MODEL_FILES],
               ["--cache-dir", "--allowed-signers", "--signature"]),
    "replay": ("old/manifest.json --output new " + CPU, ["--stats"], ["old/manifest.json", "plan", "task.yaml", *MODEL_FILES],
               ["--plan", "--model", "--tasks", "--output", "--cache-dir", "--receipt", "--chat-template"]),
    "bench": ("plan --device cpu --quiet", ["--json", "--roofline"], ["plan"], ["--tax", "--cache-dir"]),
    "probe": ("plan -o profile-2", ["-o", "--json"], ["plan"], []),
    "calibrate": ("plan M --jsonl items " + CPU, ENGINE_OUTPUTS, ["plan", "items", *MODEL_FILES], ["--jsonl", "--cache-dir"]),
    "rescore": ("old/manifest.json", [], ["old/manifest.json"], ["--task", "--tasks", "--output"]),
    "import": ("harness.yaml --data task.jsonl --output imported", [], ["harness.yaml", "task.jsonl"],
               ["--data", "--fewshot", "--task", "--output"]),
    "replay-log": ("requests plan M " + CPU, ENGINE_OUTPUTS, ["requests", "plan", *MODEL_FILES], ["--cache-dir", "--chat-template"]),
    "compare": ("old/manifest.json old/manifest.json", [], [], []),
    "diff": ("receipt receipt", [], [], []), "audit": ("trace plan M", [], [], []), "digest": ("plan M", [], [], []),
    "show": ("plan", [], [], []), "doctor": ("plan M", [], [], ["--config", "--cache-dir"]),
}
NOT_RUN = ["serve", "bench", "probe"]  # a server does not end; the others take long, or need a GPU


def program(words, cwd, **more):
    return subprocess.run([os.path.join(ROOT, BUILDDIR, "verbatim"), *words], cwd=cwd, capture_output=True, text=True, timeout=120, **more)


def prepare(folder):
    """A plan, a model, a deployment that names both, items, a receipt, an evaluation."""
    os.mkdir(folder + "/M")
    for name in MODEL_FILES:
        shutil.copy(os.path.join(ROOT, "tests/tiny", name[2:]), folder + "/" + name)
    profiles = os.path.join(ROOT, "planner/profiles")
    shutil.copy(os.path.join(profiles, sorted(os.listdir(profiles))[0]), folder + "/profile")
    texts = {"deploy.yaml": "model: M\nplan: plan\nprofile: profile\nmax-num-seqs: 2\nmax-model-len: 128\n",
             "items": '{"prompt_ids":[1,2]}\n', "requests": json.dumps(LOGGED) + "\n",
             "scored": '{"ids":[1,2]}\n', "task.jsonl": '{"text":"add: 1+2=","answer":"3"}\n',
             "task.yaml": "name: add\nkind: generate\nitems: task.jsonl\nprompt: '{{text}}'\nanswer: '{{answer}}'\n"
                          "generation: {max_tokens: 2}\n",
             "harness.yaml": "task: t\ndataset_path: x\ntest_split: test\ndoc_to_text: text\ndoc_to_target: answer\n"}
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write(text)
    for words in ("plan --config deploy.yaml --quiet", "run plan M --jsonl items --max-tokens 1 --receipt receipt " + CPU,
                  "eval task.yaml --config deploy.yaml --output old " + CPU):
        done = program(words.split(), folder)
        if done.returncode != 0:
            raise AssertionError("%s: %s" % (words, done.stderr))


def contents(folder):
    found = {}
    for root, _, names in os.walk(folder):
        for name in filter(lambda name: os.path.isfile(os.path.join(root, name)), names):
            with open(os.path.join(root, name), "rb") as file:
                found[os.path.relpath(os.path.join(root, name), folder)] = file.read()
    return found


class Outputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        prepare(cls.folder)
        cls.before = contents(cls.folder)

    def aliases(self, path):
        """The path, a link to it and a second name of its file."""
        yield path
        for make in (os.symlink, os.link):
            make(os.path.join(self.folder, path), os.path.join(self.folder, "alias"))
            yield "alias"
            os.unlink(os.path.join(self.folder, "alias"))

    def refuse(self, words, text="would be overwritten"):
        done = program(words, self.folder, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, text in done.stderr), (2, True), "%s: %d %s" % (words, done.returncode, done.stderr))

    def tearDown(self):
        self.assertEqual(sorted(name for name, data in contents(self.folder).items() if self.before.get(name) != data), [])

    def test_table_has_every_command_and_file(self):
        listed = re.findall(r"^  ([a-z-]+) +(?=[a-z])", program(["help"], ROOT).stdout, flags=re.M)
        self.assertEqual(sorted(COMMANDS), sorted(set(listed) - {"version", "help"}))
        for name, (_, outputs, _, others) in COMMANDS.items():
            text = program([name, "--help"], ROOT).stdout
            if name != "probe":  # whose options are in its usage line
                self.assertEqual(sorted(set(re.findall(NAMES, text, flags=re.M))), sorted({*outputs, *others}), name)

    def test_outputs_spare_inputs(self):
        for name, (words, outputs, inputs, _) in COMMANDS.items():
            for output in outputs:
                for path in inputs:
                    for alias in self.aliases(path):
                        self.refuse([name, *words.split(), output, alias])

    def test_outputs_are_apart(self):
        for name, (words, outputs, _, _) in COMMANDS.items():
            for i, output in enumerate(outputs):
                for other in outputs[:i]:
                    for second in ("same", "./same", "M/../same"):
                        self.refuse([name, *words.split(), output, "same", other, second], "two files for two outputs")

    def test_files_that_do_not_exist_yet(self):
        self.refuse("serve absent M --receipt absent".split())
        self.refuse("run plan M --jsonl items --receipt M/chat_template.jinja".split())
        self.refuse("bench plan --device cpu --tax profile --json profile".split())
        os.symlink("nowhere", self.folder + "/link")
        self.addCleanup(os.unlink, self.folder + "/link")
        self.refuse("run plan M --jsonl items --receipt link --stats nowhere".split(), "leads nowhere")

    def test_folder_of_an_evaluation(self):
        self.refuse(("eval task.yaml --config deploy.yaml --output old --resume --stats old/stats " + CPU).split())
        self.refuse(("replay old/manifest.json --output old " + CPU).split())
        for path in ("plan", "task.yaml", "task.jsonl"):
            os.mkdir(self.folder + "/full")
            os.link(os.path.join(self.folder, path), self.folder + "/full/receipt")
            self.refuse(("eval task.yaml --config deploy.yaml --output full --resume " + CPU).split())
            shutil.rmtree(self.folder + "/full")

    def test_standard_streams_are_outputs(self):
        for path, words in (("receipt-2", "--receipt receipt-2"), ("items", "")):
            with open(os.path.join(self.folder, path), "ab") as file:
                done = subprocess.run([os.path.join(ROOT, BUILDDIR, "verbatim"), *("run plan M --jsonl items " + words).split()],
                                      cwd=self.folder, stdout=file, stderr=subprocess.PIPE, text=True, timeout=120)
            self.assertEqual((done.returncode, "would be overwritten" in done.stderr), (2, True), done.stderr)
        os.unlink(self.folder + "/receipt-2")

    def test_control_files_apart(self):
        for name, (words, outputs, _, _) in COMMANDS.items():
            if not outputs or name in NOT_RUN:
                continue
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(self.folder, folder + "/copy")
                named = [word for i, output in enumerate(outputs) for word in (output, "out-%d" % i)]
                done = program([name, *words.split(), *named], folder + "/copy")
                self.assertEqual(done.returncode, 0, "%s: %s" % (name, done.stderr))
                self.assertLessEqual({"out-%d" % i for i in range(len(outputs))}, set(os.listdir(folder + "/copy")))


class Pipes(unittest.TestCase):
    def test_signal_ends_a_server_that_waits_for_a_reader(self):
        with tempfile.TemporaryDirectory() as folder:
            prepare(folder)
            os.mkfifo(folder + "/pipe")
            for output in ("--access-log", "--receipt", "--ready-file"):
                for number in (signal.SIGTERM, signal.SIGINT):
                    self.end_by(number, output, folder)

    def end_by(self, number, output, folder):
        words = ["serve", *("--config deploy.yaml --port 0 " + CPU).split(), output, "pipe"]
        with subprocess.Popen([os.path.join(ROOT, BUILDDIR, "verbatim"), *words], cwd=folder, stderr=subprocess.PIPE) as process:
            try:
                self.wait_until_it_sleeps(process.pid)
                process.send_signal(number)
                self.assertEqual(process.wait(WAIT_SECONDS), 128 + number, output)
            finally:
                process.kill()

    def wait_until_it_sleeps(self, pid):
        """Its main thread has used no time for half a second: it waits for the pipe."""
        used, since, end = -1, time.monotonic(), time.monotonic() + WAIT_SECONDS
        while time.monotonic() < min(since + 0.5, end):
            with open("/proc/%d/task/%d/schedstat" % (pid, pid), encoding="ascii") as file:
                now = int(file.read().split()[0])
            used, since = (used, since) if now == used else (now, time.monotonic())
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tests of `verbatim import` against lm-evaluation-harness and inspect-ai themselves: shipped tasks and tasks of ours, over local records.

The harness renders each task with its own code, and the imported items must have the same prompts, continuations and right answers, byte
for byte. Then both evaluate the shipped model on the CPU, and the scores must be equal; the harness's log of that run is imported, too.
A log that inspect-ai writes of a model of its own is imported likewise. Run with build/venv/bin/python, after ninja:
tests/unit/test_import.py [--builddir DIR]
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

FOLDER = tempfile.TemporaryDirectory()
os.environ.update(HF_HOME=FOLDER.name + "/hf", HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TQDM_DISABLE="1", LMEVAL_LOG_LEVEL="ERROR",
                  HF_DATASETS_DISABLE_PROGRESS_BARS="1")  # set before lm_eval is imported

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "tools", "python"), os.path.dirname(os.path.abspath(__file__))]
import inspect_ai  # noqa: E402
import lm_eval  # noqa: E402
import lm_eval.tasks  # noqa: E402
from inspect_ai.dataset import MemoryDataset, Sample  # noqa: E402
from inspect_ai.model import GenerateConfig, ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.scorer import choice, includes  # noqa: E402
from inspect_ai.solver import generate, multiple_choice, system_message  # noqa: E402
from lm_eval.loggers import EvaluationTracker  # noqa: E402
import test_python  # noqa: E402
import verbatim.lm_eval  # noqa: E402,F401

SHIPPED = os.path.join(os.path.dirname(lm_eval.tasks.__file__), "")
ODD = ["It's {{ not }} a template", "a\\b \"quoted\" 'text'", "caf\u00e9 \u2014 \U0001f600", "two\nlines\n", "{% raw %} ", "tab\tand 100%",
       "[1, 2]"]


def records(count, seed):
    """Records with the fields that the shipped tasks read, and with texts that templates and Python lists must carry unharmed."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        text = [ODD[rng.randrange(len(ODD))] + " %d" % rng.randrange(1000) for _ in range(4)]
        number = rng.randrange(10000)
        made.append({
            "question": "%d: %s" % (i, text[0]), "answer": "%s\nso it is\n#### %s" % (text[1].replace("\u00e9", "e"), format(number, ",")),
            "support": " \n" + text[2], "distractor1": text[0] + "x", "distractor2": text[1] + "y", "distractor3": text[2] + "z",
            "correct_answer": text[3], "goal": text[0], "sol1": text[1], "sol2": text[2] + "!", "label": rng.randrange(2),
            "answerKey": "ABCD"[rng.randrange(4)],
            "choices": {"text": [t + str(k) for k, t in enumerate(text)], "label": list("ABCD")}, "premise": text[3],
            "aliases": {"aliases": ["The %d" % number, "%d." % number]}, "sentence": "one %d" % number, "number": number,
            "half": number / 2})
    return made


# The file of the harness, fields of the wrapper, records' own field.
WRAPPED = {
    "gsm8k": ("gsm8k/gsm8k.yaml", {}),
    "arc_challenge": ("arc/arc_challenge.yaml", {"num_fewshot": 3}),
    "sciq": ("sciq/sciq.yaml", {}),
    "piqa": ("piqa/piqa.yaml", {"num_fewshot": 6}),
}
WRITTEN = {
    "first_n": r"""
doc_to_text: "{{question.strip()}}\nA. {{choices['text'][0]}}\nAnswer:"
output_type: multiple_choice
num_fewshot: 2
doc_to_choice: ['A', "B", C, D]
doc_to_target: "{{ ['A','B','C','D'].index(answerKey) }}"
fewshot_split: train
fewshot_config: {sampler: first_n}
metric_list: [{metric: acc}]
""",
    "own_split": r"""
doc_to_text: premise
output_type: multiple_choice
num_fewshot: 4
fewshot_split: test
doc_to_choice: {a: 'True', b: 'False'}
doc_to_target: label
description: "Say so, {{goal}}.\n\n"
fewshot_delimiter: "\n"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: True}
""",
    "no_split": r"""
doc_to_text: "Q: {{question}}?\nA:"
doc_to_target: "{{[number, label]}}"
output_type: generate_until
num_fewshot: 0
generation_kwargs: {until: ["\n", '.', ''], do_sample: false, temperature: 0.0}
filter_list: [{name: remove_whitespace, filter: [{function: remove_whitespace}, {function: take_first}]}]
""",
    "blocks": r"""
doc_to_text: |
  {% if label %}
  yes {{ number }} {{ half }}
  {% else %}
  no {% for t in choices.text[:2] %}<{{ t }}>{% endfor %}
  {% endif %}
doc_to_target: "{{ sentence | upper }}"
output_type: generate_until
num_fewshot: 5
fewshot_split: train
target_delimiter: ""
fewshot_config: {target_delimiter: ' => ', fewshot_delimiter: "\n--\n"}
""",
    "samples": r"""
doc_to_text: sentence
doc_to_target: number
output_type: generate_until
num_fewshot: 2
fewshot_config:
  sampler: first_n
  samples:
    - {sentence: one, number: '1'}
    - {sentence: two, number: ''}
""",
    "likelihood": r"""
doc_to_text: "{{question}}"
doc_to_target: "{{' ' + sentence.split(' ')[-1]}}"
output_type: loglikelihood
num_fewshot: 1
fewshot_split: train
""",
    "rolling": r"""
doc_to_text: ''
doc_to_target: "{{question}} {{answer}}"
output_type: loglikelihood_rolling
""",
}
# Tasks over items of the shipped model, for scores.
SCORED = {
    "tiny_generate": """
output_type: generate_until
target_delimiter: ""
doc_to_text: "{{prompt}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 24}
filter_list:
  - {name: strict, filter: [{function: regex, regex_pattern: "^([0-9A-Z]+)$"}, {function: take_first}]}
  - {name: last, filter: [{function: regex, regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select: -1}, {function: take_first}]}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true, ignore_punctuation: false,
  regexes_to_ignore: [",", "\\\\$", "(?s).*#### ", "\\\\.$", "1"]}]
""",
    "tiny_choice": """
output_type: multiple_choice
doc_to_text: "{{prompt}}"
doc_to_choice: "{{[answer, '\u00e9\u00e9', prompt, answer + '7']}}"
doc_to_target: "{{ 0 if id[-1] in '0246' else 3 }}"
target_delimiter: ""
""",
    "tiny_rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{prompt}}"
""",
}
FUNCTION = "tiny_function", """
output_type: generate_until
process_docs: !function helper.keep
doc_to_text: !function helper.ask
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 24}
"""


def run_import(*words, code=0):
    """(JSON that it prints, or its messages)"""
    command = [os.path.join(ROOT, test_python.BUILDDIR, "verbatim"), "import", *words, "--output-format", "json"]
    result = subprocess.run(command, cwd=FOLDER.name, capture_output=True, text=True)
    if result.returncode != code:
        raise AssertionError("%s: %d\n%s" % (" ".join(command), result.returncode, result.stderr))
    return json.loads(result.stdout) if code == 0 else result.stderr


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


class Import(unittest.TestCase):
    maxDiff = 3000

    @classmethod
    def setUpClass(cls):
        os.chdir(FOLDER.name)
        write_lines("test.jsonl", records(40, 1))
        with open("train.json", "w", encoding="utf-8") as file:
            json.dump(records(60, 2), file)
        data = "dataset_path: json\ndataset_name: null\ntraining_split: train\nvalidation_split: null\ntest_split: test\n" \
               "dataset_kwargs: {data_files: {test: test.jsonl, train: train.json}}\n"
        cls.tasks = {}
        for name, (path, more) in WRAPPED.items():
            cls.tasks[name] = "include: %s\ntask: my_%s\n%s%s" % (SHIPPED + path, name, data,
                                                               "".join("%s: %s\n" % pair for pair in more.items()))
        for name, text in WRITTEN.items():
            cls.tasks[name] = "task: my_%s\n%s%s" % (name, data, text)
        with open(os.path.join(ROOT, "tests/tiny/items.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        write_lines("tiny.jsonl", [line for line in lines if line["task"] in ("add", "roman", "copy", "count")][::11])
        for name, text in list(SCORED.items()) + [FUNCTION]:
            with open(name + ".yaml", "w", encoding="utf-8") as file:
                file.write("task: %s\ndataset_path: json\ndataset_kwargs: {data_files: {test: tiny.jsonl}}\ntest_split: test\n%s"
                           % (name, text))
        for name, text in cls.tasks.items():
            with open("my_%s.yaml" % name, "w", encoding="utf-8") as file:
                file.write(text)
        with open("helper.py", "w", encoding="utf-8") as file:
            file.write("def ask(doc):\n    return 'x' + doc['prompt']\n\n\ndef keep(docs):\n    return docs.select(range(10))\n")
        cls.manager = lm_eval.tasks.TaskManager(include_path=FOLDER.name, include_defaults=False)
        cls.plan = FOLDER.name + "/plan"
        test_python.program("plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "-o", cls.plan, "--quiet")

    # === Prompts ============================================================================================================

    def theirs(self, name):
        """[(arguments of all requests, right answer, record)] as the harness makes them"""
        task = self.manager.load([name])["tasks"][name]
        task.set_fewshot_seed(1234)
        if task.config.num_fewshot is None:
            task.set_config(key="num_fewshot", value=0)
        task.build_all_requests()
        made = {}
        for instance in task.instances:
            made.setdefault(instance.doc_id, (instance.doc, []))[1].append(instance.args)
        return [(arguments, task.doc_to_target(doc), doc) for _, (doc, arguments) in sorted(made.items())]

    def compare(self, name):
        ours = read_lines(run_import(name + ".yaml", "--output", "out_" + name)["items"])
        theirs = self.theirs(name)
        self.assertEqual([item["id"] for item in ours], list(range(len(theirs))))
        for item, (arguments, target, _) in zip(ours, theirs):
            if "choices" in item:
                self.assertEqual([(item["prompt"], choice) for choice in item["choices"]], arguments)
                self.assertEqual(item["answer"], target)
            elif "text" in item:
                self.assertEqual([(item["text"],)], arguments)
            elif "context" in item:
                self.assertEqual([(item["context"], item["continuation"])], arguments)
            else:
                self.assertEqual(item["prompt"], arguments[0][0])
                self.assertEqual(item["answer"], [str(t) for t in target] if isinstance(target, list) else str(target))

    def test_prompts_are_those_of_the_harness(self):
        for name in [*self.tasks]:
            with self.subTest(name):
                if name == "no_split":  # a list of numbers, which the harness compares with texts
                    self.assertIn("expected a list of texts", run_import("my_no_split.yaml", "--output", "out", code=4))
                else:
                    self.compare("my_" + name)

    def test_draws_are_pythons(self):
        lines = [{"q": "%d" % i, "a": "x"} for i in range(300)]
        write_lines("many.jsonl", lines)
        with open("my_draws.yaml", "w", encoding="utf-8") as file:
            file.write("task: my_draws\ndataset_path: hub/name\ntraining_split: train\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n"
                       "fewshot_split: train\nfewshot_delimiter: ','\ntarget_delimiter: ''\n")
        write_lines("three.jsonl", lines[:3])
        for count in (1, 5, 6, 21, 22, 80, 200):
            folder = "out_draws_%d" % count
            made = run_import("my_draws.yaml", "--data", "three.jsonl", "--fewshot", "many.jsonl", "--num-fewshot", str(count),
                              "--fewshot-seed", "7", "--output", folder)
            rng = random.Random(7)
            for item in read_lines(made["items"]):
                shots = ["%sx" % line["q"] for line in rng.sample(lines, count)]
                self.assertEqual(item["prompt"].split(",")[:-1], shots)

    # === Scores =============================================================================================================

    def scores(self, folder, *tasks):
        test_python.program("eval", *tasks, "--plan", self.plan, "--model", "tests/tiny", "--output", FOLDER.name + "/" + folder,
                            "--device", "cpu")
        with open(folder + "/manifest.json", encoding="utf-8") as file:
            made = json.load(file)["outcome"]["scores"]["tasks"]
        return {task["name"]: {metric["name"]: metric["value"] for metric in task["metrics"]} for task in made}

    def harness(self, name):
        """Results, and the path of its log of samples."""
        tracker = EvaluationTracker(output_path="logs")
        arguments = "plan=%s,model_dir=%s,device=cpu,library=%s" % (self.plan, os.path.join(ROOT, "tests/tiny"),
                                                                   os.path.join(ROOT, test_python.BUILDDIR, "libverbatim.so"))
        results = lm_eval.simple_evaluate(model="verbatim", model_args=arguments, tasks=[name], task_manager=self.manager, log_samples=True,
                                          bootstrap_iters=0, evaluation_tracker=tracker)
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        tracker.save_results_samples(task_name=name, samples=samples[name])
        found = [os.path.join(at, file) for at, _, files in os.walk("logs") for file in files if file.startswith("samples_" + name)]
        return results["results"][name], os.path.join(FOLDER.name, found[0])

    def pair(self, name, *tasks):
        """Scores of the harness, of the imported task, and of the imported log."""
        theirs, log = self.harness(name)
        made = run_import(name + ".yaml", "--output", "in_" + name)
        again = run_import(log, "--task", name + ".yaml", "--output", "log_" + name)
        self.assertEqual(read_lines(FOLDER.name + "/" + made["items"]), read_lines(FOLDER.name + "/" + again["items"]))
        ours = self.scores("scores_" + name, *[FOLDER.name + "/" + task for task in made["tasks"]])
        for task, other in zip(made["tasks"], again["tasks"]):
            with open(task, encoding="utf-8") as a, open(other, encoding="utf-8") as b:
                self.assertEqual([line for line in a if "description" not in line], [line for line in b if "description" not in line])
        return theirs, ours, log

    def test_answers_get_the_harnesss_scores(self):
        theirs, ours, log = self.pair("tiny_generate")
        self.assertEqual(theirs["exact_match,strict"], ours["tiny_generate-strict"]["acc"])
        self.assertEqual(theirs["exact_match,last"], ours["tiny_generate-last"]["acc"])
        self.assertTrue(0 < theirs["exact_match,strict"] < 1 and 0 < theirs["exact_match,last"] < 1, theirs)
        self.assertIn("give the task's YAML", run_import(log, "--output", "plain", code=8))  # plain rules give other scores: found

    def test_choices_get_the_harnesss_scores(self):
        theirs, ours, log = self.pair("tiny_choice")
        self.assertEqual([theirs["acc,none"], theirs["acc_norm,none"]], [ours["tiny_choice"][name] for name in ("acc", "acc_norm")])
        self.assertTrue(0 < theirs["acc,none"] < 1, theirs)
        lines = read_lines(log)
        lines[0]["acc"] = 1 - lines[0]["acc"]
        write_lines("damaged.jsonl", lines)
        self.assertIn("line 1", run_import("damaged.jsonl", "--output", "damaged", code=8))

    def test_texts_get_the_harnesss_scores(self):
        theirs, ours, _ = self.pair("tiny_rolling")
        for name in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
            self.assertAlmostEqual(theirs[name + ",none"] / ours["tiny_rolling"][name], 1.0, delta=1e-12)

    def test_a_log_carries_what_functions_made(self):
        theirs, log = self.harness(FUNCTION[0])
        made = run_import(log, "--output", "log_function")
        items = read_lines(made["items"])
        self.assertEqual([item["prompt"] for item in items], [arguments[0][0] for arguments, _, _ in self.theirs(FUNCTION[0])])
        self.assertEqual(len(items), 10)
        ours = self.scores("scores_function", FOLDER.name + "/" + made["tasks"][0])
        self.assertEqual(theirs["exact_match,none"], ours[FUNCTION[0]]["acc"])

    # === Refusals ===========================================================================================================

    def refused(self, text, *words, code=5, data="test.jsonl"):
        with open("bad.yaml", "w", encoding="utf-8") as file:
            file.write("task: bad\ndataset_path: hub/name\ndataset_name: part\ntest_split: test\ndoc_to_text: question\n" + text)
            file.write("" if "doc_to_target" in text else "doc_to_target: answer\n")
        return run_import("bad.yaml", "--output", "bad", *(["--data", data] if data else []), *words, code=code)

    def test_what_is_lost_is_named(self):
        for text, name in (("process_docs: !function utils.f\n", "process_docs"),
                           ("process_results: !function utils.f\n", "process_results"),
                           ("metric_list: [{metric: f1}]\n", "f1"),
                           ("filter_list: [{name: vote, filter: [{function: majority_vote}]}]\n", "vote"),
                           ("repeats: 3\n", "repeats"), ("gen_prefix: so\n", "gen_prefix"), ("new_key: 1\n", "new_key"),
                           ("generation_kwargs: {num_beams: 4}\n", "num_beams"),
                           ("metric_list: [{metric: exact_match, ignore_case: true}]\ndoc_to_target: premise\n", "ignore_case")):
            message = self.refused(text)
            self.assertIn(name + ": ", message)
            self.assertIn("--accept " + name, message)
        self.assertIn("!function utils.f", self.refused("doc_to_choice: !function utils.f\n"))
        self.assertIn("load_dataset('hub/name', 'part')['test']", self.refused("", code=2, data=None))
        self.assertIn("'nothing' is undefined", self.refused("doc_to_target: \"{{ nothing }}\"\n", code=4))
        self.assertIn("nothing of that name", self.refused("", "--accept", "process_docs", code=2))
        self.assertIn("record 1", self.refused("doc_to_target: number\nnum_fewshot: 1\nfewshot_split: test\n", code=4))
        made = self.refused("process_docs: !function utils.f\n", "--accept", "process_docs", code=0)
        self.assertEqual(made["accepted"], ["process_docs"])
        self.assertIn("is there already", self.refused("", code=2))

    def test_what_yaml_means_twice_is_refused(self):
        for word in ("yes", "off", "1_000", "0x1f", "1e3", "+1", "2020-01-31"):
            self.assertIn(word, self.refused("doc_to_choice: [a, %s]\n" % word, code=4))

    def test_patterns_that_differ_are_refused(self):
        for pattern in (r"a\Z", r"\h", "[[:alpha:]]", "(a)(b)", "a{,3}", r"(a)|\1(b)", "(?<n>a)", "("):
            filters = "filter_list: [{name: f, filter: [{function: regex, regex_pattern: %s}]}]\n" % json.dumps(pattern)
            self.assertIn("filter_list", self.refused(filters, code=4 if pattern == "(" else 5))

    def test_dates_are_refused_as_the_loader_changes_them(self):
        write_lines("dates.jsonl", [{"question": "2020-01-31", "answer": "a"}, {"question": "2021-01-31", "answer": "b"}])
        self.assertIn("dates", self.refused("", data="dates.jsonl"))


class Inspect(unittest.TestCase):
    """Logs of inspect-ai: its own model gives fixed answers."""

    def log(self, name, samples, solver, scorer, answers, **config):
        def answer(messages, *_):
            text = next(value for part, value in answers.items() if part in messages[-1].text)
            made = ModelOutput.from_content("mockllm/model", text)
            made.usage = ModelUsage(input_tokens=1, output_tokens=1)
            return made
        task = inspect_ai.Task(dataset=MemoryDataset(samples), solver=solver, scorer=scorer, name=name, config=GenerateConfig(**config))
        done = inspect_ai.eval(task, model=get_model("mockllm/model", custom_outputs=answer), log_dir=FOLDER.name + "/" + name,
                               log_format="json", display="none", epochs=2)[0]
        self.assertEqual(done.status, "success", done.error)
        return done, os.path.join(FOLDER.name, name, os.path.basename(done.location))

    def test_a_log_is_imported(self):
        samples = [Sample(input="caf\u00e9 \"one\"\n" + "long " * 100, choices=["x", "y", "z"], target="B", id="first"),
                   Sample(input="two {{x}}", choices=["x", "y"], target="A")]
        done, log = self.log("letters", samples, [multiple_choice()], choice(), {"one": "so\nANSWER: B", "two": "ANSWER: B"}, max_tokens=7,
                             temperature=0.0, stop_seqs=["!"])
        made = run_import(log, "--output", "in_letters")
        items = {item["id"]: item for item in read_lines(FOLDER.name + "/" + made["items"])}
        sent = {sample.id: sample for sample in done.samples if sample.epoch == 1}
        self.assertEqual(set(items), set(sent))
        for name, item in items.items():
            self.assertEqual((item["prompt"], item["answer"]), (sent[name].messages[0].text, sent[name].target))
        with open(FOLDER.name + "/" + made["tasks"][0], encoding="utf-8") as file:
            text = file.read()
        self.assertIn('generation: {"max_tokens": 7, "temperature": 0.0, "stop": ["!"]}', text)
        with open(log, encoding="utf-8") as file:
            changed = json.load(file)
        changed["samples"][0]["scores"]["choice"]["value"] = "I" if changed["samples"][0]["scores"]["choice"]["value"] == "C" else "C"
        with open(FOLDER.name + "/changed.json", "w", encoding="utf-8") as file:
            json.dump(changed, file)
        self.assertIn("sample 1: scores", run_import("changed.json", "--output", "changed", code=5))

    def test_what_is_no_question_and_answer_is_refused(self):
        _, log = self.log("brief", [Sample(input="one", target="1")], [system_message("be brief"), generate()], includes(), {"one": "a 1"},
                          max_tokens=3, temperature=0.0)
        self.assertIn("messages", run_import(log, "--output", "brief_in", code=5))
        _, log = self.log("open", [Sample(input="one", target="1")], [generate()], includes(), {"one": "a 1"})
        self.assertIn("--accept max_tokens", run_import(log, "--output", "open_in", code=5))
        words = ["--accept", "max_tokens", "--accept", "temperature"]
        self.assertIn("scores: the scorer includes", run_import(log, "--output", "open_in", *words, code=5))
        self.assertEqual(run_import(log, "--output", "open_in", *words, "--accept", "scores")["count"], 1)
        self.assertIn("inspect log dump", run_import("x.eval", "--output", "x", code=5))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tests of tools/python/verbatim/lm_eval.py under lm-evaluation-harness itself: tasks over items of the shipped model, on the CPU.

The values that the harness receives are compared with the output of `verbatim score` and `verbatim run` for the same texts, and its metrics
with those of the program. Needs the Python module lm_eval, but neither torch nor transformers. Run after ninja: tests/unit/test_lm_eval.py
[--builddir DIR]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

FOLDER = tempfile.TemporaryDirectory()
os.environ.update(HF_HOME=FOLDER.name + "/hf", HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TQDM_DISABLE="1")  # set before lm_eval is
                                                                                                               # imported

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "tools", "python"), os.path.dirname(os.path.abspath(__file__))]
import lm_eval  # noqa: E402
import lm_eval.tasks  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.api.registry import get_model  # noqa: E402
from lm_eval.models.utils import normalize_gen_kwargs  # noqa: E402
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window  # noqa: E402
import test_python  # noqa: E402
import verbatim.lm_eval  # noqa: E402
from verbatim import scoring  # noqa: E402

TASKS = {
    "tiny_generate": """
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n", ""], max_gen_toks: 60}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
    "tiny_choice": """
output_type: multiple_choice
doc_to_text: "{{prompt}}"
doc_to_choice: "{{[answer, '0', prompt, answer + 'x']}}"
doc_to_target: 0
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}, {metric: acc_norm, aggregation: mean, higher_is_better: true}]
""",
    "tiny_rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{prompt}}"
metric_list: [{metric: word_perplexity, aggregation: weighted_perplexity, higher_is_better: false},
  {metric: byte_perplexity, aggregation: weighted_perplexity, higher_is_better: false}]
""",
}
ITEMS = 12


def instances(kind, arguments):
    return [Instance(request_type=kind, doc={}, arguments=argument, idx=0) for argument in arguments]


class Model(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plan = FOLDER.name + "/plan"
        test_python.program("plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "-o", cls.plan, "--quiet")
        with open(os.path.join(ROOT, "tests/tiny/items.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        cls.items = lines[::len(lines) // ITEMS][:ITEMS]
        cls.data = FOLDER.name + "/items.jsonl"
        with open(cls.data, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in cls.items)
        for name, text in TASKS.items():
            with open("%s/%s.yaml" % (FOLDER.name, name), "w", encoding="utf-8") as file:
                file.write("task: %s\ndataset_path: json\ndataset_kwargs: {data_files: {test: %s}}\ntest_split: test\n%s"
                           % (name, json.dumps(cls.data), text))
        cls.library = os.path.join(ROOT, test_python.BUILDDIR, "libverbatim.so")
        cls.arguments = "plan=%s,model_dir=%s,device=cpu,library=%s" % (cls.plan, os.path.join(ROOT, "tests/tiny"), cls.library)
        cls.model = cls.open()

    @classmethod
    def tearDownClass(cls):
        cls.model.engine.close()

    @classmethod
    def open(cls, more=""):
        return get_model("verbatim").create_from_arg_string(cls.arguments + more, {"batch_size": "auto", "device": "cuda:3"})

    def program_scores(self, lines, *words):
        summary = FOLDER.name + "/summary"
        out = test_python.program("score", self.plan, "tests/tiny", "--device", "cpu", "--quiet", "--summary", summary, *words, lines=lines)
        with open(summary, encoding="utf-8") as file:
            return [json.loads(line) for line in out.splitlines()], json.load(file)

    # === The harness's calls ================================================================================================

    def test_pairs_by_the_harnesss_own_rules_are_the_programs(self):
        pairs = test_python.PAIRS[:6] + test_python.PAIRS[7:]
        for model, words, taken in ((self.model, [], pairs), (self.open(",add_bos_token=False"), ["--no-bos"], pairs)):
            lines, _ = self.program_scores([{"context": a, "continuation": b} for a, b in taken], *words)
            ours = model.loglikelihood(instances("loglikelihood", taken))
            self.assertEqual(ours, [(line["logprob"], line["is_greedy"]) for line in lines])
            lists = [model.engine.rules.pair(a, b, not words) for a, b in taken]
            for (ids, first), (a, b) in zip(lists, taken):
                if a.strip():
                    self.assertEqual(model._encode_pair(a, b), (ids[:first], ids[first:]))

    def test_whole_texts_are_the_programs(self):
        texts = ["xx yy zz", "abc " * 700]
        lines, _ = self.program_scores([{"text": text} for text in texts])
        ours = self.model.loglikelihood_rolling(instances("loglikelihood_rolling", [(text,) for text in texts]))
        self.assertEqual(ours, [line["logprob"] for line in lines])

    def test_windows_are_the_harnesss(self):
        for count in range(1, 60):
            for most in range(2, 12):
                theirs = [make_disjoint_window(pair) for pair in get_rolling_token_windows(list(range(1, count + 1)), 0, most - 1, 1)]
                ours = [(ids[:first], ids[first:]) for ids, first in scoring.windows(list(range(count + 1)), most)]
                self.assertEqual(ours, [(list(before), list(scored)) for before, scored in theirs])

    def test_answers_are_the_programs(self):
        asked = [("add: 820+9918=", {"until": ["38", "\n"], "max_gen_toks": 20}), ("roman: 3264 =", {"until": [], "max_new_tokens": 4}),
                 ("roman: 3264 =", {"until": "L", "do_sample": True, "temperature": 1.25, "top_p": 0.9, "seed": 5, "max_tokens": 30}),
                 ("roman: 3264 =", {"do_sample": False, "temperature": 1.25})]
        lines = [{"prompt": asked[0][0], "stop": ["38", "\n"], "max_tokens": 20}, {"prompt": asked[1][0], "max_tokens": 4},
                 {"prompt": asked[2][0], "stop": "L", "temperature": 1.25, "top_p": 0.9, "seed": 5, "max_tokens": 30},
                 {"prompt": asked[3][0], "max_tokens": 256}]
        out = test_python.program("run", self.plan, "tests/tiny", "--jsonl", "-", "--output", "jsonl", "--device", "cpu", "--quiet",
                                  lines=lines)
        theirs = [json.loads(line)["text"] for line in out.splitlines()]
        self.assertEqual(self.model.generate_until(instances("generate_until", asked)), theirs)
        self.assertEqual(theirs[0], "107")

    def test_what_does_not_fit_is_refused_or_cut(self):
        long = "ab cd " * 400
        calls = [("loglikelihood", (long, "x")), ("generate_until", (long, {"max_gen_toks": 5}))]
        for name, argument in calls:
            with self.assertRaisesRegex(verbatim.VerbatimError, "truncation"):
                getattr(self.model, name)(instances(name, [argument]))
        model = self.open(",truncation=True")
        ids, first = model.engine.rules.pair(long, "x")
        expected = model.engine.score([(ids[-1024:first], ids[first:])])[0].logprob
        self.assertEqual(model.loglikelihood(instances("loglikelihood", [calls[0][1]]))[0][0], expected)
        expected = model.engine.generate([model.tok_encode(long)[-(1024 - 5):]], max_tokens=5)[0].text
        self.assertEqual(model.generate_until(instances("generate_until", [calls[1][1]])), [expected])

    def test_generation_arguments_mean_what_the_harness_says(self):
        for samples in ({}, {"do_sample": True}, {"do_sample": False}):
            for more in ({}, {"temperature": 0.0}, {"temperature": 0.7}, {"max_tokens": 3}, {"max_new_tokens": 4, "max_tokens": 3}):
                asked = dict(samples, **more, until="x")
                theirs, ours = normalize_gen_kwargs(asked), self.model._sampling(dict(asked))
                if "temperature" in theirs or not samples.get("do_sample"):
                    self.assertEqual(ours.temperature, theirs.get("temperature", 0.0), asked)
                self.assertEqual((ours.max_tokens, ours.stop), (theirs["max_gen_toks"], theirs["until"]), asked)

    def test_unknown_generation_arguments_are_refused(self):
        with self.assertRaisesRegex(verbatim.VerbatimError, "num_beams"):
            self.model.generate_until(instances("generate_until", [("a", {"num_beams": 4})]))

    # === Whole tasks ========================================================================================================

    def evaluate(self, name):
        manager = lm_eval.tasks.TaskManager(include_path=FOLDER.name, include_defaults=False)
        return lm_eval.simple_evaluate(model="verbatim", model_args=self.arguments, tasks=[name], task_manager=manager, log_samples=True,
                                       bootstrap_iters=0)

    def test_task_of_answers(self):
        results = self.evaluate("tiny_generate")
        out = test_python.program("run", self.plan, "tests/tiny", "--jsonl", self.data, "--output", "jsonl", "--max-tokens", "60",
                                  "--device", "cpu", "--quiet")
        theirs = [json.loads(line)["text"] for line in out.splitlines()]
        samples = sorted(results["samples"]["tiny_generate"], key=lambda sample: sample["doc_id"])
        self.assertEqual([sample["resps"][0][0] for sample in samples], theirs)
        self.assertEqual(results["results"]["tiny_generate"]["exact_match,none"], 1.0)
        self.assertEqual(results["config"]["verbatim_numerics_id"], self.model.engine.info.numerics_id)

    def test_task_of_choices(self):
        results = self.evaluate("tiny_choice")["results"]["tiny_choice"]
        lines, summary = self.program_scores([{"context": item["prompt"], "answer": 0, "continuations":
                                               [item["answer"], "0", item["prompt"], item["answer"] + "x"]} for item in self.items])
        mine = [sum(line[name] for line in lines) / len(lines) for name in ("acc", "acc_norm")]
        self.assertEqual([results["acc,none"], results["acc_norm,none"]], mine)
        self.assertGreater(mine[0], 0.5)

    def test_task_of_texts(self):
        results = self.evaluate("tiny_rolling")["results"]["tiny_rolling"]
        _, summary = self.program_scores([{"text": item["prompt"]} for item in self.items])
        for name in ("word_perplexity", "byte_perplexity"):
            theirs = summary["all"][name] if "all" in summary else summary["tasks"]["all"][name]
            self.assertAlmostEqual(results[name + ",none"] / theirs, 1.0, delta=1e-12)

    def test_the_harnesss_own_command_line(self):
        command = [sys.executable, "-m", "verbatim.lm_eval", "run", "--model", "verbatim", "--model_args", self.arguments, "--tasks",
                   "tiny_generate", "--include_path", FOLDER.name, "--limit", "3"]
        result = subprocess.run(command, cwd=FOLDER.name, capture_output=True, text=True,
                                env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "tools", "python"), PYTHONDONTWRITEBYTECODE="1"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"exact_match *\|.*\| *1\b")

    # === Chat ===============================================================================================================

    def model_of(self, name, config):
        """The template of a folder that holds only a tokenizer_config.json, the only file that templates are read from."""
        os.mkdir(FOLDER.name + name)
        with open(FOLDER.name + name + "/tokenizer_config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        model = object.__new__(verbatim.lm_eval.VerbatimLM)
        model.engine = type("Engine", (), {"model_dir": FOLDER.name + name})
        return model

    def test_a_folder_without_a_template_is_refused(self):
        with self.assertRaisesRegex(verbatim.VerbatimError, "no chat template"):
            self.model_of("/plain", {}).apply_chat_template([{"role": "user", "content": "hi"}])

    def test_a_template_is_rendered(self):
        template = ("{{ bos_token }}{% for m in messages %}\n  {% if m.role == 'bad' %}{{ raise_exception('role') }}{% endif %}\n"
                    "<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
        model = self.model_of("/chat", {"bos_token": {"content": "B"}, "chat_template": template})
        turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "it is"}]
        self.assertEqual(model.apply_chat_template(turns[:1]), "B<user>hi<assistant>")
        self.assertEqual(model.apply_chat_template(turns, add_generation_prompt=False), "B<user>hi<assistant>it is")
        self.assertEqual(model.chat_template(True), template)
        with self.assertRaisesRegex(verbatim.VerbatimError, "role"):
            model.apply_chat_template([{"role": "bad", "content": ""}])


if __name__ == "__main__":
    unittest.main()

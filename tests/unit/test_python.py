#!/usr/bin/env python3
"""Tests of tools/python: the package returns what the program returns, to the bit, on the CPU with the shipped model.

Digests of requests and of all their results are compared with a receipt of `verbatim run`, sums with `verbatim score`. Needs only the
standard library. Run after ninja, from the root of the repository: tests/unit/test_python.py [--builddir DIR]
"""
import gc
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = builddir.take()
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
import verbatim  # noqa: E402
from verbatim import scoring  # noqa: E402

PROMPTS = ["add: 820+9918=", "roman: 3264 =", "copy: N51IPB0RURIX1QXL7KP8I6TZTYULQMT0YFOJYXLAJIIX3G506 ="]
ODD = {"max_tokens": 6, "temperature": 1.5, "top_k": 40, "top_p": 0.95, "min_p": 1e-9, "repetition_penalty": 1.25, "presence_penalty": 0.5,
       "frequency_penalty": -0.25, "logit_bias": {30: 2.5, 7: -1.0}, "seed": 2 ** 63 - 1, "stop": ["zzz", "8"], "stop_ids": [40],
       "ignore_eos": True, "logprobs": 3}
PAIRS = [("add: 86+72=", "158"), ("add: 86+72= ", "158"), ("", "abc"), ("   ", "x"), ("a", " b"),
         ("<｜begin▁of▁sentence｜>add: 1+1=", "2"), ("", "<｜begin▁of▁sentence｜>add"), ("add\u2003", "1"), ("é", "ü")]


def program(*words, lines=None):
    result = subprocess.run([os.path.join(ROOT, BUILDDIR, "verbatim"), *words], cwd=ROOT, capture_output=True, text=True,
                            input=None if lines is None else "".join(json.dumps(line) + "\n" for line in lines))
    if result.returncode != 0:
        raise AssertionError("verbatim %s: %s" % (" ".join(words), result.stderr))
    return result.stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.plan = cls.folder.name + "/plan"
        program("plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "--structured-outputs", "on", "-o", cls.plan, "--quiet")
        cls.engine = cls.open()

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()
        cls.folder.cleanup()

    @classmethod
    def open(cls, **options):
        library = os.path.join(ROOT, BUILDDIR, "libverbatim.so")
        return verbatim.Engine(cls.plan, os.path.join(ROOT, "tests/tiny"), device="cpu", library=library, **options)

    def receipt_of(self, lines):
        path = self.folder.name + "/receipt"
        program("run", self.plan, "tests/tiny", "--jsonl", "-", "--device", "cpu", "--quiet", "--receipt", path, lines=lines)
        with open(path, encoding="utf-8") as file:
            return [row for row in map(json.loads, file) if "chain" in row]

    def assert_same(self, completions, rows):
        self.assertEqual(len(completions), len(rows))
        for done, row in zip(completions, rows):
            self.assertEqual(list(done.prompt_ids), row["prompt"])
            self.assertEqual((done.request_digest, done.chain), (row["request"], row["chain"]))
            self.assertEqual((done.ids, done.finish), (row["made"]["tokens"], row["finish"]))
            self.assertEqual(["%016x" % token.digest for token in done.tokens], row["made"]["logits"])
            self.assertEqual([[i for i, _ in token.alternatives] for token in done.tokens],
                             [[i for i, _ in place] for place in row["made"]["alternatives"]] or [[]] * len(done.tokens))

    # === Requests ===========================================================================================================

    def test_a_batch_is_the_programs(self):
        rows = self.receipt_of([{"prompt": prompt, "max_tokens": 60} for prompt in PROMPTS])
        made = self.engine.generate(PROMPTS, max_tokens=60)
        self.assert_same(made, rows)
        self.assertEqual([one.text for one in made], ["10738", "MMMCCLXIV", made[2].text])
        self.assertEqual(self.engine.decode(made[2].ids), made[2].text)

    def test_every_parameter_reaches_the_engine(self):
        """Each field is part of the request's digest, which must equal the program's, and changes it."""
        rows = self.receipt_of([dict(ODD, prompt=PROMPTS[0], n=2, logit_bias={"30": 2.5, "7": -1.0}),
                                {"prompt": PROMPTS[0], "allowed_ids": [19, 20, 21], "max_tokens": 3}])
        made = self.engine.generate(PROMPTS[:1], n=2, **ODD) + self.engine.generate(PROMPTS[:1], allowed_ids=[19, 20, 21], max_tokens=3)
        self.assert_same(made, rows)
        for name, value in ODD.items():
            changed = self.engine.generate(PROMPTS[:1], **dict(ODD, **{name: _other(value)}))[0]
            self.assertNotEqual(changed.request_digest, made[0].request_digest, name)

    def test_answers_have_the_form_that_was_asked_for(self):
        asked = [("choice", ["left", "right"], {"structured_outputs": {"choice": ["left", "right"]}}),
                 ("regex", "[a-c]{2}[0-9]", {"guided_regex": "[a-c]{2}[0-9]"}),
                 ("json_schema", {"type": "integer", "maximum": 9}, {"guided_json": {"type": "integer", "maximum": 9}}),
                 ("json_object", True, {"response_format": {"type": "json_object"}})]
        rows = self.receipt_of([dict(form, prompt=PROMPTS[0], max_tokens=9) for _, _, form in asked])
        made = [self.engine.generate(PROMPTS[:1], max_tokens=9, **{name: value})[0] for name, value, _ in asked]
        self.assertIn(made[0].text, ["left", "right"])
        self.assertRegex(made[1].text, "^[a-c]{2}[0-9]$")
        self.assertEqual([row["constraint"][0] for row in rows], ["choice", "regex", "json_schema", "json_object"])
        self.assertEqual([one.chain for one in made], [row["chain"] for row in rows])
        for wrong, reason in [({"regex": "("}, "byte 1"), ({"regex": "a", "json_object": True}, "one of choice")]:
            with self.assertRaisesRegex(verbatim.VerbatimError, reason):
                self.engine.generate(PROMPTS[:1], **wrong)

    def test_stop_text_is_named_and_cut(self):
        done = self.engine.generate(["add: 820+9918="], stop=["zz", "38"])[0]
        self.assertEqual((done.text, done.finish, done.stop), ("107", "stop_text", "38"))

    def test_a_conversation_is_the_programs(self):
        messages = [{"role": "user", "content": PROMPTS[0]}]
        first = self.engine.chat(messages, max_tokens=12)
        self.assertEqual(program("run", self.plan, "tests/tiny", PROMPTS[0], "--chat", "--device", "cpu", "--quiet", "--max-tokens", "12"),
                         first.text + "\n")
        self.assertEqual(self.engine.chat_prompt(messages), "<｜begin▁of▁sentence｜>" + PROMPTS[0])
        messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": PROMPTS[1]}]
        second = self.engine.chat(messages, max_tokens=12)
        talk = subprocess.run([os.path.join(ROOT, BUILDDIR, "verbatim"), "chat", self.plan, "tests/tiny", "--device", "cpu", "--quiet",
                               "--max-tokens", "12"], cwd=ROOT, capture_output=True, text=True, input="%s\n%s\n" % tuple(PROMPTS[:2]))
        self.assertEqual((talk.returncode, talk.stdout), (0, "%s\n%s\n" % (first.text, second.text)))
        shown = subprocess.run([sys.executable, "tests/examples/chat.py", self.plan, "tests/tiny", *PROMPTS[:2], "--device", "cpu",
                                "--max-tokens", "12"], cwd=ROOT, capture_output=True, text=True,
                               env={**os.environ, "VERBATIM_LIBRARY": os.path.join(ROOT, BUILDDIR, "libverbatim.so")})
        self.assertEqual((shown.stdout, shown.returncode), (talk.stdout, 0), shown.stderr)
        with self.assertRaisesRegex(verbatim.VerbatimError, r"messages\[0\].content: expected text"):
            self.engine.chat([{"role": "user", "contents": "x"}])
        with self.assertRaisesRegex(verbatim.VerbatimError, "tools"):
            self.engine.chat(messages, fields={"tools": [{"type": "function", "function": {"name": "f"}}]})
        with self.open(chat_template="/no/such/file") as other, self.assertRaisesRegex(verbatim.VerbatimError, "/no/such"):
            other.chat(messages)

    def test_a_sampling_for_each_prompt(self):
        made = self.engine.generate(PROMPTS[:2], [verbatim.Sampling(max_tokens=1), verbatim.Sampling(max_tokens=2)])
        self.assertEqual([len(one.tokens) for one in made], [1, 2])
        with self.assertRaises(ValueError):
            self.engine.generate(PROMPTS[:2], [verbatim.Sampling()])

    def test_the_number_of_samples_is_limited(self):
        for n in (0, -1, 129, 1 << 40):
            with self.assertRaises(ValueError):
                self.engine.generate(PROMPTS[:1], n=n)

    def test_a_stream_gives_what_the_whole_gives(self):
        whole = self.engine.generate(PROMPTS[1:2], logprobs=2)[0]
        with self.engine.stream(PROMPTS[1], logprobs=2) as stream:
            pieces = list(stream)
        self.assertEqual(tuple(piece.token for piece in pieces), whole.tokens)
        self.assertEqual("".join(piece.text for piece in pieces), whole.text)
        self.assertEqual(stream.completion, whole)
        self.assertGreater(sum(bool(piece.text) for piece in pieces), 3)

    def test_a_stream_left_early_is_cancelled(self):
        with self.engine.stream(PROMPTS[2], max_tokens=60) as stream:
            first = [next(stream).token.id for _ in range(3)]
        self.assertEqual(stream.completion.finish, "cancelled")
        self.assertEqual(stream.completion.ids[:3], first)
        self.assertRaises(StopIteration, next, stream)

    def test_a_forgotten_stream_is_cancelled_and_its_memory_kept_until_then(self):
        before = self.engine.count()["cancellations"]
        for piece in self.engine.stream(PROMPTS[2], max_tokens=900, ignore_eos=True):
            break
        gc.collect()
        self.assertEqual((len(self.engine._jobs), self.engine.count()["cancellations"]), (1, before))
        self.assertEqual(self.engine.generate(PROMPTS[:1])[0].text, "10738")
        self.assertEqual((len(self.engine._jobs), self.engine.count()["cancellations"]), (0, before + 1))

    def test_a_deadline_ends_a_request(self):
        done = self.engine.generate(PROMPTS[2:], max_tokens=900, ignore_eos=True, deadline_seconds=0.02)[0]
        self.assertEqual(done.finish, "deadline")
        self.assertLess(len(done.tokens), 900)

    def test_threads_share_the_engine(self):
        alone = [self.engine.generate([prompt], max_tokens=40)[0] for prompt in PROMPTS]
        got, threads = {}, []
        for i in range(12):
            work = lambda i=i: got.update({i: self.engine.generate([PROMPTS[i % 3]], max_tokens=40)[0]})
            threads.append(threading.Thread(target=work))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([got[i] for i in range(12)], [alone[i % 3] for i in range(12)])

    def test_a_thread_that_waits_has_its_turn(self):
        steps = self.engine.count()["steps"]
        long = threading.Thread(target=lambda: self.engine.generate(PROMPTS[:1], max_tokens=900, ignore_eos=True))
        long.start()
        while self.engine.count()["steps"] < steps + 3:
            time.sleep(0.001)
        for _ in range(5):
            self.engine.generate(PROMPTS[1:2], max_tokens=3)
        taken = self.engine.count()["steps"] - steps
        long.join()
        self.assertLess(taken, 800, "the long one alone takes 900 steps: a thread without its turn waits for all of them")

    # === Scores =============================================================================================================

    def test_pairs_are_the_programs(self):
        for bos, words in ((True, []), (False, ["--no-bos"])):
            lines = [{"context": context, "continuation": continuation} for context, continuation in PAIRS[:6] + PAIRS[7:]]
            out = program("score", self.plan, "tests/tiny", "--device", "cpu", "--quiet", "--logprobs", "2", *words, lines=lines)
            ours = self.engine.score(PAIRS[:6] + PAIRS[7:], bos=bos, logprobs=2)
            self.assert_scores(ours, out)

    def test_texts_are_the_programs_also_in_windows(self):
        texts = ["xx yy zz", "a", "abc " * 700, [0, 5, 9, 700]]
        lines = [{"text": text} if isinstance(text, str) else {"ids": text} for text in texts]
        out = program("score", self.plan, "tests/tiny", "--device", "cpu", "--quiet", "--logprobs", "1", lines=lines)
        self.assertGreater(json.loads(out.splitlines()[2])["windows"], 1)
        self.assert_scores(self.engine.score_texts(texts, logprobs=1), out)

    def assert_scores(self, ours, out):
        theirs = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(ours), len(theirs))
        for score, line in zip(ours, theirs):
            self.assertEqual(score.logprob, line["logprob"])  # 17 digits: the same bits
            self.assertEqual(score.is_greedy, line["is_greedy"])
            self.assertEqual([token.id for token in score.tokens], line["tokens"])
            self.assertEqual([token.rank for token in score.tokens], line["ranks"])
            self.assertEqual([[i for i, _ in token.alternatives] for token in score.tokens],
                             [[other["id"] for other in place] for place in line["alternatives"]])

    def test_a_pair_of_ids_is_the_pair_of_texts(self):
        ids, first = self.engine.rules.pair(*PAIRS[0])
        self.assertEqual(self.engine.score([(ids[:first], ids[first:])]), self.engine.score(PAIRS[:1]))

    def test_logits_of_one_place_have_one_sum(self):
        ids = self.engine.encode("compare: 3 ? 5 =")
        tokens = [score.tokens[0] for score in self.engine.score([(ids, [other]) for other in (5, 6, 30, 300)])]
        sums = [token.logit - token.logprob for token in tokens]
        self.assertLess(max(sums) - min(sums), 1e-5)
        self.assertGreater(max(token.logit for token in tokens) - min(token.logit for token in tokens), 0.1)

    def test_what_adds_no_token_is_refused(self):
        for pair in (("a", ""), ([1, 2], []), ("", "<｜begin▁of▁sentence｜>")):
            with self.assertRaisesRegex(verbatim.VerbatimError, "adds no token"):
                self.engine.score([pair])

    def test_windows_score_every_token_once(self):
        for count in range(2, 40):
            for most in range(2, 12):
                seen = []
                for ids, first in scoring.windows(list(range(count)), most):
                    self.assertTrue(1 <= first < len(ids) <= most)
                    self.assertEqual(ids, list(range(ids[0], ids[0] + len(ids))))
                    seen += ids[first:]
                self.assertEqual(seen, list(range(1, count)))

    def test_sums_are_plain_additions(self):
        tokens = tuple(verbatim.Token(1, x, 0, 0.0, 0) for x in (1.0, 1e16, -1e16))
        part = verbatim.Completion((), 0, (), tokens, "", "length", None, None, "", "")
        self.assertEqual(scoring.total([part]).logprob, 0.0)
        self.assertEqual(math.fsum(token.logprob for token in tokens), 1.0)

    # === Errors and ends ====================================================================================================

    def test_errors_carry_the_librarys_words_and_status(self):
        cases = [(lambda: self.engine.generate([[99999]]), "usage", "99999"),
                 (lambda: self.engine.generate(PROMPTS, max_tokens=2000), "limit", "2000"),
                 (lambda: self.engine.generate(PROMPTS, max_tokens=2 ** 32 - 1), "limit", "4294967295"),
                 (lambda: self.engine.generate(PROMPTS, top_k=-1), "usage", "top_k"),
                 (lambda: self.engine.generate(PROMPTS, logprobs=21), "usage", "21"),
                 (lambda: self.engine.generate(PROMPTS, require=["nonsense"]), "usage", "nonsense")]
        for call, name, words in cases:
            with self.assertRaisesRegex(verbatim.VerbatimError, words) as caught:
                call()
            self.assertEqual(caught.exception.name, name, caught.exception)
        with self.assertRaises(verbatim.VerbatimError) as caught:
            verbatim.Engine(self.plan, self.folder.name, device="cpu", library=self.engine._library._name)
        self.assertEqual(caught.exception.name, "io")
        for call in (lambda: self.engine.generate("one text"), lambda: self.engine.generate(PROMPTS, stop="x"),
                     lambda: self.engine.generate(PROMPTS, tempreature=1), lambda: self.open(nonsense=1)):
            self.assertRaises(TypeError, call)

    def test_a_refused_batch_leaves_nothing_behind(self):
        self.assertRaises(verbatim.VerbatimError, self.engine.generate, [PROMPTS[2], [99999]])
        self.assertEqual(self.engine.generate(PROMPTS[:1])[0].text, "10738")

    def test_a_closed_engine_says_so(self):
        with self.open(text=False) as engine:
            self.assertEqual(engine.generate([[0, 5]], max_tokens=2)[0].text, "")
            self.assertRaises(verbatim.VerbatimError, engine.encode, "x")
        engine.close()
        for call in (lambda: engine.generate([[1]]), lambda: engine.encode("x"), lambda: engine.decode([1])):
            with self.assertRaisesRegex(verbatim.VerbatimError, "closed"):
                call()

    def test_text_comes_back(self):
        for text in ("", "a", "héllo ☃", "a\0b", "  x\n"):
            self.assertEqual(self.engine.decode(self.engine.encode(text)), text)
        self.assertEqual(len(self.engine.encode("<｜begin▁of▁sentence｜>", add_special=False)), 1)
        self.assertGreater(len(self.engine.encode("<｜begin▁of▁sentence｜>", add_special=False, parse_special=False)), 1)

    def test_info_is_the_plans(self):
        shown = json.loads(program("show", self.plan, "--json"))
        self.assertIn(self.engine.info.numerics_id, json.dumps(shown))
        self.assertEqual((self.engine.info.vocab, self.engine.info.max_len, self.engine.info.bos), (768, 1024, 0))
        self.assertEqual(self.engine.info.plan_sha256, shown["sha256"])
        with open(os.path.join(ROOT, "tests/tiny/config.json"), "rb") as file:
            self.assertEqual(self.engine.info.config_sha256, hashlib.sha256(file.read()).hexdigest())
        self.assertIsNone(self.engine.info.weights_sha256)
        lines = program("digest", self.plan, "tests/tiny", "--sha256", "--quiet").splitlines(keepends=True)
        with self.open(sha256=True) as other:
            self.assertEqual(other.info.weights_sha256, hashlib.sha256("".join(lines[:-1]).encode()).hexdigest())

    def test_no_library_is_told(self):
        with self.assertRaisesRegex(verbatim.LibraryError, "VERBATIM_LIBRARY"):
            verbatim.Engine(self.plan, "tests/tiny", library=self.folder.name + "/none.so")


def _other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value - 1 if value > 2 else value / 2
    return {30: 2.0} if isinstance(value, dict) else value[1:]


if __name__ == "__main__":
    unittest.main()

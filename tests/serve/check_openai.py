#!/usr/bin/env python3
"""check_openai.py - the client that OpenAI publishes, against the server: check_openai.py

Completions and chat, streamed and whole, log-probabilities, several samples, stop texts, errors as the client's own exceptions, retries
after 429. The content is compared with `verbatim run`, and every form of an answer with the others. Run with build/venv/bin/python. Must
not know: the engine. Read next: server.py.
"""
import argparse
import concurrent.futures
import json
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import openai  # noqa: E402

import server as serving  # noqa: E402
from proxy import Proxy  # noqa: E402

KEY = "a key for this test"
PROMPT = "copy: N51IPB0RURIX1QXL7KP8 ="
SAMPLED = {"temperature": 3.0, "top_p": 0.99, "seed": 17}


def run_texts(plan, prompt, *options):
    """The output of `verbatim run` for the prompt, sample by sample."""
    output = serving.run_program("run", plan, serving.MODEL_DIR, prompt, "--device", "cpu", "--quiet", "--output", "jsonl", *options)
    return [row["text"] for row in map(json.loads, output.splitlines())]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="verbatim-openai-")
        cls.plan = serving.make_plan(cls.folder.name)
        cls.server = serving.Server(cls.plan, "--api-key", KEY)
        cls.client = cls.client_of(cls.server.url)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.end()
        cls.folder.cleanup()
        assert status == 0, "SIGTERM was answered with status %d" % status

    @staticmethod
    def client_of(url, key=KEY, retries=0):
        return openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=retries, timeout=60)

    def complete(self, prompt=PROMPT, **fields):
        return self.client.completions.create(model=serving.MODEL, prompt=prompt, **{"max_tokens": 48, "temperature": 0, **fields})

    def talk(self, content=PROMPT, **fields):
        return self.client.chat.completions.create(model=serving.MODEL, messages=[{"role": "user", "content": content}],
                                                   **{"max_tokens": 48, "temperature": 0, **fields})

    def test_model_is_listed(self):
        listed = list(self.client.models.list())
        self.assertEqual([model.id for model in listed], [serving.MODEL])
        self.assertEqual(self.client.models.retrieve(serving.MODEL).id, serving.MODEL)

    def test_completion_is_what_run_makes(self):
        answer = self.complete()
        self.assertEqual([answer.choices[0].text], run_texts(self.plan, PROMPT, "--max-tokens", "48"))
        self.assertEqual((answer.object, answer.choices[0].finish_reason), ("text_completion", "stop"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(answer.choices[0].text, self.complete().choices[0].text)

    def test_default_length_is_16(self):
        answer = self.client.completions.create(model=serving.MODEL, prompt=PROMPT, temperature=0)
        self.assertEqual((answer.usage.completion_tokens, answer.choices[0].finish_reason), (16, "length"))

    def test_samples_are_what_run_makes(self):
        options = ["--max-tokens", "48", "--temperature", "3", "--top-p", "0.99", "--seed", "17", "--n", "3"]
        answer = self.complete(n=3, **SAMPLED)
        texts = [choice.text for choice in sorted(answer.choices, key=lambda choice: choice.index)]
        self.assertEqual(texts, run_texts(self.plan, PROMPT, *options))
        self.assertEqual(len(set(texts)), 3, texts)

    def test_stream_is_the_whole(self):
        for fields in ({}, {"n": 2, **SAMPLED}, {"logprobs": 2}, {"echo": True, "logprobs": 1}):
            whole = self.complete(**fields)
            texts, tokens, reasons, usage = {}, {}, {}, None
            for event in self.complete(stream=True, stream_options={"include_usage": True}, **fields):
                usage = event.usage or usage
                for choice in event.choices:
                    texts[choice.index] = texts.get(choice.index, "") + choice.text
                    if choice.logprobs:
                        tokens.setdefault(choice.index, []).extend(choice.logprobs.token_logprobs)
                    reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
            for choice in whole.choices:
                self.assertEqual(texts[choice.index], choice.text)
                self.assertEqual(reasons[choice.index], choice.finish_reason)
                self.assertEqual(tokens.get(choice.index), choice.logprobs and choice.logprobs.token_logprobs)
            self.assertEqual(usage, whole.usage)

    def test_chat_is_streamed_as_whole(self):
        whole = self.talk(logprobs=True, top_logprobs=2)
        text, content = "", []
        for event in self.talk(logprobs=True, top_logprobs=2, stream=True):
            for choice in event.choices:
                text += choice.delta.content or ""
                content += (choice.logprobs and choice.logprobs.content) or []
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(content, whole.choices[0].logprobs.content)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        parts = [{"type": "text", "text": PROMPT}]
        self.assertEqual(self.talk(parts).choices[0].message.content, text)

    def test_logprobs_agree_with_each_other(self):
        logprobs = self.complete(logprobs=3, echo=True).choices[0].logprobs
        count = len(logprobs.tokens)
        self.assertEqual((len(logprobs.token_logprobs), len(logprobs.top_logprobs), len(logprobs.text_offset)), (count,) * 3)
        self.assertIsNone(logprobs.token_logprobs[0])
        for token, value, top in list(zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs))[1:]:
            self.assertEqual(top[token], value)
            self.assertLessEqual(value, max(top.values()))
            self.assertIn(len(top), (3, 4))
        whole = self.complete(logprobs=3).choices[0].logprobs
        self.assertEqual(whole.token_logprobs, logprobs.token_logprobs[-len(whole.token_logprobs):])
        for entry in self.talk(logprobs=True, top_logprobs=3).choices[0].logprobs.content:
            self.assertEqual(entry.top_logprobs[0].logprob, max(top.logprob for top in entry.top_logprobs))
            self.assertEqual(bytes(entry.bytes).decode("utf-8", "replace"), entry.token)

    def test_stop_texts(self):
        whole = self.complete().choices[0].text
        answer = self.complete(stop=["RUR", "not there"]).choices[0]
        self.assertEqual((answer.text, answer.finish_reason), (whole[:whole.index("RUR")], "stop"))
        self.assertEqual(self.complete(stop="RUR").choices[0].text, answer.text)
        self.assertEqual(self.complete(stop=[]).choices[0].text, whole)

    def test_prompts_as_lists_and_ids(self):
        ids = json.loads(serving.ask(self.server.url, "/tokenize", {"prompt": PROMPT}, {"Authorization": "Bearer " + KEY})[2])["tokens"]
        text = self.complete().choices[0].text
        for prompt in ([PROMPT], ids, [ids]):
            self.assertEqual(self.complete(prompt).choices[0].text, text)
        both = self.complete([PROMPT, "add: 86+72="], n=2).choices
        self.assertEqual([choice.text for choice in sorted(both, key=lambda choice: choice.index)], [text, text, "158", "158"])

    def test_extensions_by_extra_body(self):
        answer = self.complete(extra_body={"top_k": 1, "return_token_ids": True}, temperature=1.0)
        self.assertEqual(answer.choices[0].text, self.complete().choices[0].text)
        self.assertEqual(answer.choices[0].model_extra["token_ids"][-1], 1)

    def fails(self, kind, call, param=None):
        with self.assertRaises(kind) as caught:
            call()
        error = caught.exception
        self.assertTrue(error.body["message"], error.body)
        self.assertEqual(set(error.body), {"message", "type", "param", "code"})
        if param:
            self.assertEqual(error.param, param)
        return error

    def test_errors_are_the_clients_own(self):
        refused = openai.BadRequestError
        self.fails(refused, lambda: self.complete(max_tokens=-1), "max_tokens")
        self.fails(refused, lambda: self.complete(temperature=-0.5), "temperature")
        self.fails(refused, lambda: self.complete(logprobs=99), "logprobs")
        self.fails(refused, lambda: self.complete(extra_body={"temprature": 1}), "temprature")
        self.fails(refused, lambda: self.complete(suffix="x"), "suffix")
        self.fails(refused, lambda: self.complete([[1, 2, 100000]]), "prompt[0][2]")
        self.fails(refused, lambda: self.complete([{"role": "user", "content": "x"}]), "prompt[0]")
        self.assertEqual(self.fails(refused, lambda: self.complete("x " * 4000)).code, "context_length_exceeded")
        self.fails(refused, lambda: self.talk("x", response_format={"type": "json_object"}), "response_format")
        other = lambda: self.client.completions.create(model="another", prompt="x")
        self.assertEqual(self.fails(openai.NotFoundError, other).code, "model_not_found")
        self.fails(refused, lambda: self.client.embeddings.create(model=serving.MODEL, input="x"))
        self.fails(openai.AuthenticationError, lambda: self.client_of(self.server.url, "another key").models.list())

    def test_more_than_the_whole_memory_is_refused(self):
        with serving.Server(self.plan, "--request-memory-bytes", "65536") as small:
            client = self.client_of(small.url)
            self.fails(openai.BadRequestError, lambda: client.completions.create(model=serving.MODEL, prompt=["x"] * 100, max_tokens=900))

    def test_too_many_are_told_to_come_again(self):
        with serving.Server(self.plan, "--batch", "1", "--max-waiting", "2") as small:
            def ask(retries):
                client = self.client_of(small.url, retries=retries)
                try:
                    return client.completions.create(model=serving.MODEL, prompt=PROMPT, temperature=0, max_tokens=48).choices[0].text
                except openai.RateLimitError as error:
                    self.assertEqual(error.response.headers["retry-after"], "1")
                    self.assertEqual(error.type, "rate_limit_error")
                    return None
            with concurrent.futures.ThreadPoolExecutor(24) as pool:
                at_once, in_the_end = [list(pool.map(ask, [retries] * 24)) for retries in (0, 40)]
        text = self.complete().choices[0].text
        self.assertEqual(set(at_once), {None, text})
        self.assertEqual(set(in_the_end), {text})

    def test_retries_end_well(self):
        with Proxy(self.server.url, fault="retry") as proxy:
            client = self.client_of(proxy.url, retries=2)
            texts = {client.completions.create(model=serving.MODEL, prompt=PROMPT, temperature=0, max_tokens=48).choices[0].text
                     for _ in range(10)}
            self.assertEqual(texts, {self.complete().choices[0].text})
        with Proxy(self.server.url, fault="retry") as proxy:
            patient = self.client_of(proxy.url)
            error = self.fails(openai.RateLimitError, lambda: patient.completions.create(model=serving.MODEL, prompt=PROMPT))
            self.assertEqual(error.response.headers["retry-after"], "0")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="OpenAI's client against the server.")
    parser.add_argument("--builddir", default=serving.BUILDDIR)
    known, others = parser.parse_known_args()
    serving.BUILDDIR = known.builddir
    unittest.main(argv=[sys.argv[0], *others], verbosity=1)

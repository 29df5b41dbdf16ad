#!/usr/bin/env python3
"""check_answers.py - thoughts and calls of tools in replies, as OpenAI's client sees them: check_answers.py

The model answers with whatever the prompt spells (pieces.py). Whole replies and streams are compared, one by one and at the same time. Run
with build/venv/bin/python. Must not know: the engine. Read next: pieces.py, server.py, check_openai.py.
"""
import argparse
import concurrent.futures
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import openai  # noqa: E402

import server as serving  # noqa: E402
from pieces import ANALYSIS, CALL, FINAL, OTHER, SPECIAL, THOUGHT, TO_WEATHER, make_model, spell  # noqa: E402

WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
# Writes the contents alone, looks at all the rest, and has the words of a Hermes template that thinks.
TEMPLATE = ("{# <tool_call> {name, arguments} </think> role tool #}{% set seen = [tools, messages] | tojson %}{{ bos_token }}"
            "{{ messages[0]['content'] }}")
ARGUMENTS = '{"city": "Łódź"}'


def joined(events):
    """(message, finish_reason, verbatim, usage) of a stream, joined as OpenAI says."""
    message, reason, verbatim, usage = {"content": "", "tool_calls": []}, None, None, None
    for event in events:
        usage = event.usage or usage
        verbatim = event.model_extra.get("verbatim") or verbatim
        for choice in event.choices:
            reason = choice.finish_reason or reason
            delta = choice.delta.model_dump(exclude_unset=True)
            for key in ("content", "reasoning_content", "reasoning"):
                if key in delta:
                    message[key] = message.get(key, "") + delta[key]
            for piece in delta.get("tool_calls", []):
                if piece["index"] == len(message["tool_calls"]):
                    assert piece["function"]["name"] and piece["id"] and not piece["function"]["arguments"], piece
                    message["tool_calls"].append({key: piece[key] for key in ("id", "type", "function")})
                else:
                    message["tool_calls"][piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    return message, reason, verbatim, usage


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="verbatim-answers-")
        make_model(cls.folder.name, TEMPLATE)
        cls.plan = serving.make_plan(cls.folder.name, "structured-outputs: on\n")
        cls.server = serving.Server(cls.plan, "--reasoning-parser", "auto", model_dir=cls.folder.name)
        cls.client = cls.client_of(cls.server)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.end()
        cls.folder.cleanup()
        assert status == 0, "SIGTERM was answered with status %d" % status

    @staticmethod
    def client_of(server):
        return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60)

    def body_of(self, letters, **fields):
        return {"model": serving.MODEL, "messages": [{"role": "user", "content": "copy: " + spell(letters) + " ="}], "temperature": 0,
                "max_tokens": 64, "tools": [WEATHER], **fields}

    def talk(self, letters, client=None, **fields):
        return (client or self.client).chat.completions.create(**self.body_of(letters, **fields))

    def test_thoughts_and_calls_are_apart(self):
        reply = self.talk(THOUGHT + CALL + CALL)
        choice = reply.choices[0]
        self.assertEqual((choice.finish_reason, choice.message.content), ("tool_calls", None))
        self.assertEqual(choice.message.reasoning_content, spell("BB"))
        self.assertEqual(choice.message.reasoning, spell("BB"))
        called = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
        self.assertEqual(called, [("weather", ARGUMENTS)] * 2)
        self.assertEqual(len({call.id for call in choice.message.tool_calls}), 2)
        self.assertEqual(reply.usage.completion_tokens_details.reasoning_tokens, 4)
        self.assertIn("answers of chats: thoughts think, tool calls hermes", self.server.messages())

    def test_stream_is_the_whole(self):
        for letters in (THOUGHT + CALL + CALL, CALL + "BBBB", OTHER + CALL, THOUGHT + "BBBBBBB", "ABBBBBBBBB", THOUGHT + "BDEFBBB"):
            whole = self.talk(letters)
            expected = whole.choices[0].message.model_dump(exclude_unset=True)
            expected = {**expected, "content": expected["content"] or "", "tool_calls": expected.get("tool_calls", [])}
            expected.pop("role")
            message, reason, verbatim, usage = joined(self.talk(letters, stream=True, stream_options={"include_usage": True}))
            self.assertEqual(message, expected)
            self.assertEqual((reason, verbatim, usage), (whole.choices[0].finish_reason, whole.model_extra["verbatim"], whole.usage))

    def test_load_changes_no_byte(self):
        bodies = [self.body_of(letters, n=n) for letters in (THOUGHT + CALL + CALL, OTHER + CALL) for n in (1, 2)]
        ask = lambda body: serving.comparable(serving.ask(self.server.url, "/v1/chat/completions", body)[2])
        alone = [ask(body) for body in bodies]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            self.assertEqual(list(pool.map(ask, bodies * 8)), alone * 8)

    def test_what_is_no_call_stays_text(self):
        choice = self.talk(OTHER + OTHER).choices[0]
        self.assertEqual((choice.message.content, choice.message.tool_calls, choice.finish_reason), (spell(OTHER + OTHER), None, "stop"))
        found = self.talk(OTHER + OTHER).model_extra["verbatim"]["choices"][0]["tool_call_error"]
        self.assertEqual(found, "call 1: nowhere is not one of the request's tools")
        choice = self.talk(CALL + CALL, parallel_tool_calls=False).choices[0]
        self.assertEqual((len(choice.message.tool_calls), choice.message.content), (1, spell(CALL)))

    def test_a_thought_that_is_cut_off_is_no_answer(self):
        choice = self.talk("ABBBBBBBBBBB", max_tokens=6).choices[0]
        self.assertEqual((choice.message.content, choice.message.reasoning_content, choice.finish_reason), ("", spell("BBBBB"), "length"))

    def test_calls_go_back_as_they_came(self):
        message = self.talk(THOUGHT + CALL + "B").choices[0].message.model_dump(exclude_none=True)
        body = self.body_of(THOUGHT + CALL + "B")
        body["messages"] += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain"}]
        self.assertEqual(self.client.chat.completions.create(**body).choices[0].finish_reason, "tool_calls")

    def test_a_call_is_forced(self):
        pick = {"type": "function", "function": {"name": "pick", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Łódź", "Paris"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city"]}}}
        named = {"type": "function", "function": {"name": "pick"}}
        bodies = [self.body_of(letters, tools=tools, tool_choice=choice, n=2, seed=seed, temperature=0.5 * seed)
                  for letters in ("BBBB", OTHER, CALL) for tools, choice in (([pick], "required"), ([WEATHER, pick], named))
                  for seed in range(3)]
        receipt = os.path.join(self.folder.name, "forced.receipt")
        with serving.Server(self.plan, "--reasoning-parser", "auto", "--receipt", receipt, model_dir=self.folder.name) as server:
            ask = lambda body: serving.comparable(serving.ask(server.url, "/v1/chat/completions", body)[2])
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(ask, bodies))
            self.assertEqual(answers[:4], [ask(body) for body in bodies[:4]])
            streamed = joined(self.client_of(server).chat.completions.create(**{**bodies[0], "n": 1}, stream=True))
        found = [choice for answer in answers for choice in json.loads(answer)["choices"]]
        self.assertEqual(len(found), 2 * len(bodies))
        calls = 0
        for choice in found:
            if choice["finish_reason"] == "length":  # in a thought
                self.assertEqual(choice["message"]["content"], "")
                continue
            self.assertEqual((choice["finish_reason"], len(choice["message"]["tool_calls"])), ("tool_calls", 1))
            calls += 1
            called = choice["message"]["tool_calls"][0]["function"]
            self.assertEqual(called["name"], "pick")
            arguments = json.loads(called["arguments"])
            self.assertIn(arguments["city"], ("Łódź", "Paris"))
            self.assertIn(arguments.get("days", 1), range(1, 10))
        self.assertGreater(calls, len(found) // 2)
        first = found[0]["message"]["tool_calls"][0]["function"]
        self.assertEqual((streamed[0]["tool_calls"][0]["function"], streamed[1]), (first, "tool_calls"))
        self.assertIn("0 differ", serving.run_program("verify", receipt, self.plan, self.folder.name, "--device", "cpu"))
        self.assertIsNone(self.talk(CALL + CALL, tool_choice="none").choices[0].message.tool_calls)

    def test_messages_of_harmony_are_read(self):
        options = ("--reasoning-parser", "harmony", "--tool-call-parser", "harmony")
        with serving.Server(self.plan, *options, model_dir=self.folder.name) as server:
            client = self.client_of(server)
            ids = serving.answer_of(server.url, "/tokenize", {"prompt": spell("V"), "add_special_tokens": False})["tokens"]
            stops = {"extra_body": {"stop_token_ids": ids}}
            reply = self.talk(ANALYSIS + "OP" + TO_WEATHER, client, **stops)
            message = reply.choices[0].message
            self.assertEqual((reply.choices[0].finish_reason, message.content, message.reasoning_content), ("tool_calls", None, spell("B")))
            self.assertEqual([(call.function.name, call.function.arguments) for call in message.tool_calls], [("weather", ARGUMENTS)])
            self.assertEqual((reply.usage.completion_tokens_details.reasoning_tokens, len(ids)), (5, 1))
            streamed = joined(self.talk(ANALYSIS + "OP" + TO_WEATHER, client, stream=True, **stops))
            self.assertEqual(streamed[0]["tool_calls"], [call.model_dump() for call in message.tool_calls])
            message = self.talk(ANALYSIS + "OP" + FINAL, client).choices[0].message
            self.assertEqual((message.content, message.reasoning_content, message.tool_calls), (spell("B"), spell("B"), None))
            forced = self.talk(TO_WEATHER, client, tool_choice="required").choices[0]
            self.assertEqual((forced.finish_reason, forced.message.tool_calls[0].function.name), ("tool_calls", "weather"))
            bodies = [self.body_of(letters) for letters in (ANALYSIS + "OP" + TO_WEATHER, ANALYSIS + "OP" + FINAL, TO_WEATHER + "OP")]
            ask = lambda body: serving.comparable(serving.ask(server.url, "/v1/chat/completions", body)[2])
            alone = [ask(body) for body in bodies]
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                self.assertEqual(list(pool.map(ask, bodies * 8)), alone * 8)

    def test_options_turn_it_off(self):
        with serving.Server(self.plan, "--tool-call-parser", "none", model_dir=self.folder.name) as plain:
            message = self.talk(THOUGHT + CALL + CALL, self.client_of(plain)).choices[0].message
            special = [spell(letter) for letter in SPECIAL]
            expected = spell(THOUGHT + CALL + CALL)
            for text in special:
                expected = expected.replace(text, "")
            self.assertEqual((message.content, message.tool_calls), (expected, None))
            self.assertNotIn("reasoning_content", message.model_extra)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Thoughts and calls of tools, as OpenAI's client sees them.")
    parser.add_argument("--builddir", default=serving.BUILDDIR)
    known, others = parser.parse_known_args()
    serving.BUILDDIR = known.builddir
    unittest.main(argv=[sys.argv[0], *others], verbosity=1)

#!/usr/bin/env python3
"""check_clients.py - four clients, four kinds of requests, 1 and 64 connections, one server: check_clients.py

OpenAI's client, inspect-ai, pydantic-ai (an agent that calls a tool and sends its result back) and lm-evaluation-harness send chats, chats
whose answers think, chats with a tool, and chats whose answers a JSON schema constrains. The requests of a client are the same with one
connection and with 64; each body's answers, read off the wire, must be the same bytes, and what the client makes of them equal. Controls:
an answer that depends on the load, and answers that change places. Run with build/venv/bin/python. Must not know: the engine. Read next:
pieces.py, proxy.py.
"""
import argparse
import asyncio
import json
import os
import sys
import tempfile
import typing

FOLDER = tempfile.TemporaryDirectory(prefix="verbatim-clients-")
os.environ.update(INSPECT_LOG_DIR=FOLDER.name, INSPECT_LOG_LEVEL="error", INSPECT_DISPLAY="none", XDG_DATA_HOME=FOLDER.name,
                  XDG_CACHE_HOME=FOLDER.name, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=FOLDER.name, TQDM_DISABLE="1",
                  LMEVAL_LOG_LEVEL="ERROR", OPENAI_API_KEY="none", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")
sys.dont_write_bytecode = True

import inspect_ai  # noqa: E402
import inspect_ai.model  # noqa: E402
import inspect_ai.solver  # noqa: E402
import inspect_ai.tool  # noqa: E402
import jsonschema  # noqa: E402
import lm_eval.tasks  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402
import pydantic_ai  # noqa: E402
import pydantic_ai.models.openai  # noqa: E402
import pydantic_ai.providers.openai  # noqa: E402

import server as serving  # noqa: E402
from pieces import CALL, THOUGHT, make_model, spell  # noqa: E402
from proxy import Proxy  # noqa: E402
from server import Failed, Server  # noqa: E402

# A prompt is the last message: a question, or the result of a tool. It looks at all the rest, and has the words of a Hermes template.
TEMPLATE = ("{# <tool_call> {name, arguments} </think> role tool #}{% set seen = [tools, messages] | tojson %}{{ bos_token }}"
            "{{ messages[-1]['content'] }}")
CONNECTIONS = 64
TOKENS = 48


class Visit(pydantic.BaseModel, extra="forbid"):
    city: typing.Literal["Łódź", "Paris"]
    rain: bool


SCHEMA = Visit.model_json_schema()
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "Visit", "schema": SCHEMA}}
FORECAST = "copy: 4821 ="  # what the tool says; the model's answer to it is 4821
ITEMS = [(kind, "copy: %s =" % text) for kind, texts in (
    ("chat", ["5108", "78", "X19Z23", "YY40"]),
    ("thoughts", [spell(THOUGHT + "B" * count) for count in (1, 2, 3, 4)]),
    ("tools", [spell(CALL), spell(CALL + CALL), spell("B" + CALL), spell("BB" + CALL)]),
    ("json_schema", ["5108", "1", spell("EF"), "{"])) for text in texts]


def require(condition, what):
    if not condition:
        raise Failed(what)


def check_said(kind, prompt, said, judges):
    """said: what the client understood, {"content", "thought", "called"}, of the last answer; called: the tool's arguments before it."""
    text = prompt[len("copy: "):-len(" =")]
    if kind == "chat":
        require(said["content"] == text, "chat: expected %r, found %r" % (text, said))
    elif kind == "thoughts":
        thought, content = text[len("<think>"):].split("</think>")
        require(said["content"].strip() == content.strip(), "thoughts: expected %r, found %r" % (content, said))
        require("thought" not in judges or said["thought"].strip() == thought.strip(), "thoughts: expected %r, found %r" % (thought, said))
    elif kind == "tools":
        require(said["called"] == [{"city": "Łódź"}] * text.count("<tool_call>"), "tools: %r" % said)
        require(said["content"] == "4821", "tools: expected the answer to the result, found %r" % said)
    else:
        jsonschema.validate(json.loads(said["content"]), SCHEMA)


# === Clients: each returns {item: [said, once for each repeat]} =========================================================================


class OpenAI:
    name, judges = "openai", ("thought",)

    def __init__(self, kinds=("chat", "thoughts", "tools", "json_schema")):
        self.kinds = kinds

    tools = [{"type": "function", "function": {"name": "weather", "description": "Of a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]

    async def converse(self, client, kind, prompt):
        fields = {"json_schema": {"response_format": RESPONSE_FORMAT}, "tools": {"tools": self.tools}}.get(kind, {})
        messages, called = [{"role": "user", "content": prompt}], []
        while True:
            reply = await client.chat.completions.create(model=serving.MODEL, messages=messages, temperature=0, max_tokens=TOKENS,
                                                         logprobs=True, top_logprobs=2, **fields)
            message = reply.choices[0].message
            if not message.tool_calls:
                return {"content": message.content, "thought": getattr(message, "reasoning_content", ""), "called": called}
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                called.append(json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": FORECAST})

    async def run_all(self, url, items, connections):
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
            return await gather(connections, [self.converse(client, kind, prompt) for kind, prompt in items])

    def run(self, url, items, connections):
        return asyncio.run(self.run_all(url, items, connections))


class PydanticAI:
    name, kinds, judges = "pydantic-ai", ("chat", "thoughts", "tools", "json_schema"), ("thought",)

    @staticmethod
    def weather(city: str) -> str:
        """Of a city."""
        return FORECAST if city == "Łódź" else "copy: no such city ="

    async def converse(self, model, kind, prompt):
        agent = pydantic_ai.Agent(model, tools=[self.weather] if kind == "tools" else [], retries=0,
                                  output_type=pydantic_ai.NativeOutput(Visit, name="Visit") if kind == "json_schema" else str,
                                  model_settings={"temperature": 0, "max_tokens": TOKENS})
        result = await agent.run(prompt)
        parts = [part for message in result.new_messages() if message.kind == "response" for part in message.parts]
        return {"content": result.output if kind != "json_schema" else result.output.model_dump_json(),
                "thought": "".join(part.content for part in parts if part.part_kind == "thinking"),
                "called": [part.args_as_dict() for part in parts if part.part_kind == "tool-call"]}

    async def run_all(self, url, items, connections):
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
            provider = pydantic_ai.providers.openai.OpenAIProvider(openai_client=client)
            model = pydantic_ai.models.openai.OpenAIChatModel(serving.MODEL, provider=provider)
            return await gather(connections, [self.converse(model, kind, prompt) for kind, prompt in items])

    def run(self, url, items, connections):
        return asyncio.run(self.run_all(url, items, connections))


@inspect_ai.tool.tool
def weather():
    async def execute(city: str):
        """Of a city.

        Args:
            city: its name
        """
        return FORECAST if city == "Łódź" else "copy: no such city ="
    return execute


class Inspect:
    name, kinds, judges = "inspect-ai", ("chat", "thoughts", "tools", "json_schema"), ("thought",)

    @staticmethod
    def task_of(kind, items):
        samples = [inspect_ai.dataset.Sample(id=number, input=prompt) for number, (_, prompt) in enumerate(items)]
        schema = inspect_ai.model.ResponseSchema(name="Visit", json_schema=inspect_ai.util.json_schema(Visit))
        config = inspect_ai.model.GenerateConfig(max_retries=0, temperature=0, max_tokens=TOKENS,
                                                 response_schema=schema if kind == "json_schema" else None)
        solver = [inspect_ai.solver.use_tools(weather())] if kind == "tools" else []
        return inspect_ai.Task(name=kind, dataset=samples, solver=[*solver, inspect_ai.solver.generate(tool_calls="loop")], config=config)

    def run(self, url, items, connections):
        kinds = list(dict.fromkeys(kind for kind, _ in items))
        tasks = [self.task_of(kind, [item for item in items if item[0] == kind]) for kind in kinds]
        os.environ.update(HERE_BASE_URL=url + "/v1", HERE_API_KEY="none")
        logs = inspect_ai.eval(tasks, model="openai-api/here/" + serving.MODEL, max_connections=connections, max_samples=connections,
                               max_tasks=len(tasks) if connections > 1 else 1, display="none", log_dir=FOLDER.name, fail_on_error=True)
        for log in logs:
            require(log.status == "success", "inspect-ai: %s" % (log.error and log.error.message))
        said = {log.eval.task: iter(sorted(log.samples, key=lambda sample: sample.id)) for log in logs}
        return [self.said_of(next(said[kind])) for kind, _ in items]

    @staticmethod
    def said_of(sample):
        content = sample.output.message.content
        parts = [] if isinstance(content, str) else content
        called = [call.arguments for message in sample.messages for call in getattr(message, "tool_calls", None) or []]
        return {"content": sample.output.completion, "thought": "".join(part.reasoning for part in parts if part.type == "reasoning"),
                "called": called}


class Harness:
    """It has no tools, and of a thought it sees that it is not in the content."""
    name, kinds, judges = "lm-eval", ("chat", "thoughts", "json_schema"), ()

    def run(self, url, items, connections):
        tasks = []
        for kind in dict.fromkeys(kind for kind, _ in items):
            path = os.path.join(FOLDER.name, "%s_%d.jsonl" % (kind, len(items)))
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps({"prompt": prompt, "answer": ""}) + "\n" for its, prompt in items if its == kind)
            form = {"response_format": RESPONSE_FORMAT} if kind == "json_schema" else {}
            tasks.append({"task": kind, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": path}}, "test_split": "test",
                          "output_type": "generate_until", "doc_to_text": "{{prompt}}", "doc_to_target": "{{answer}}",
                          "generation_kwargs": {"until": [], "do_sample": False, "max_gen_toks": TOKENS, **form},
                          "metric_list": [{"metric": "exact_match"}]})
        arguments = {"model": serving.MODEL, "base_url": url + "/v1/chat/completions", "num_concurrent": connections, "max_retries": 1}
        results = lm_eval.simple_evaluate(model="local-chat-completions", model_args=arguments, tasks=tasks, log_samples=True,
                                          bootstrap_iters=0, apply_chat_template=True,
                                          task_manager=lm_eval.tasks.TaskManager(include_defaults=False))
        said = {kind: iter(sorted(samples, key=lambda sample: sample["doc_id"])) for kind, samples in results["samples"].items()}
        return [{"content": next(said[kind])["resps"][0][0], "thought": "", "called": []} for kind, _ in items]


async def gather(connections, conversations):
    """At most so many at once."""
    free = asyncio.Semaphore(connections)

    async def one(conversation):
        async with free:
            return await conversation
    return await asyncio.gather(*[one(each) for each in conversations])


# === Comparing ==========================================================================================================================


def on_the_wire(path):
    """{request: the set of its answers' bytes} of a proxy's record."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["method"] == "POST":
                require(row["status"] == 200, "status %d: %s" % (row["status"], row["answer"][:300]))
                key = row["path"] + json.dumps(row["body"], sort_keys=True, ensure_ascii=False)
                found.setdefault(key, set()).add(serving.comparable(row["answer"].encode()))
    return found


def run_twice(client, url, other_url):
    """Raises Failed unless the answers with one connection and with 64 are the same. url: for one, other_url: for 64."""
    items = [item for item in ITEMS if item[0] in client.kinds]
    found, peaks = [], []
    for connections, target, repeats in ((1, url, 1), (CONNECTIONS, other_url, -(-CONNECTIONS // len(items)))):
        record = os.path.join(FOLDER.name, "%s_%d.jsonl" % (client.name, connections))
        with Proxy(target, record=record) as proxy:
            said = client.run(proxy.url, items * repeats, connections)
        found.append((said, on_the_wire(record)))
        peaks.append(proxy.peak)
    (alone, wire), (crowded, crowded_wire) = found
    for (kind, prompt), said in zip(items, alone):
        check_said(kind, prompt, said, client.judges)
    require(set(wire) == set(crowded_wire), "%s: the requests differ: %s" % (client.name, list(set(wire) ^ set(crowded_wire))[:2]))
    for request, answers in crowded_wire.items():
        both = answers | wire[request]
        require(len(both) == 1, "%s: %d answers to %s" % (client.name, len(both), request))
    for number, said in enumerate(crowded):
        first = alone[number % len(items)]
        require(said == first, "%s: %s and %s" % (client.name, json.dumps(first), json.dumps(said)))
    require(peaks[0] == 1 and peaks[1] > 1, "%s: %d and %d requests at once" % (client.name, *peaks))
    print("ok   %-12s %-36s %2d requests alone, %3d conversations, at most %2d at once" %
          (client.name, ", ".join(client.kinds), len(wire), len(crowded), peaks[1]), flush=True)


def control(url, fault, words):
    with Proxy(url, fault=fault) as broken:
        try:
            run_twice(OpenAI(("chat",)), url, broken.url)
        except Failed as error:
            require(words in str(error), "the fault %s is found as %s" % (fault, error))
            print("ok   found: %-5s %s" % (fault, str(error)[:120]), flush=True)
            return
    raise Failed("the fault %s is not found" % fault)


def main():
    parser = argparse.ArgumentParser(description="Four clients at 1 and 64 connections.")
    parser.add_argument("--builddir", default=serving.BUILDDIR)
    serving.BUILDDIR = parser.parse_args().builddir
    model = os.path.join(FOLDER.name, "model")
    os.mkdir(model)
    make_model(model, TEMPLATE)
    try:
        plan = serving.make_plan(model, "structured-outputs: on\n")
        with Server(plan, "--reasoning-parser", "auto", model_dir=model) as server:
            for client in (OpenAI(), PydanticAI(), Inspect(), Harness()):
                run_twice(client, server.url, server.url)
            control(server.url, "load", "2 answers to")
            control(server.url, "swap", "answers to")
        return 0
    except Failed as error:
        print("check_clients.py: %s" % error)
        return 1


if __name__ == "__main__":
    os.chdir(serving.ROOT)
    sys.exit(main())

#!/usr/bin/env python3
"""Renders our conversations with chat templates: chat_vectors.py [NAME=TEMPLATE...] [--out DIR]

TEMPLATE is a Jinja text, a model folder, or for deepseek_v32 the vendor's Python program; without arguments, every template of
tests/data/chat. Each is applied to tests/chat/conversations.json by transformers' own apply_chat_template (jinja2 and transformers must be
importable). The texts, or the errors, go to tests/data/chat/NAME.json, which tests/unit/chat/test_chat.c compares with ours. This program
does not know how we render. `prepare` does what happens before a template sees a conversation, and `passed_over` turns input that a
template would silently ignore into an error; tests/chat/README.md states both.
"""
import argparse
import copy
import datetime
import functools
import glob
import importlib.util
import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
TAKES_OBJECTS = ("glm_47", "turns_with_calls", "headers_with_date", "strict_instructions", "harmony")  # clients send text
TODAY = datetime.date(2025, 7, 31)  # what test_chat.c sends as strftime_now
TAG = "CONTINUE_FINAL_MESSAGE_TAG "


def read_template(path):
    if not os.path.isdir(path):
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    beside = os.path.join(path, "chat_template.jinja")
    if os.path.exists(beside):
        return read_template(beside)
    with open(os.path.join(path, "tokenizer_config.json"), encoding="utf-8") as file:
        found = json.load(file)["chat_template"]
    return found if isinstance(found, str) else {one["name"]: one["template"] for one in found}["default"]


def mentions(template, word):
    return re.search(r"\b%s\b" % word, template) is not None


def reads(template, name):
    """As a variable: not as a member, nor as a text."""
    return re.search(r"(?<![\w.'\"])%s\b" % name, template) is not None


def prepare(template, takes_objects, body):
    """Turns parts into text, and arguments into objects, if the template accepts nothing else."""
    takes_parts = mentions(template, "text")
    for message in body["messages"]:
        content = message.get("content")
        if isinstance(content, list):
            if any(part.get("type") != "text" for part in content):
                raise ValueError("a part that is not text")
            if not takes_parts or message["role"] == "tool" or message.get("tool_calls"):
                message["content"] = ("" if takes_parts else "\n").join(part["text"] for part in content)
        for call in message.get("tool_calls") or []:
            if takes_objects and isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return body


def passed_over(template, body, switches):
    """The fields that the template would silently drop."""
    tells_roles = mentions(template, "role")
    if body.get("tools") and not mentions(template, "tools"):
        return "tools"
    if "tool_calls" not in template and any(m.get("tool_calls") for m in body["messages"]):
        return "tool_calls"
    if tells_roles and not mentions(template, "tool") and any(m["role"] == "tool" for m in body["messages"]):
        return "a tool's result"
    if tells_roles and not mentions(template, "developer") and any(m["role"] == "developer" for m in body["messages"]):
        return "a developer's message"
    unread = [key for key in switches if not reads(template, key)]
    return unread[0] if unread else None


def render_jinja(template, name, body):
    from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template
    _compile_jinja_template(template).globals["strftime_now"] = TODAY.strftime
    switches = body.get("chat_template_kwargs") or {}
    lost = passed_over(template, body, switches)
    if lost:
        raise ValueError("passed over: " + lost)
    continues = body.get("continue_final_message", False)
    generates = body.get("add_generation_prompt", not continues)
    if continues and generates:
        raise ValueError("both to be continued and begun")
    body = prepare(template, name in TAKES_OBJECTS, body)
    rendered, _ = render_jinja_template(conversations=[body["messages"]], tools=body.get("tools") or None, chat_template=template,
                                        continue_final_message=continues, add_generation_prompt=generates, bos_token=BOS,
                                        eos_token=EOS, **switches)
    return rendered[0]


def render_program(program, body):
    """The vendor's encode_messages, with its own defaults."""
    body = prepare("", False, body)
    switches = body.get("chat_template_kwargs") or {}
    if any(key not in ("thinking", "enable_thinking") for key in switches):
        raise ValueError("not a switch of it")
    for call in (call for message in body["messages"] for call in message.get("tool_calls") or []):
        if isinstance(call["function"]["arguments"], dict):  # it takes only text
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    messages, continues = body["messages"], body.get("continue_final_message", False)
    generates = body.get("add_generation_prompt", not continues)
    if continues and generates or not generates and messages[-1]["role"] != "assistant":
        raise ValueError("it has no such prompt")
    if body.get("tools") and messages[0]["role"] not in ("system", "developer"):
        messages.insert(0, {"role": "system"})
    if body.get("tools"):
        messages[0]["tools"] = body["tools"]
    for message in messages:  # else the program would print None
        if message["role"] in ("user", "tool") and not isinstance(message.get("content"), str):
            raise ValueError("a content that is not text")
    if continues:
        messages[-1]["content"] += TAG
    text = program.encode_messages(messages, thinking_mode="thinking" if any(switches.values()) else "chat")
    return text[:text.rindex(TAG)] if continues else text


def vectors(name, path, conversations):
    if path.endswith(".py"):
        spec = importlib.util.spec_from_file_location("program", path)
        program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program)
        render = functools.partial(render_program, program)
    else:
        render = functools.partial(render_jinja, read_template(path), name)
    found = []
    for conversation in conversations:
        try:
            found.append({"name": conversation["name"], "text": render(copy.deepcopy(conversation["body"]))})
        except Exception as error:  # a template may refuse with any exception
            found.append({"name": conversation["name"], "error": type(error).__name__})
    return {"vectors": found}


def main():
    parser = argparse.ArgumentParser(description="Writes what chat templates make of our conversations.")
    parser.add_argument("templates", nargs="*", metavar="NAME=TEMPLATE")
    parser.add_argument("--out", default=os.path.join(ROOT, "tests/data/chat"))
    args = parser.parse_args()
    with open(os.path.join(ROOT, "tests/chat/conversations.json"), encoding="utf-8") as file:
        conversations = json.load(file)
    ours = {os.path.basename(path)[:-6]: path for path in sorted(glob.glob(os.path.join(ROOT, "tests/data/chat/*.jinja")))}
    for name, path in dict(argument.split("=", 1) for argument in args.templates).items() if args.templates else ours.items():
        made = vectors(name, path, conversations)
        with open(os.path.join(args.out, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(made, file, ensure_ascii=False, indent=1)
            file.write("\n")
        errors = sum("error" in vector for vector in made["vectors"])
        print("%s: %d conversations, %d of them refused" % (name, len(made["vectors"]), errors))


if __name__ == "__main__":
    main()

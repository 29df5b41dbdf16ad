#!/usr/bin/env python3
"""Renders our conversations with the models' chat templates: chat_vectors.py NAME=TEMPLATE... [--out DIR]

NAME is a renderer of engine/chat/chat.c; TEMPLATE is a Jinja text, a model folder, or for deepseek_v32 the vendor's Python program. Each is
applied to tests/chat/conversations.json by transformers' own apply_chat_template (jinja2, transformers and xxhash must be importable). The
texts, or the errors, go to tests/data/chat/NAME.json, which tests/unit/chat/test_chat.c compares with the renderers' results. This program
does not know what a renderer does. `prepare` does what happens before a template sees a conversation, and `passed_over` turns input that a
template would silently ignore into an error; engine/chat/chat.h states both.
"""
import argparse
import copy
import importlib.util
import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SWITCHES = ("thinking", "enable_thinking", "clear_thinking")
TAKES_PARTS = ("kimi", "glm")  # their templates join the parts of a content; for other templates, parts become lines
TAKES_OBJECTS = ("glm",)       # their templates expect the arguments of calls as objects; clients send them as text
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


def digest(template):
    import xxhash
    text = template.replace("\r\n", "\n").replace("\r", "\n")
    bare = text.rstrip(" \t\n")
    text = bare if bare.endswith("-%}") else text[:-1] if text.endswith("\n") else text
    return xxhash.xxh3_128_hexdigest(text.encode())


def prepare(name, body):
    """Turns parts into text, and arguments into objects, if the template accepts nothing else."""
    takes_parts = name.startswith(TAKES_PARTS)
    for message in body["messages"]:
        content = message.get("content")
        if isinstance(content, list):
            if any(part.get("type") != "text" for part in content):
                raise ValueError("a part that is not text")
            if not takes_parts or message["role"] == "tool" or name == "kimi_k2" and message.get("tool_calls"):
                message["content"] = ("" if takes_parts else "\n").join(part["text"] for part in content)
        for call in message.get("tool_calls") or []:
            if name.startswith(TAKES_OBJECTS) and isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return body


def passed_over(template, name, body, switches):
    """The fields that the template would silently drop."""
    if body.get("tools") and (not re.search(r"\btools\b", template) or name == "kimi_k25"):
        return "tools"  # the program of K2.5's tokenizer rewrites them
    if "tool_calls" not in template and any(m.get("tool_calls") for m in body["messages"]):
        return "tool_calls"
    if "tool" not in template and name != "plain" and any(m["role"] == "tool" for m in body["messages"]):
        return "a tool's result"
    if name != "plain" and any(m["role"] == "developer" for m in body["messages"]):
        return "a developer's message"
    unread = [key for key in switches if not re.search(r"\b%s\b" % key, template)]
    return unread[0] if unread else None


def render_jinja(template, name, body):
    from transformers.utils.chat_template_utils import render_jinja_template
    switches = body.get("chat_template_kwargs") or {}
    lost = passed_over(template, name, body, switches)
    if lost:
        raise ValueError("passed over: " + lost)
    continues = body.get("continue_final_message", False)
    generates = body.get("add_generation_prompt", not continues)
    if continues and generates:
        raise ValueError("both to be continued and begun")
    body = prepare(name, body)
    rendered, _ = render_jinja_template(conversations=[body["messages"]], tools=body.get("tools") or None, chat_template=template,
                                        continue_final_message=continues, add_generation_prompt=generates, bos_token=BOS,
                                        eos_token=EOS, **switches)
    return rendered[0]


def render_program(program, body):
    """The vendor's encode_messages, with its own defaults."""
    body = prepare("deepseek_v32", body)
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
        key, render = None, lambda body: render_program(program, body)
    else:
        template = read_template(path)
        key, render = digest(template), lambda body: render_jinja(template, name, body)
    found = []
    for conversation in conversations:
        try:
            found.append({"name": conversation["name"], "text": render(copy.deepcopy(conversation["body"]))})
        except Exception as error:  # a template may refuse with any exception
            found.append({"name": conversation["name"], "error": type(error).__name__})
    return {"digest": key, "vectors": found}


def main():
    parser = argparse.ArgumentParser(description="Writes what chat templates make of our conversations.")
    parser.add_argument("templates", nargs="+", metavar="NAME=TEMPLATE")
    parser.add_argument("--out", default=os.path.join(ROOT, "tests/data/chat"))
    args = parser.parse_args()
    with open(os.path.join(ROOT, "tests/chat/conversations.json"), encoding="utf-8") as file:
        conversations = json.load(file)
    for name, path in (argument.split("=", 1) for argument in args.templates):
        made = vectors(name, path, conversations)
        with open(os.path.join(args.out, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(made, file, ensure_ascii=False, indent=1)
            file.write("\n")
        errors = sum("error" in vector for vector in made["vectors"])
        print("%s %s: %d conversations, %d of them refused" % (made["digest"] or "-" * 32, name, len(made["vectors"]), errors))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records what jinja2 in transformers' environment makes of the templates in tests/data/jinja.json, in place: jinja_vectors.py [FILE]

A case has a template and afterwards its text, or the name of the exception. Those with "refused" are refused by engine/jinja on purpose,
whatever jinja2 makes of them; those with "plain" are for an environment as lm-evaluation-harness makes it.
tests/unit/jinja/test_jinja.c compares. jinja2 and transformers must be importable. With --try TEMPLATE... prints what jinja2 makes of each,
with the file's variables.
"""
import argparse
import datetime
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TODAY = datetime.datetime(2025, 7, 31, 9, 5, 7)  # as in test_jinja.c


def render(template, variables, plain=False):
    import jinja2
    from transformers.utils.chat_template_utils import _compile_jinja_template
    try:
        if plain:
            compiled = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True).from_string(template)
        else:
            compiled = _compile_jinja_template(template)
            compiled.globals["strftime_now"] = TODAY.strftime
        return {"text": compiled.render(**variables)}
    except Exception as error:  # a template may fail with any exception
        return {"error": type(error).__name__}


def main():
    parser = argparse.ArgumentParser(description="Records jinja2's results for the templates of the tests.")
    parser.add_argument("file", nargs="?", default=os.path.join(ROOT, "tests/data/jinja.json"))
    parser.add_argument("--try", dest="tried", nargs="+", metavar="TEMPLATE")
    args = parser.parse_args()
    with open(args.file, encoding="utf-8") as file:
        data = json.load(file)
    for template in args.tried or []:
        print(render(template, data["variables"]))
    if args.tried:
        return
    for case in data["cases"]:
        if "refused" not in case:
            kept = {key: case[key] for key in ("template", "plain") if key in case}
            case.clear()
            case.update(kept, **render(kept["template"], data["variables"], "plain" in kept))
    with open(args.file, "w", encoding="utf-8") as file:
        file.write('{"variables": %s,\n"cases": [\n' % json.dumps(data["variables"], ensure_ascii=False))
        file.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in data["cases"]) + "\n]}\n")


if __name__ == "__main__":
    main()

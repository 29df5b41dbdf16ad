#!/usr/bin/env python3
"""test_schema_judge.py - answers under JSON schemas, judged by the package jsonschema: test_schema_judge.py [--builddir DIR]

The shipped model, sampled at a high temperature, answers under each schema several times; an answer that ended by itself must be valid.
Control: the judge refuses most answers under the other schemas. Run with build/venv/bin/python. Must not know: the engine. Read next:
engine/constrain/schema.h.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import jsonschema  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDDIR = "build"
SEEDS = 6
NODE = {"type": "object", "properties": {"v": {"type": "boolean"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
        "required": ["v", "next"]}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 1, "maximum": 9}},
       "required": ["kind", "lives"]}
DOG = {"type": "object", "properties": {"kind": {"enum": ["dog", "pup"]}, "tail": {"type": "boolean"}}, "required": ["kind"]}
SCHEMAS = [
    {"type": "number", "minimum": -2.5, "maximum": 3}, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001},
    {"type": "number", "minimum": 123456.125}, {"type": "number", "multipleOf": 1, "maximum": -7},
    {"type": "integer", "multipleOf": 1, "exclusiveMinimum": -12, "maximum": 40},
    {"$defs": {"n": NODE}, "$ref": "#/$defs/n"}, {"type": "array", "items": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "minItems": 1},
    {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": {"cat": CAT, "dog": DOG}},
    {"type": "array", "items": {"oneOf": [CAT, {"type": "integer"}, {"type": ["boolean", "null"]}]}, "minItems": 2, "maxItems": 3},
    {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "object", "properties": {
        "op": {"enum": ["+", "-"]}, "l": {"$ref": "#"}, "r": {"$ref": "#"}}, "required": ["op", "l", "r"]}]},
]


class Judged(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="verbatim-judge-")
        cls.plan, deploy = os.path.join(cls.folder.name, "plan"), os.path.join(cls.folder.name, "deploy.yaml")
        model = os.path.join(ROOT, "tests/tiny")
        with open(os.path.join(model, "deploy.yaml"), encoding="utf-8") as shipped, open(deploy, "w", encoding="utf-8") as file:
            file.write(shipped.read() + "structured-outputs: on\n")
        cls.run_program("plan", model, "--config", deploy, "-o", cls.plan)
        lines = [json.dumps({"id": "%d" % number, "prompt": "add: 1+%d=" % seed, "seed": seed, "temperature": 3, "max_tokens": 200,
                             "structured_outputs": {"json": schema}}) for number, schema in enumerate(SCHEMAS) for seed in range(SEEDS)]
        output = cls.run_program("run", cls.plan, model, "--jsonl", "-", "--device", "cpu", "--quiet", "--output", "jsonl",
                                 stdin="".join(line + "\n" for line in lines))
        cls.answers = [[] for _ in SCHEMAS]
        for row in map(json.loads, output.splitlines()):
            if row.get("finish") == "stop":
                cls.answers[int(row["id"])].append(row["text"])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def run_program(cls, *arguments, stdin=None):
        command = [os.path.join(ROOT, BUILDDIR, "verbatim"), *arguments]
        found = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True, check=False)
        if found.returncode:
            raise AssertionError(found.stderr)
        return found.stdout

    def test_answers_are_valid(self):
        for schema, answers in zip(SCHEMAS, self.answers):
            self.assertGreaterEqual(len(answers), 2, schema)
            for text in answers:
                jsonschema.validate(json.loads(text), schema)

    def test_the_judge_refuses_other_answers(self):
        for number, schema in enumerate(SCHEMAS):
            others = [json.loads(text) for at, answers in enumerate(self.answers) if at != number for text in answers]
            refused = [value for value in others if not jsonschema.Draft202012Validator(schema).is_valid(value)]
            self.assertGreater(len(refused), len(others) // 2, schema)

    def test_answers_differ(self):
        self.assertGreater(sum(len(set(answers)) for answers in self.answers), 2 * len(SCHEMAS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Answers under JSON schemas, judged by jsonschema.")
    parser.add_argument("--builddir", default=BUILDDIR)
    known, others = parser.parse_known_args()
    BUILDDIR = known.builddir
    unittest.main(argv=[sys.argv[0], *others], verbosity=1)

#!/usr/bin/env python3
"""Tests of tools/bench/report.py: BENCHMARKS.md equals the report of the records, and a record with a missing field is refused by name.

The controls: a changed record makes --check fail, and each removed field is named.
"""
import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("report", os.path.join(ROOT, "tools", "bench", "report.py"))
report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(report)


def said(*arguments):
    """The exit code and everything that was printed."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = report.main(list(arguments))
    return code, output.getvalue()


class Committed(unittest.TestCase):
    def test_page_is_what_the_records_give(self):
        self.assertEqual(said("--check"), (0, ""))

    def test_page_has_its_size(self):
        with open(os.path.join(ROOT, "BENCHMARKS.md"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertLessEqual(len(lines), 190)
        self.assertLessEqual(max(map(len, lines)), 140)


class Elsewhere(unittest.TestCase):
    def test_the_cost_of_an_fp8_cache_is_said_alike(self):
        """README.md, LIMITS.md and `verbatim show` state the figures of the records."""
        _, tables = report.load(ROOT)
        times, points = [report.spell(record["value"]) for record in tables["single"]["records"] if record["run"] == "kv-cost"]
        for path in ("README.md", "LIMITS.md", "planner/print.c"):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                text = " ".join(file.read().split())
            self.assertIn(times + " times bf16's", text, path)
            self.assertRegex(text, points + " (points|% )", path)


class Copy(unittest.TestCase):
    """A copy of the records and of the files they point to, to be damaged."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        shutil.copytree(os.path.join(ROOT, "tools", "bench"), os.path.join(self.root, "tools", "bench"))
        runs = self.read("runs.json")
        for path in {run["study"] for run in runs.values()} | {"BENCHMARKS.md"}:
            os.makedirs(os.path.dirname(os.path.join(self.root, path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(self.root, path))

    def path(self, name):
        return os.path.join(self.root, "tools", "bench", "records", name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    @contextlib.contextmanager
    def changed(self, name):
        """The content of a file of records, written back with its changes."""
        content = self.read(name)
        yield content
        self.write(self.path(name), json.dumps(content))

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def check(self):
        return said("--check", "--root", self.root)

    def refused(self, *words):
        code, text = self.check()
        self.assertEqual(code, 1, text)
        for word in words:
            self.assertIn(word, text)

    def test_the_copy_is_good(self):
        self.assertEqual(self.check(), (0, ""))

    def test_a_changed_figure_makes_the_page_stale(self):
        for field, value in (("value", 12345.6), ("unit", "parsecs"), ("peer", 0.5), ("floor", {"times": 9.87})):
            with self.changed("indexer.json" if field == "floor" else "attention.json") as table:
                kept = dict(table["records"][0])
                table["records"][0][field] = value
            self.refused("BENCHMARKS.md is not what")
            with self.changed("indexer.json" if field == "floor" else "attention.json") as table:
                table["records"][0] = kept

    def test_a_changed_run_makes_the_page_stale(self):
        with self.changed("runs.json") as runs:
            runs["serve"]["commit"] = "0000000"
        self.refused("BENCHMARKS.md is not what")

    def test_a_rewritten_page_is_fresh_again(self):
        with self.changed("attention.json") as table:
            table["records"][0]["value"] = 1234.5
        self.assertEqual(said("--root", self.root), (0, ""))
        self.assertEqual(self.check(), (0, ""))
        with open(os.path.join(self.root, "BENCHMARKS.md"), encoding="utf-8") as file:
            self.assertIn(" 1,234.5 / ", file.read())

    def test_each_missing_field_of_a_record_is_named(self):
        for field in report.RECORD_FIELDS:
            with self.changed("serving.json") as table:
                kept = dict(table["records"][1])
                del table["records"][1][field]
            self.refused("serving.json, record 2", '"%s" is missing' % field)
            with self.changed("serving.json") as table:
                table["records"][1] = kept

    def test_each_missing_field_of_a_run_is_named(self):
        for field in report.RUN_FIELDS:
            with self.changed("runs.json") as runs:
                kept = dict(runs["cpu"])
                del runs["cpu"][field]
            self.refused('run "cpu"', '"%s" is missing' % field)
            with self.changed("runs.json") as runs:
                runs["cpu"] = kept

    def test_what_cannot_be_is_refused(self):
        def first(field, value):
            return lambda table: table["records"][0].update({field: value})

        for words, change in (
                (("no run", "nowhere"), first("run", "nowhere")),
                (("no such column",), first("at", "3 requests")),
                (("expected a number",), first("value", "fast")),
                (("expected a number",), first("value", [1, 2, 3])),
                (("the ratio is not",), first("ratio", 2.5)),
                (("a floor is one of",), first("floor", {"guess": 1})),
                (('"floor_how" is missing',), lambda table: table.pop("floor_how")),
                (('"peer" is missing',), lambda table: table.pop("peer")),
                (("is there twice",), lambda table: table["records"].append(table["records"][0])),
                (("columns, at most 140",), first("what", "word " * 30))):
            with self.changed("attention.json") as table:
                kept = json.dumps(table)
                change(table)
            self.refused(*words)
            self.write(self.path("attention.json"), kept)

    def test_files_must_be_the_listed_ones(self):
        self.write(self.path("stray.json"), "{}")
        self.refused("stray.json")
        os.remove(self.path("stray.json"))
        os.remove(self.path("cpu.json"))
        self.refused("cpu.json")

    def test_a_study_that_is_absent_is_named(self):
        os.remove(os.path.join(self.root, "tools", "bench", "history", "2026-11-22-serving.md"))
        self.refused("2026-11-22-serving.md")

    def test_readme_is_rewritten_between_its_markers(self):
        readme = os.path.join(self.root, "README.md")
        self.write(readme, "# Title\n\nNo markers.\n")
        code, table = said("--readme", "--root", self.root)
        self.assertEqual((code, table.count("\n| ")), (0, len(self.read("readme.json")) + 1))
        self.assertEqual(self.check(), (0, ""))
        self.write(readme, "before\n%s\nold\n%s\nafter\n" % (report.BEGIN, report.END))
        self.refused("README.md is not what")
        self.assertEqual(said("--readme", "--root", self.root), (0, ""))
        with open(readme, encoding="utf-8") as file:
            self.assertEqual(file.read(), "before\n%safter\n" % table)
        self.assertEqual(self.check(), (0, ""))

    def test_a_figure_of_the_readme_must_exist(self):
        with self.changed("readme.json") as rows:
            rows[0]["figure"][2] = "1,000,000"
        self.refused("readme.json", "1,000,000")


if __name__ == "__main__":
    unittest.main()

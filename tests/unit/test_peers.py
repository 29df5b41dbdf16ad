#!/usr/bin/env python3
"""Tests tools/peers*.py without a GPU: turns, graphs of one length, ratios, plans of every kind of cell, a whole run beside fake peers.

The figures are computed by hand. The controls: a changed figure changes its ratio, a wrong peer and one that fails in a cell are named, and
without torch every peer is. Run after ninja: test_peers.py [--builddir DIR]
"""
import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = os.path.join(ROOT, "tools")
VERBATIM = os.path.join(ROOT, builddir.take(), "verbatim")
sys.path[:0] = [TOOLS]
peers, flashmla, models = (importlib.import_module(name) for name in ("peers", "peers_flashmla", "peers_model"))

FAKE = """
import time
class Peer:
    def __init__(self, us, is_right=True, has_form=True):
        self.us, self.is_right, self.has_form = us, is_right, has_form
    def check(self):
        if not self.is_right: raise RuntimeError("differs by 1 from fp32 attention")
    def calls(self, cell):
        if cell["context"] == 65: raise ValueError("no such page")
        return [lambda: time.sleep(self.us * 1e-6)] * 3 if self.has_form else None
def open_peers(family):
    return {"slow": Peer(2000), "wrong": Peer(1, False), "formless": Peer(1, True, False), "quick " + family: Peer(500)}
"""


class Clock(peers.Timer):
    """Calls take what they say, and replays less and less, as where clocks rise: the first estimate is too long."""

    def __init__(self):
        self.captured, self.share = [], 1.0

    def capture(self, calls):
        self.captured.append(len(calls))
        return calls

    def replay(self, captured, times):
        self.share = max(0.5, self.share * 0.7)
        return [sum(call() for call in captured) * self.share for _ in range(times)]


def op(kernel, us, rows=16, floor_us=1.0):
    return {"kernel": kernel, "rows": rows, "us": us, "us_least": us, "launches": 500, "floor_us": floor_us}


def cell_of(kind="decode", **ratios):
    return {"kind": kind, "ratio": {name: {"median": ratio} for name, ratio in ratios.items()}}


class Peers(unittest.TestCase):
    def test_graphs_are_long_enough(self):
        for us in (3.0, 900.0, 50000.0):
            clock = Clock()
            median, shortest = clock.prepare([lambda: us] * 2)()
            self.assertGreaterEqual(shortest, peers.GRAPH_US)
            self.assertEqual(median, us * clock.share)
            self.assertTrue(all(count % 2 == 0 for count in clock.captured), "whole rounds over the inputs")

    def test_sides_take_turns(self):
        turns = []

        def side(name, times):
            def timed():
                turns.append(name)
                return times[turns.count(name) - 1], 4000 + len(turns)
            return timed
        times, graphs = peers.take_turns({"verbatim": side("verbatim", [10, 30, 20]), "a": side("a", [5, 10, 40])}, 3)
        self.assertEqual(turns, ["verbatim", "a"] * 3)
        self.assertEqual((times, graphs), ({"verbatim": [10, 30, 20], "a": [5, 10, 40]}, {"verbatim": 4001, "a": 4002}))
        found = peers.summary(times)
        self.assertEqual(found["us"]["verbatim"], {"median": 20, "least": 10, "largest": 30, "rounds": [10, 30, 20]})
        self.assertEqual(found["ratio"], {"a": {"median": 2, "least": 0.5, "largest": 3}})  # of the rounds, not of the medians
        times["a"][0] = 2.5
        self.assertEqual(peers.summary(times)["ratio"]["a"], {"median": 3, "least": 0.5, "largest": 4})

    def test_means_of_each_kind(self):
        found = peers.means([cell_of(a=0.5, b=4.0), cell_of(a=2.0), cell_of("prompt", a=1.0)])
        self.assertEqual(found["decode"]["a"], {"ratio": 1.0, "cells": 2, "worst": 2.0})
        self.assertEqual(found["decode"]["the fastest"]["ratio"], 4.0)  # where two peers were timed, the smaller time
        self.assertEqual(found["prompt"], {"a": {"ratio": 1.0, "cells": 1, "worst": 1.0}})
        self.assertEqual(list(peers.report({"means": found, "absent": {"c": "why"}}))[-1], "absent: c: why")

    def test_every_cell_can_be_planned(self):
        for family in peers.FAMILIES.values():
            with tempfile.TemporaryDirectory() as folder:
                ours = peers.Ours(VERBATIM, family, folder, "cpu")
                cells = family.cells(True, None)
                self.assertEqual({cell["kind"] for cell in cells}, {"decode"} if family.name == "dense" else {"decode", "prompt"})
                for cell in cells:
                    ours.plan(cell)
                    shown = ours.call("show", ours.path("plan"), "--ops")
                    self.assertIn(", %s " % family.counted[0], shown)

    def test_our_ops_are_added(self):
        family = peers.FAMILIES["sparse"]
        ours = peers.Ours(VERBATIM, family, "", "cpu")
        ops = [op("mla_attn", 30.0), op("kv_widen", 6.0), op("index_score", 2.0), op("index_score", 3.0), op("index_topk", 9.0)]
        with tempfile.TemporaryDirectory() as ours.folder:
            with open(ours.path("bench.json"), "w", encoding="utf-8") as file:
                json.dump({"ops": ops}, file)
            ours.plan = lambda cell: None
            ours.call = lambda *words: "".join("x, %s 1\n" % each["kernel"] for each in ops)
            timed, by_round = ours.prepare(peers.make_cell("decode", 128, 16, 32768, "fp8_ds_mla"))
            self.assertEqual(timed(), (36.0, 15000.0))
        self.assertEqual(by_round[0]["index_score"], {"us": 5.0, "floor_us": 2.0})

    def test_a_whole_run(self):
        for words, quick in ((["dense", "--heads", "2", "--only", "decode,1,64"], "quick dense"),
                             (["grouped", "--heads", "4/2x64", "--only", "decode,2,65"], None)):
            with tempfile.TemporaryDirectory() as folder:
                fake, out = os.path.join(folder, "fake.py"), os.path.join(folder, "out.json")
                with open(fake, "w", encoding="utf-8") as file:
                    file.write(FAKE)
                done = subprocess.run([sys.executable, os.path.join(TOOLS, "peers.py"), *words, "--verbatim", VERBATIM, "--device", "cpu",
                                       "--peer", fake, "--rounds", "2", "--json", out], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(out, encoding="utf-8") as file:
                    result = json.load(file)
            cell, = result["cells"]
            self.assertIn("absent: wrong: RuntimeError: differs by 1 from fp32 attention", done.stdout)
            self.assertIn("PyTorch with a GPU is needed", done.stdout)
            self.assertEqual(len(cell["us"]["verbatim"]["rounds"]), 2)
            self.assertGreater(cell["graph_us"]["verbatim"], peers.GRAPH_US / 2)  # a processor may speed up
            if not quick:
                self.assertEqual(cell["ratio"], {})
                self.assertIn("absent: slow, decode, 4/2x64 heads, b 2 at 65, bfloat16: ValueError: no such page", done.stdout)
                continue
            self.assertEqual(set(cell["us"]), {"verbatim", "slow", quick})
            self.assertTrue(cell["us"][quick]["median"] < 2000 < cell["us"]["slow"]["median"])
            self.assertGreaterEqual(cell["graph_us"][quick], peers.GRAPH_US)
            ratio = result["means"]["decode"][quick]["ratio"]
            self.assertAlmostEqual(ratio, cell["ratio"][quick]["median"])
            self.assertIn("decode: ours / %s %.3f (geometric mean of 1)" % (quick, ratio), done.stdout)
            self.assertRegex(done.stdout, r"decode, 2 heads, b 1 at 64, bfloat16 +verbatim +[\d.]+ \| slow +\d+\.\d \(\d\.\d+, ")

    def test_parts_lie_at_fixed_places(self):
        rows, splits = flashmla.fixed_parts([200, 64, 1], 128)
        self.assertEqual(splits, [0, 2, 3, 4])
        self.assertEqual(rows, [[0, 0, 0, 2, 0, 1, 1, 0], [0, 0, 2, 4, 1, 1, 1, 0], [1, 1, 0, 1, 0, 0, 0, 0], [2, 2, 0, 1, 0, 0, 0, 0]])
        self.assertEqual(flashmla.fixed_parts([200], 128)[0], rows[:2], "a request's parts are its own")


def said(function, *arguments):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        function(*arguments)
    return output.getvalue().splitlines()


class Models(unittest.TestCase):
    def test_products_are_told_apart_by_rows(self):
        points = [{"rows": 1, "own_us": 2.0, "used_us": 1.0, "all_us": 1.0}, {"rows": 32, "own_us": 8.0, "used_us": 4.0, "all_us": 1.0},
                  {"rows": 33, "own_us": 3.0, "used_us": 3.0, "all_us": 1.0}, {"rows": 64, "own_us": 5.0, "used_us": 5.0}]
        lines = said(models.compare_products, points)
        self.assertEqual(len(lines), 2)
        self.assertIn("best of all 4.000, as planned 2.000 (geometric means of 2)", lines[0])
        self.assertIn("3.000, as planned 3.000 (geometric means of 1)", lines[1])

    def test_the_best_mode_counts(self):
        found = {"decode": [{"batch": 1, "us": 900.0}, {"batch": 1, "us": 800.0}], "prefill": [{"prompts": 16, "tokens": 512, "us": 50.0}]}
        bench = {"decode": [{"batch": 1, "context": 128, "step_us": 400.0}, {"batch": 2, "context": 128, "step_us": 1.0}],
                 "prefill": [{"prompts": 16, "tokens": 512, "us": 100.0}, {"prompts": 1, "tokens": 512, "us": 1.0}]}
        lines = said(models.compare_model, found, bench)
        self.assertEqual([line[-6:] for line in lines], [": 0.50", ": 2.00"])

    def test_what_is_absent_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            figures, out = os.path.join(folder, "figures.json"), os.path.join(folder, "out.json")
            with open(figures, "w", encoding="utf-8") as file:
                json.dump({"points": [{"rows": 1, "own_us": 3.0, "used_us": 1.0, "all_us": 2.0}]}, file)
            command = ("import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; sys.path[:0] = ['%s']; "
                       "runpy.run_path(sys.argv[0], run_name='__main__')" % TOOLS)
            done = subprocess.run([sys.executable, "-c", command, os.path.join(TOOLS, "peers_model.py"), "--probe", figures, "--json", out],
                                  capture_output=True, text=True, check=True)
            self.assertIn("absent: PyTorch", done.stdout)
            self.assertIn("1.500", done.stdout)
            with open(out, encoding="utf-8") as file:
                self.assertEqual(len(json.load(file)["products"]), 1)


if __name__ == "__main__":
    unittest.main()

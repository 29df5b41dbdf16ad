#!/usr/bin/env python3
"""Tests the ratios of tools/peers.py on figures computed by hand, and that it names missing ones: test_peers.py

Needs neither PyTorch nor a GPU. The control is a changed figure, which changes its ratio.
"""
import importlib.util
import io
import contextlib
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATH = os.path.join(ROOT, "tools", "peers.py")


def load(name="peers"):
    sys.path[:0] = [os.path.dirname(PATH)] if name != "peers" else []  # it imports the other module
    spec = importlib.util.spec_from_file_location(name, os.path.join(os.path.dirname(PATH), name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def said(function, *arguments):
    """The function's result, and the lines it prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        result = function(*arguments)
    return result, output.getvalue().splitlines()


def attention_counts_the_fold(peers):
    bench = {"ops": [{"kernel": "mla_attn", "op": "mla_attn", "rows": 4, "context": 1024, "us": 8.0},
                     {"kernel": "mla_fold", "op": "mla_fold", "rows": 4, "context": 1024, "us": 2.0},
                     {"kernel": "gemm", "op": "o_proj", "rows": 4, "context": None, "us": 99.0},
                     {"kernel": "mla_attn", "op": "mla_attn", "rows": 16, "context": 1024, "us": 40.0}]}
    cells = [{"heads": heads, "s_q": s_q, "batch": batch, "context": 1024, "us": us}
             for heads, s_q, batch, us in ((16, 1, 4, 20.0), (16, 1, 16, 20.0), (16, 2, 4, 1.0), (128, 1, 4, 1.0))]
    ratios, lines = said(peers.compare_attention, cells, 16, bench)
    assert [r["ratio"] for r in ratios] == [0.5, 2.0], ratios
    assert "1.000 (geometric mean of 2)" in lines[-1], lines
    bench["ops"][0]["us"] = 18.0
    assert said(peers.compare_attention, cells, 16, bench)[0][0]["ratio"] == 1.0


def parts_lie_at_fixed_places(peers):
    rows, splits = peers.fixed_parts([200, 64, 1], 128)
    assert splits == [0, 2, 3, 4], splits
    assert rows == [[0, 0, 0, 2, 0, 1, 1, 0], [0, 0, 2, 4, 1, 1, 1, 0], [1, 1, 0, 1, 0, 0, 0, 0], [2, 2, 0, 1, 0, 0, 0, 0]], rows
    alone, _ = peers.fixed_parts([200], 128)
    assert alone == rows[:2], "a request's parts are its own"


def products_are_told_apart_by_rows(peers):
    points = [{"rows": 1, "own_us": 2.0, "used_us": 1.0, "all_us": 1.0}, {"rows": 32, "own_us": 8.0, "used_us": 4.0, "all_us": 1.0},
              {"rows": 33, "own_us": 3.0, "used_us": 3.0, "all_us": 1.0}, {"rows": 64, "own_us": 5.0, "used_us": 5.0}]
    lines = said(peers.compare_products, points)[1]
    assert len(lines) == 2 and "best of all 4.000, as planned 2.000 (geometric means of 2)" in lines[0], lines
    assert "3.000, as planned 3.000 (geometric means of 1)" in lines[1], lines


def the_best_mode_counts(peers):
    found = {"decode": [{"batch": 1, "us": 900.0}, {"batch": 1, "us": 800.0}], "prefill": [{"prompts": 16, "tokens": 512, "us": 50.0}]}
    bench = {"decode": [{"batch": 1, "context": 128, "step_us": 400.0}, {"batch": 2, "context": 128, "step_us": 1.0}],
             "prefill": [{"prompts": 16, "tokens": 512, "us": 100.0}, {"prompts": 1, "tokens": 512, "us": 1.0}]}
    lines = said(peers.compare_model, found, bench)[1]
    assert len(lines) == 2 and lines[0].endswith(": 0.50") and lines[1].endswith(": 2.00"), lines


def lists_meet_their_like(sparse):
    def op(kernel, us, rows=16):
        return {"kernel": kernel, "rows": rows, "us": us, "floor_us": 1.0}
    ops = [op("mla_attn", 30.0), op("kv_widen", 6.0), op("index_score", 2.0), op("index_score", 3.0), op("index_topk", 9.0)]
    cells, lines = said(sparse.cells_of, ops, "decode", 128, 32768, "fp8_ds_mla")
    assert [cell["us"] for cell in cells] == [36.0] and "index_score 5.0 (2.50 times its floor)" in lines[0], (cells, lines)
    theirs = [{"heads": 128, "batch": 16, "context": 32768, "us": 18.0}, {"heads": 64, "batch": 16, "context": 32768, "us": 1.0},
              {"heads": 128, "queries": 16, "context": 32768, "us": 1.0}]
    assert said(sparse.compare, theirs, cells)[0] == [2.0]
    ops[0]["us"] = 12.0
    assert said(sparse.compare, theirs, said(sparse.cells_of, ops, "decode", 128, 32768, "fp8_ds_mla")[0])[0] == [1.0]
    assert said(sparse.compare, theirs, [dict(cells[0], kv="bfloat16")])[0] == []


def what_is_absent_is_said():
    with tempfile.TemporaryDirectory() as folder:
        figures, out = os.path.join(folder, "figures.json"), os.path.join(folder, "out.json")
        with open(figures, "w", encoding="utf-8") as file:
            json.dump({"points": [{"rows": 1, "own_us": 3.0, "used_us": 1.0, "all_us": 2.0}]}, file)
        command = ("import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
                   "runpy.run_path(sys.argv[0], run_name='__main__')")
        done = subprocess.run([sys.executable, "-c", command, PATH, "--probe", figures, "--json", out], capture_output=True, text=True,
                              check=True)
        assert "absent: PyTorch" in done.stdout and "1.500" in done.stdout, done.stdout
        with open(out, encoding="utf-8") as file:
            written = json.load(file)
        assert written["flashmla"] is None and len(written["products"]) == 1, written


def main():
    peers = load()
    for test in (attention_counts_the_fold, parts_lie_at_fixed_places, products_are_told_apart_by_rows, the_best_mode_counts):
        test(peers)
        print("ok", test.__name__)
    lists_meet_their_like(load("peers_sparse"))
    print("ok lists_meet_their_like")
    what_is_absent_is_said()
    print("ok what_is_absent_is_said")


if __name__ == "__main__":
    sys.exit(main())

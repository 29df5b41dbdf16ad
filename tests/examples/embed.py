#!/usr/bin/env python3
"""Embeds Verbatim in Python with nothing but ctypes: token ids in, a row of logits out for every position.

  tests/examples/embed.py PLAN MODEL_DIR 1 17 42 [--logits FILE] [--library build/libverbatim.so] [--device cpu]

Prints each position's likeliest next token and its logit, then the one token that the request generated. The structs of engine/verbatim.h
are in tools/python/verbatim/abi.py, the only part of the package that this program uses; tests/unit/test_libverbatim.py compares every
field, and the output of this program with that of `verbatim run`.
"""
import argparse
import ctypes
import os
import sys
from ctypes import byref, c_bool, c_int32, c_void_p

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools", "python"))
from verbatim import abi  # noqa: E402


def check(library, code):
    if code != 0:
        raise SystemExit("verbatim: " + library.verbatim_error().decode(errors="replace"))


def run(library, engine, ids, on_row):
    """Runs the ids as a prompt, generates one token and returns it; on_row(position, bytes of the row of fp32 logits)."""
    vocab = library.verbatim_describe(engine).vocab
    tokens = (abi.Token * 1)()
    request = library.verbatim_request_defaults()
    # ctypes does not keep the target of a pointer field alive: these names do so until the request is finished.
    prompt = (c_int32 * len(ids))(*ids)
    callback = abi.Request.ON_LOGITS(lambda request, position, row: on_row(position, ctypes.string_at(row, 4 * vocab)))
    request.prompt, request.prompt_count, request.max_tokens = prompt, len(ids), 1
    request.on_logits, request.tokens = callback, tokens
    check(library, library.verbatim_submit(engine, byref(request)))
    busy = c_bool(True)
    while busy.value:
        check(library, library.verbatim_poll(engine, byref(busy)))
    return tokens[0], abi.FINISHES[request.finish]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("plan")
    parser.add_argument("model_dir")
    parser.add_argument("ids", type=int, nargs="+")
    parser.add_argument("--logits", metavar="FILE", help="write the rows, as `verbatim run --logits` does")
    parser.add_argument("--library", default=os.path.join(HERE, "..", "..", "build", "libverbatim.so"))
    parser.add_argument("--device", choices=abi.DEVICES, default="auto")
    return parser.parse_args()


def main():
    args = parse_arguments()
    try:
        library = abi.load(args.library)
    except abi.LibraryError as error:
        raise SystemExit("verbatim: %s" % error) from error
    config = abi.Config(plan_path=args.plan.encode(), model_dir=args.model_dir.encode(), device=abi.DEVICES[args.device], logits=True,
                    program_path=os.environ.get("PATH", "").encode())
    engine = c_void_p()
    check(library, library.verbatim_open(byref(engine), byref(config)))
    rows = []
    token, finish = run(library, engine, args.ids, lambda position, row: rows.append(row))
    library.verbatim_close(engine)
    for position, row in enumerate(rows):
        logits = memoryview(row).cast("f").tolist()
        best = max(range(len(logits)), key=logits.__getitem__)
        print("position %d: token %d, logit %.9g" % (position, best, logits[best]))
    print("made token %d, log-probability %.9g, finish %s" % (token.id, token.logprob, finish))
    if args.logits:
        with open(args.logits, "wb") as file:
            file.writelines(rows)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Turns text files into one C source that holds them as strings: embed.py -o OUT.c --table NAME --header HEADER
--root FOLDER FILE...

HEADER declares the table NAME, of kernel_source, and its NAME_count; a text is named by its path from FOLDER. Texts are embedded byte for
byte; only printable ASCII, tab and newline are allowed, so that the C string has one spelling and does not depend on the compiler's
character set.
"""
import argparse
import os
import sys

HEAD = """/* Written by tools/embed.py from the files it names. */
#include "%s"
#pragma GCC diagnostic ignored "-Woverlength-strings"

const kernel_source %s[] = {
"""
ESCAPES = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "?": "\\?"}  # \? keeps trigraphs out


def c_string_lines(name, data):
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise SystemExit("embed.py: %s: byte %d is not ASCII" % (name, error.start)) from None
    bad = [c for c in text if not (" " <= c <= "~" or c in "\t\n")]
    if bad:
        raise SystemExit("embed.py: %s: control character %r" % (name, bad[0]))
    lines = text.split("\n")
    ends = ["\\n"] * (len(lines) - 1) + [""]
    quoted = ['"%s%s"' % ("".join(ESCAPES.get(c, c) for c in line), end) for line, end in zip(lines, ends)]
    return [line for line in quoted if line != '""'] or ['""']


def main():
    parser = argparse.ArgumentParser(description="Embeds text files into a C source.")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--header", required=True)
    parser.add_argument("--root", required=True, help="folder that names are relative to")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    parts = [HEAD % (args.header, args.table)]
    for path in args.files:
        with open(path, "rb") as file:
            lines = c_string_lines(path, file.read())
        parts.append('{"%s",\n%s},\n' % (os.path.relpath(path, args.root), "\n".join(lines)))
    parts.append("};\nconst size_t %s_count = %d;\n" % (args.table, len(args.files)))
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    with open(args.output, "w", encoding="ascii", newline="\n") as file:
        file.write("".join(parts))


if __name__ == "__main__":
    sys.exit(main())

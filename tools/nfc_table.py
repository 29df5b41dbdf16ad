#!/usr/bin/env python3
"""Writes engine/text/nfc_table.c: the canonical decompositions, compositions and combining classes that the tokenizers library knows.

The library's normalizer has an older Unicode than its patterns. What Unicode has assigned never changes its normal form, so these are the
entries of this Python's Unicode that the library acts on. Hangul syllables are computed by nfc.c. Needs the module tokenizers.
"""
import os
import unicodedata

from tokenizers import normalizers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and not 0xAC00 <= c < 0xD7A4]
LIBRARY = normalizers.NFC()


def decompositions():
    """Those that the library does not know are of newer code points: it leaves them, and the text that would become them, as they are."""
    for code in POINTS:
        found = unicodedata.decomposition(chr(code))
        text = "q\u0345" + chr(code)
        if found and not found.startswith("<") and LIBRARY.normalize_str(text) == unicodedata.normalize("NFC", text):
            yield [code] + [int(word, 16) for word in found.split()]


def composes(entry):
    """Whether the pair becomes the code point again: what is excluded from composition does not."""
    return len(entry) == 3 and unicodedata.normalize("NFC", chr(entry[1]) + chr(entry[2])) == chr(entry[0])


def is_ordered(code, number):
    """Whether the library puts this mark in order: after one of class 1, or before one of class 230."""
    pair = "q" + (chr(code) + "\u0334" if number > 1 else "\u0300" + chr(code))
    return LIBRARY.normalize_str(pair) == unicodedata.normalize("NFC", pair)


def classes():
    """Runs of code points of one combining class other than 0."""
    runs = []
    for code in POINTS:
        number = unicodedata.combining(chr(code))
        if number and not is_ordered(code, number):
            number = 0
        if number and runs and runs[-1][1] == code - 1 and runs[-1][2] == number:
            runs[-1][1] = code
        elif number:
            runs.append([code, code, number])
    return runs


def array(declaration, rows):
    lines, line = [], " "
    for row in rows:
        word = " {%s}," % ", ".join("0x%X" % number for number in row)
        if len(line) + len(word) > 138:
            lines.append(line)
            line = " "
        line += word
    return "%s = {\n%s\n};\n" % (declaration, "\n".join(lines + [line]))


def main():
    single = [entry if len(entry) == 3 else entry + [0] for entry in decompositions()]
    pairs = sorted([entry[1], entry[2], entry[0]] for entry in decompositions() if composes(entry))
    text = "/* text/nfc_table.c - see text/nfc.h. Written by tools/nfc_table.py. */\n"
    text += '#include "text/nfc_table.h"\n\n'
    for name, rows in (("decompositions", single), ("compositions", pairs), ("classes", classes())):
        text += array("const nfc_table_row nfc_table_%s[]" % name, rows) + "const uint32_t nfc_table_%s_count = %d;\n\n" % (name, len(rows))
    with open(os.path.join(ROOT, "engine/text/nfc_table.c"), "w", encoding="utf-8") as file:
        file.write(text.rstrip("\n") + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes a copy of kernels_src/ with one flaw in it: plant.py FOLDER FILE EDIT

EDIT is for sed and must change FILE. Only files that differ from what lies in FOLDER already are written, so that a changed kernel
compiles the broken copies that hold it again and no others. FOLDER/planted is made last. Read next: flaws.toml.
"""
import os
import subprocess
import sys

SOURCE = "kernels_src"


def write_if_changed(path, data):
    if os.path.exists(path):
        with open(path, "rb") as file:
            if file.read() == data:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def main(folder, broken, edit):
    stamp = os.path.join(folder, "planted")
    for parent, _, names in os.walk(SOURCE):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                data = file.read()
            inner = os.path.relpath(path, SOURCE)
            if inner == broken:
                changed = subprocess.run(["sed", edit], input=data, capture_output=True, check=True).stdout
                if changed == data:
                    raise SystemExit("plant.py: expected a change of %s by this edit, found none: %s" % (broken, edit))
                data = changed
            write_if_changed(os.path.join(folder, inner), data)
    if not os.path.exists(os.path.join(folder, broken)):
        raise SystemExit("plant.py: %s is not in %s" % (broken, SOURCE))
    write_if_changed(stamp, b"")


if __name__ == "__main__":
    main(*sys.argv[1:])

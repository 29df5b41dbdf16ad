"""The command `verbatim` of an environment: it becomes the program that the wheel holds, and `python -m verbatim` does the same.

A package without one, as `pip install tools/python` makes where no program is built, hands over to another `verbatim` on the PATH. The
environment's own folder of programs comes first on the PATH, so that NVIDIA's wheels installed beside this one are found, active or not.
"""
import os
import shutil
import sys

HOW = "verbatim: expected the program in %s or on the PATH, found none; hint: install the wheel of `ninja wheel`, or `ninja install`"


def find() -> str:
    """Path of the program; LookupError if there is none."""
    folder = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    for path in (os.path.join(folder, "bin", "verbatim"), os.path.join(root, "build", "verbatim")):
        if os.access(path, os.X_OK) and (path.startswith(folder) or os.path.exists(os.path.join(root, "engine", "verbatim.h"))):
            return path
    own = os.path.dirname(sys.executable)
    others = [part for part in os.environ.get("PATH", "").split(os.pathsep) if os.path.abspath(part) != own]
    path = shutil.which("verbatim", path=os.pathsep.join(others))
    if path:
        return path
    raise LookupError(HOW % os.path.join(folder, "bin"))


def main() -> None:
    try:
        path = find()
    except LookupError as error:
        sys.exit(str(error))
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    sys.stdout.flush()
    os.execv(path, ["verbatim", *sys.argv[1:]])


if __name__ == "__main__":
    main()

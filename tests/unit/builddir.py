"""builddir.py - the folder of the build that a check in this folder is about."""
import sys


def take():
    """The value of --builddir, which is taken out of the arguments; "build" without it."""
    if "--builddir" not in sys.argv:
        return "build"
    at = sys.argv.index("--builddir")
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return value

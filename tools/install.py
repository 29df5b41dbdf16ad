#!/usr/bin/env python3
"""Installs the build: install.py [--builddir DIR] [--prefix DIR] [--uninstall], as `ninja install` and `ninja uninstall` do

Everything goes below $DESTDIR and the prefix; files() is the whole list. The manual page and the completions are generated here from the
installed program (manual.py). The systemd unit and the example deployment go to share/verbatim, to be copied from there; the licence, and
the licences of the libraries in the program, go to share/doc/verbatim. Uninstalling removes the same files, and these two folders if they
are then empty. Read next: configure.py, manual.py.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path[:0] = [ROOT, os.path.join(ROOT, "tools")]
import configure  # noqa: E402
import manual  # noqa: E402

PACKAGE = """\
prefix=%s
libdir=${prefix}/lib
includedir=${prefix}/include

Name: verbatim
Description: Deterministic inference engine for MLA language models
Version: %s
Libs: -L${libdir} -lverbatim
Cflags: -I${includedir}
"""


def read(path):
    with open(os.path.join(ROOT, path), "rb") as file:
        return file.read()


def version():
    return re.search(r'#define VERBATIM_VERSION "([^"]+)"', read(configure.PUBLIC_HEADER).decode()).group(1)


def files(builddir, prefix):
    """(path below the prefix, contents, mode); contents as text are the target of a link."""
    name = configure.soname()
    pages = {key: text.encode() for key, text in manual.texts(os.path.join(ROOT, builddir, "verbatim")).items()}
    unit = read("tools/deploy/verbatim.service").decode().replace(configure.PREFIX + "/", prefix + "/")
    return [("bin/verbatim", read(builddir + "/verbatim"), 0o755),
            ("lib/" + name, read(builddir + "/" + name), 0o755),
            ("lib/libverbatim.so", name, 0),
            ("lib/pkgconfig/verbatim.pc", (PACKAGE % (prefix, version())).encode(), 0o644),
            ("include/verbatim.h", read(configure.PUBLIC_HEADER), 0o644),
            ("share/man/man1/verbatim.1", pages["verbatim.1"], 0o644),
            ("share/bash-completion/completions/verbatim", pages["verbatim.bash"], 0o644),
            ("share/zsh/site-functions/_verbatim", pages["_verbatim"], 0o644),
            ("share/fish/vendor_completions.d/verbatim.fish", pages["verbatim.fish"], 0o644),
            ("share/doc/verbatim/LICENSE", read("LICENSE"), 0o644),
            ("share/doc/verbatim/NOTICE", read("NOTICE"), 0o644),
            ("share/verbatim/deploy.yaml", read("tools/deploy/deploy.yaml"), 0o644),
            ("share/verbatim/verbatim.service", unit.encode(), 0o644)]


def put(path, contents, mode):
    """Replaces the file in one step, so that a running program keeps its old file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path), prefix=".verbatim-") as folder:
        new = os.path.join(folder, "new")
        if isinstance(contents, str):
            os.symlink(contents, new)
        else:
            with open(new, "wb") as file:
                file.write(contents)
            os.chmod(new, mode)
        os.replace(new, path)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Installs what is built, below $DESTDIR.")
    parser.add_argument("--builddir", default="build")
    parser.add_argument("--prefix", default=configure.PREFIX)
    parser.add_argument("--uninstall", action="store_true")
    args = parser.parse_args()
    if not os.path.isabs(args.prefix) or not re.fullmatch(r"[\w./+-]+", args.prefix):
        parser.error("--prefix: expected an absolute path of letters, digits and ./+-_, found %r" % args.prefix)
    return args


def main():
    args = parse_arguments()
    destination, prefix = os.environ.get("DESTDIR", ""), args.prefix.rstrip("/")
    os.umask(0o022)
    try:
        for path, contents, mode in files(args.builddir, prefix):
            whole = destination + prefix + "/" + path
            print(("remove " if args.uninstall else "install ") + whole)
            if not args.uninstall:
                put(whole, contents, mode)
            elif os.path.lexists(whole):
                os.remove(whole)
        for folder in ("/share/verbatim", "/share/doc/verbatim"):
            own = destination + prefix + folder
            if args.uninstall and os.path.isdir(own) and not os.listdir(own):
                os.rmdir(own)
    except OSError as error:
        raise SystemExit("install.py: %s; hint: ninja, then as root, or with DESTDIR or another --prefix" % error) from error
    if not destination and os.geteuid() == 0 and shutil.which("ldconfig"):
        subprocess.run(["ldconfig"], check=False)  # the loader finds the library through its cache


if __name__ == "__main__":
    main()

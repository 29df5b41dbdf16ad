#!/usr/bin/env python3
"""Makes a wheel that needs nothing but Python and the C library: wheel.py [--builddir DIR] [--output DIR], as `ninja wheel` does

It holds the Python package, libverbatim.so and the program, both without debug information, next to libverbatim.so the shared libraries
that it needs, and the licences of all. Its platform tag is read from these files: manylinux_2_N for the newest symbol of glibc that any
of them needs, and no tag, but an error, if one needs a library that is neither in the wheel nor in every Linux's C library. No network.
Needs pip and setuptools, of this Python or of build/venv; and readelf and strip. Read next: tools/python/setup.py.
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
sys.path[:0] = [ROOT]
import configure  # noqa: E402

C_LIBRARY = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}  # those of PEP 600's list that are met here
HAS_SETUPTOOLS = "import setuptools\ntry: from setuptools.command import bdist_wheel\nexcept ImportError: import wheel\nimport pip"


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed(path):
    """Names of the libraries that a program or library asks the loader for."""
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", path)))


def glibc(path):
    """(2, N) of the newest version of glibc's symbols that a file needs."""
    return max((tuple(map(int, one.split("."))) for one in re.findall(r"Name: GLIBC_([\d.]+)", output_of("readelf", "-V", path))),
               default=(2, 0))[:2]


def where(path):
    """Library that a file asks for -> the file that the loader takes, links followed."""
    return {name: os.path.realpath(found) for name, found in re.findall(r"^\s*(\S+) => (/\S+)", output_of("ldd", path), re.M)}


def platform_tag(folder):
    """Of the ELF files in a folder, which is what the wheel will hold."""
    files = []
    for parent, _, names in os.walk(folder):
        for path in (os.path.join(parent, name) for name in names):
            with open(path, "rb") as file:
                files += [path] if file.read(4) == b"\x7fELF" else []
    inside = {os.path.basename(path) for path in files}
    for path in files:
        missing = needed(path) - C_LIBRARY - inside
        if missing:
            raise SystemExit("wheel.py: %s: expected libraries of the wheel or the C library, found that it needs %s; hint: add them, or "
                             "link them statically" % (os.path.basename(path), ", ".join(sorted(missing))))
    machine = os.uname().machine
    return "manylinux_%d_%d_%s" % (*max(glibc(path) for path in files), machine)


def fill(tree, builddir):
    """Copies the package into the folder `tree` with what it is to hold."""
    package = os.path.join(tree, "verbatim")
    shutil.copytree(os.path.join(ROOT, "tools", "python"), tree, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(os.path.join(ROOT, name), tree)
    library = os.path.join(ROOT, builddir, "wheel", configure.soname())
    os.mkdir(os.path.join(package, "bin"))
    subprocess.run(["strip", "-o", os.path.join(package, "bin", "verbatim"), os.path.join(ROOT, builddir, "verbatim")], check=True)
    subprocess.run(["strip", "-o", os.path.join(package, configure.soname()), library], check=True)
    for name, path in where(library).items():
        if name not in C_LIBRARY:
            shutil.copy(path, os.path.join(package, name))
    os.chmod(os.path.join(package, "bin", "verbatim"), 0o755)
    return platform_tag(package)


def find_python():
    for python in (sys.executable, os.path.join(ROOT, "build", "venv", "bin", "python")):
        if os.path.exists(python) and subprocess.run([python, "-c", HAS_SETUPTOOLS], capture_output=True, check=False).returncode == 0:
            return python
    raise SystemExit("wheel.py: expected a Python with pip and setuptools, found none; hint: tools/setup_python.sh, or install "
                     "python3-pip, python3-setuptools and python3-wheel")


def make(builddir, output):
    """The wheel's path."""
    python = find_python()
    with tempfile.TemporaryDirectory(prefix="verbatim-wheel-") as folder:
        tree = os.path.join(folder, "tree")
        environment = {key: value for key, value in os.environ.items() if key not in ("VERBATIM_LIBRARY", "PYTHONPATH")}
        environment["VERBATIM_PLATFORM"] = fill(tree, builddir)
        made = os.path.join(folder, "made")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-index", "--no-deps", "--no-build-isolation"]
        result = subprocess.run([*pip, "-w", made, tree], env=environment, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise SystemExit("wheel.py: pip fails: %s" % (result.stdout + result.stderr))
        [name] = os.listdir(made)
        os.makedirs(output, exist_ok=True)
        return shutil.move(os.path.join(made, name), os.path.join(output, name))


def main():
    parser = argparse.ArgumentParser(description="Makes a wheel of the build.")
    parser.add_argument("--builddir", default="build")
    parser.add_argument("--output", help="folder of the wheel (default: dist in the build's)")
    args = parser.parse_args()
    os.chdir(ROOT)
    try:
        print(make(args.builddir, args.output or os.path.join(args.builddir, "dist")))
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit("wheel.py: %s; hint: ninja" % error) from error


if __name__ == "__main__":
    main()

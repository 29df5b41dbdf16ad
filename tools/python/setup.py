"""Finds libverbatim.so while the package is built, so that `pip install tools/python` gives one that works, or fails with what to run.

The library is the one that VERBATIM_LIBRARY names, or build/libverbatim.so of this repository, which are copied into the package; or an
installed one, which is used where it is. tools/wheel.py builds a copy of this folder that has the library in the package already, and names
the platform by VERBATIM_PLATFORM. All else is in pyproject.toml; abi.py has the search and the check of the version.
"""
import importlib.util
import os
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel

FOLDER = os.path.dirname(os.path.abspath(__file__))
HOW = """verbatim: expected libverbatim.so.%s, found none that can be used: %s; hint: build it and install again:
  (cd %s && ninja build/libverbatim.so) && pip install %s
or name one: VERBATIM_LIBRARY=/path/to/libverbatim.so pip install ..."""


def abi_module():
    spec = importlib.util.spec_from_file_location("verbatim_abi", os.path.join(FOLDER, "verbatim", "abi.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildPackage(build_py):
    def run(self):
        super().run()
        abi = abi_module()
        path = abi.find()
        try:
            abi.load(path)
        except OSError as error:
            sys.exit(HOW % (abi.VERSION, str(error).split("; hint")[0], os.path.dirname(os.path.dirname(FOLDER)), FOLDER))
        copy = os.path.join(self.build_lib, "verbatim", abi.NAME)
        if getattr(self, "editable_mode", False):
            return
        if os.path.exists(copy):  # of an earlier build
            os.remove(copy)
        if os.path.exists(path):
            self.copy_file(os.path.realpath(path), copy)


class BuildWheel(bdist_wheel):
    """ctypes opens the library, so any Python does."""

    def finalize_options(self):
        super().finalize_options()
        self.plat_name = os.environ.get("VERBATIM_PLATFORM", self.plat_name)
        self.plat_name_supplied = True

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Machine(Distribution):
    """Of this machine, as the library is."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel}, distclass=Machine)

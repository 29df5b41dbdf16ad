"""Builds of faulty sources for controls.py: a folder of links with the changed files, their objects, programs linked with them.

Knows nothing of tests. The commands are taken from build.ninja, so that nothing is stated twice. Read next: controls.py.
"""
import os
import shlex
import shutil
import subprocess
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOUND_PROGRAMS = ["random_model"]  # programs other than "verbatim" that tests run, and that have no fault


class Broken(Exception):
    """An error that a person must fix: an edit that does not apply, a compiler's message."""


class Ninja:
    """The contents of build.ninja: targets, their commands and inputs."""

    def __init__(self, builddir):
        self.builddir = builddir
        self.scratch = "%s/controls/%d" % (builddir, os.getpid())  # so that concurrent runs do not collide
        self.base = ["ninja"] if builddir == "build" else ["ninja", "-f", builddir + "/build.ninja"]
        self.commands, self.lock = {}, threading.Lock()
        self.objects_of = {}  # path of a source or header -> objects made from it
        for block in self.tool("deps").split("\n\n"):
            head, *paths = block.strip().split("\n")
            for path in paths:
                self.objects_of.setdefault(path.strip(), []).append(head.split(":")[0])

    def tool(self, *args):
        done = subprocess.run(self.base + ["-t", *args], cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken("ninja -t %s: %s" % (" ".join(args), done.stderr.strip()))
        return done.stdout

    def command(self, output):
        """The words of the command that makes the target."""
        with self.lock:
            if output not in self.commands:
                line = self.tool("commands", "-s", output).strip()
                self.commands[output] = shlex.split(line.split(" && ")[-1])
            return list(self.commands[output])


class Variant:
    """A build with these edits. sound: the build whose programs show whether one has the fault at all; None: this is that build."""

    def __init__(self, ninja, name, edits, sound=None):
        self.ninja, self.name, self.edits, self.sound = ninja, name, edits, sound
        self.folder = "%s/%s" % (ninja.scratch, name)
        self.lock, self.made, self.is_compiled = threading.Lock(), set(), False
        self.patched = {}  # object of the build -> ours
        shutil.rmtree(os.path.join(ROOT, self.folder), ignore_errors=True)
        os.makedirs(os.path.join(ROOT, self.folder, "tmp"))
        os.makedirs(os.path.join(ROOT, self.folder, "tests"))

    def compile(self):
        """The changed sources and the objects made from them."""
        tree = self.folder + "/tree"
        changed = edited(self.name, self.edits)
        shutil.rmtree(os.path.join(ROOT, tree), ignore_errors=True)
        link_tree(tree, changed)
        for path in changed:
            objects = [o for o in self.ninja.objects_of.get(path, []) if o.startswith(self.ninja.builddir + "/obj/")]
            if not objects:
                raise Broken("%s: nothing is built from %s; hint: ninja all tests" % (self.name, path))
            for built in objects:
                self.patched[built] = "%s/obj/%s" % (self.folder, built[len(self.ninja.builddir) + 5:])
        for built, ours in self.patched.items():
            os.makedirs(os.path.join(ROOT, os.path.dirname(ours)), exist_ok=True)
            words = self.ninja.command(built)
            at = words.index("-MF")
            words[at - 1:at + 2] = []  # its dependencies are known; the depfile belongs to the build
            words[words.index("-o") + 1] = os.path.join(ROOT, ours)
            words = [word for word in words if word != "-g"]  # it would contain the folder's name
            self.call(words, os.path.join(ROOT, tree))
        self.link("libverbatim.a")
        for name in SOUND_PROGRAMS:
            shutil.copy2(os.path.join(ROOT, self.ninja.builddir, name), os.path.join(ROOT, self.folder, name))

    def call(self, words, folder=ROOT):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken("%s: %s\n%s" % (self.name, " ".join(words), done.stdout + done.stderr))

    def link(self, name):
        """Makes an archive or program by the build's command, with our objects in place of the build's."""
        root = self.ninja.builddir
        replaced = {**self.patched, root + "/libverbatim.a": self.folder + "/libverbatim.a", root + "/" + name: self.folder + "/" + name}
        self.call([replaced.get(word, word) for word in self.ninja.command(root + "/" + name)])

    def program(self, name):
        """The path of a program of the build, "verbatim" or "tests/test_golden", with the edits in it."""
        if not self.edits:
            return "%s/%s" % (self.ninja.builddir, name)
        with self.lock:
            if not self.is_compiled:
                self.compile()
                self.is_compiled = True
            if name not in self.made:
                self.link(name)
                self.made.add(name)
        return "%s/%s" % (self.folder, name)

    def lacks_fault(self, name):
        """The program contains nothing that was changed."""
        return self.sound is not None and same_bytes(self.program(name), self.sound.program(name))


def same_bytes(a, b):
    with open(os.path.join(ROOT, a), "rb") as first, open(os.path.join(ROOT, b), "rb") as second:
        return first.read() == second.read()


def edited(name, edits):
    """path -> text with the fault."""
    texts = {}
    for edit in edits:
        path = edit["file"]
        if path not in texts:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                texts[path] = file.read()
        count = texts[path].count(edit["find"])
        if count != 1:
            raise Broken("%s: expected this text once in %s, found it %d times: %s" % (name, path, count, edit["find"]))
        texts[path] = texts[path].replace(edit["find"], edit["replace"])
    return texts


def link_tree(tree, changed):
    """A folder that looks like the root of the repository, except for the changed files."""
    folders = {""}
    for path in changed:
        parts = path.split("/")[:-1]
        folders |= {"/".join(parts[:n + 1]) for n in range(len(parts))}
    for folder in sorted(folders):
        os.makedirs(os.path.join(ROOT, tree, folder))
        for name in os.listdir(os.path.join(ROOT, folder)):
            path = os.path.join(folder, name)
            if path not in folders and path not in changed:
                os.symlink(os.path.join(ROOT, path), os.path.join(ROOT, tree, path))
    for path, text in changed.items():
        with open(os.path.join(ROOT, tree, path), "w", encoding="utf-8") as file:
            file.write(text)

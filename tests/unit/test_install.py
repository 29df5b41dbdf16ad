#!/usr/bin/env python3
"""Tests of `ninja install`: which files it installs where, that programs can be built against them, and that the manual and the completions
match the program. An ordinary user installs into a folder of its own. Run after ninja: test_install.py [--builddir DIR]
"""
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import builddir

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [ROOT, os.path.join(ROOT, "tools")]
import configure  # noqa: E402
import manual  # noqa: E402

BUILDDIR = builddir.take()
NOBODY = 65534
HELP_COLUMNS = 100
INSTALLED = """
bin/verbatim 755
include/verbatim.h 644
lib/libverbatim.so -> SONAME
lib/SONAME 755
lib/pkgconfig/verbatim.pc 644
share/bash-completion/completions/verbatim 644
share/doc/verbatim/LICENSE 644
share/doc/verbatim/NOTICE 644
share/fish/vendor_completions.d/verbatim.fish 644
share/man/man1/verbatim.1 644
share/verbatim/deploy.yaml 644
share/verbatim/verbatim.service 644
share/zsh/site-functions/_verbatim 644
"""

BEFORE = {("probe", "--threads"): ["--copy", "folder"]}  # words that must precede the option
TOLD_OTHERWISE = [("diff", "--trace"), ("probe", "--copy"), ("probe", "--threads")]  # a missing value is not reported


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def output_of(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def help_faults(command, text):
    """What a command's help lacks: two examples of the command itself, and lines that fit a terminal."""
    examples = re.findall(r"^  verbatim %s(?: .*)?$" % command, text, re.M)
    faults = [] if len(examples) >= 2 and "\nExamples:\n" in text else ["%s: %d examples, expected 2 or more" % (command, len(examples))]
    return faults + ["%s: %d columns: %s" % (command, len(line), line) for line in text.splitlines() if len(line) > HELP_COLUMNS]


def lacks(program):
    return unittest.skipUnless(shutil.which(program), program + " is not installed")


def ordinary_user():
    """(a Python, how to drop privileges): for root, where an unprivileged user may be unable to read Python or this tree."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3") if os.geteuid() == 0 else ():
        try:
            subprocess.run([python, "-B", "-c", "import configure"], cwd=ROOT, check=True, capture_output=True, **user)
            return python, user
        except (OSError, subprocess.CalledProcessError):
            continue
    return sys.executable, {}


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.python, self.user = ordinary_user()
        if self.user:
            os.chown(self.folder, NOBODY, NOBODY)

    def install(self, *words, destination=None, check=True):
        """Runs the command of build.ninja with another prefix."""
        rule = re.search(r"^rule install\n  command = (.*)$", read("build.ninja"), re.M).group(1)
        command = rule.replace("$builddir", BUILDDIR).replace("$how", "").split() + list(words)
        environment = dict(os.environ, HOME=self.folder, PYTHONDONTWRITEBYTECODE="1")
        environment.pop("DESTDIR", None)
        if destination:
            environment["DESTDIR"] = destination
        command[0] = self.python
        return subprocess.run(command, cwd=ROOT, env=environment, umask=0o077, capture_output=True, text=True, check=check, **self.user)

    def listing(self, root):
        found = []
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                told = os.path.relpath(path, root)
                mode = os.lstat(path)
                found.append(told + (" -> " + os.readlink(path) if stat.S_ISLNK(mode.st_mode) else " %o" % stat.S_IMODE(mode.st_mode)))
        return sorted(line.replace(configure.soname(), "SONAME") for line in found)


class Install(Folder):
    def test_these_files_and_no_others(self):
        self.install(destination=self.folder + "/image")
        self.assertEqual(self.listing(self.folder + "/image/usr/local"), sorted(INSTALLED.split("\n")[1:-1]))
        self.assertEqual(os.listdir(self.folder + "/image"), ["usr"])
        self.assertEqual(os.listdir(self.folder + "/image/usr"), ["local"])
        for folder, _, _ in os.walk(self.folder + "/image"):
            self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o755, folder)

    def test_again_replaces_and_uninstall_leaves_nothing(self):
        for _ in range(2):
            self.install("--prefix", self.folder + "/usr")
        self.assertEqual(len(self.listing(self.folder + "/usr")), 13)
        with open(self.folder + "/usr/lib/other", "w", encoding="utf-8"):
            pass
        self.install("--prefix", self.folder + "/usr", "--uninstall")
        self.assertEqual(self.listing(self.folder + "/usr"), ["lib/other 644"])
        self.assertFalse(os.path.exists(self.folder + "/usr/share/verbatim"))
        self.assertFalse(os.path.exists(self.folder + "/usr/share/doc/verbatim"))

    def test_the_notice_names_every_library_in_the_program(self):
        archives = re.findall(r"^-l:lib([a-z]+)", "\n".join(configure.LIBRARIES), re.M)
        named = read("NOTICE").split("\n\n")[2].split("\n")[1:]
        self.assertEqual(sorted(archives), sorted(re.search(r" lib([a-z]+)", line).group(1) for line in named))

    def test_a_folder_of_another_is_refused_by_name(self):
        if os.geteuid() == 0 and not self.user:
            self.skipTest("root may write everywhere")
        os.mkdir(self.folder + "/closed")
        os.chmod(self.folder + "/closed", 0o555)
        result = self.install("--prefix", self.folder + "/closed/usr", check=False)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^install.py: .*Permission denied.*closed/usr.*hint")
        self.assertIn("absolute path", self.install("--prefix", "usr", check=False).stderr)

    def test_a_program_is_built_against_it_and_runs(self):
        prefix = self.folder + "/usr"
        self.install("--prefix", prefix)
        environment = dict(os.environ, PKG_CONFIG_PATH=prefix + "/lib/pkgconfig", LD_LIBRARY_PATH=prefix + "/lib")
        flags = output_of("pkg-config", "--cflags", "--libs", "verbatim", env=environment).split()
        self.assertEqual(flags, ["-I" + prefix + "/include", "-L" + prefix + "/lib", "-lverbatim"])
        version = re.search(r'VERBATIM_VERSION "(.*)"', read("engine/verbatim.h")).group(1)
        self.assertEqual(output_of("pkg-config", "--modversion", "verbatim", env=environment).strip(), version)
        example, plan = self.folder + "/example", self.folder + "/plan"
        output_of("cc", "-std=c11", "-Wall", "-Werror", os.path.join(ROOT, configure.EXAMPLE), "-o", example, *flags, cwd=self.folder)
        output_of(prefix + "/bin/verbatim", "plan", "tests/tiny", "--config", "tests/tiny/deploy.yaml", "-o", plan, cwd=ROOT)
        said = output_of(example, plan, "tests/tiny", "cpu", cwd=ROOT, env=environment)
        self.assertEqual(said.splitlines()[0], "add: 820+9918= 10738 (stop, 6 tokens)")

    def test_the_unit_follows_the_prefix(self):
        self.install("--prefix", "/opt/x", destination=self.folder + "/image")
        with open(self.folder + "/image/opt/x/share/verbatim/verbatim.service", encoding="utf-8") as file:
            unit = file.read()
        self.assertIn("\nExecStart=/opt/x/bin/verbatim serve ", unit)
        self.assertNotIn("/usr/local", unit)

    def test_another_prefix_leaves_the_committed_file_alone(self):
        same, other = (configure.parse_arguments(["--prefix", prefix]) for prefix in ("/usr/local", "/opt/x"))
        self.assertEqual(configure.generate(same)["build.ninja"], read("build.ninja"))
        self.assertEqual(configure.output_paths(same)[0], "build.ninja")
        self.assertEqual(configure.output_paths(other)[0], "build/build.ninja")
        self.assertIn("tools/install.py --builddir $builddir --prefix /opt/x $how\n", configure.generate(other)["build/build.ninja"])


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = os.path.join(ROOT, BUILDDIR, "verbatim")
        cls.commands = manual.commands(cls.program)
        cls.folder = tempfile.TemporaryDirectory()
        for name, text in manual.texts(cls.program).items():
            with open(os.path.join(cls.folder.name, name), "w", encoding="utf-8") as file:
                file.write(text)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def text(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def test_every_command_is_there(self):
        rows = re.findall(r'^  \{"([\w-]+)", "[^"]*", cli_\w+\}', read("engine/main.c"), re.M)
        self.assertGreater(len(rows), 8)
        self.assertEqual([command.name for command in self.commands], rows)

    def test_every_help_has_examples_and_fits(self):
        self.assertEqual(help_faults("help", output_of(self.program, "help"))[1:], [])
        for command in self.commands:
            text = output_of(self.program, command.name, "--help")
            self.assertEqual(help_faults(command.name, text), [])
            example = r"^  verbatim %s.*\n" % command.name
            fewer = re.sub(example, "", text, count=len(re.findall(example, text, re.M)) - 1, flags=re.M)
            self.assertEqual(help_faults(command.name, fewer), ["%s: 1 examples, expected 2 or more" % command.name])
            self.assertEqual(len(help_faults(command.name, text + "x" * (HELP_COLUMNS + 1))), 1)

    def test_the_help_groups_the_commands(self):
        told = output_of(self.program, "help")
        self.assertEqual(re.findall(r"^([A-Z][a-z ]+):$", told, re.M), ["Use", "Prove", "Look inside", "Set up"])

    def test_the_program_takes_every_option(self):
        """An unknown name is reported as unknown; one that needs a value says so."""
        for command in self.commands:
            self.assertTrue(command.options, command.name)
            for option in command.options:
                for name in option.names:
                    words = BEFORE.get((command.name, name), []) + [name]
                    result = subprocess.run([self.program, command.name, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
                    self.assertNotRegex(result.stderr, "unknown option|no such option|unexpected argument", command.name + " " + name)
                    if (command.name, name) not in TOLD_OTHERWISE:
                        needs = bool(re.search("needs a value|expected a value", result.stderr))
                        self.assertEqual(needs, bool(option.argument), command.name + " " + name)

    def test_every_option_of_the_tables_is_told(self):
        tables = "".join(read(path) for path in configure.program_sources())
        taken = set(re.findall(r'\{"(--?[a-z][a-z-]*)", \w+', tables))
        told = {name for command in self.commands for option in command.options for name in option.names}
        self.assertGreater(len(taken), 50)
        self.assertLessEqual(taken, told)

    def test_the_page_holds_all_of_the_help(self):
        page = re.sub(r"\\f.|\\&", "", self.text("verbatim.1")).replace("\\-", "-").replace("\\e", "\\").split()
        joined = " ".join(word for word in page if not re.fullmatch(r"\.\w+", word))
        for command in self.commands:
            help_text = output_of(self.program, command.name, "--help")
            for sentence in re.findall(r"\S+(?: \S+){3,}", help_text):
                if not re.match(r"\s*(?:usage|-)", sentence):
                    self.assertIn(sentence, joined, command.name)

    def test_every_listed_option_has_a_meaning(self):
        listed = [option for command in self.commands for kind, block in command.blocks if kind == "options" for option in block]
        self.assertGreater(len(listed), 100)
        self.assertEqual([option.names for option in listed if not re.search("[a-z]{2}", option.text)], [])

    def test_dashes_are_dashes(self):
        self.assertNotRegex(self.text("verbatim.1"), r"(?<!\\)--")

    @lacks("mandoc")
    def test_mandoc_finds_nothing(self):
        result = subprocess.run(["mandoc", "-Tlint", "-Wwarning", self.path("verbatim.1")], capture_output=True, text=True)
        self.assertEqual(result.stdout + result.stderr, "")

    @lacks("man")
    def test_man_warns_of_nothing(self):
        result = subprocess.run(["man", "--warnings", "-l", self.path("verbatim.1")], capture_output=True, text=True,
                                env=dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8", MANROFFOPT=""))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("EXIT STATUS", result.stdout)

    def complete(self, *words):
        script = ('source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _verbatim; printf "%s\\n" "${COMPREPLY[@]}"')
        said = output_of("bash", "-c", script, self.path("verbatim.bash"), *words, cwd=os.path.join(ROOT, "tests/tiny"))
        return set(said.split())

    def test_bash_completes(self):
        self.assertEqual(self.complete("verbatim", "sh"), {"show"})
        self.assertEqual(self.complete("verbatim", "score", "--no"), {"--no-bos", "--no-drafts", "--no-prefix-cache"})
        self.assertEqual(self.complete("verbatim", "run", "--output", ""), {"text", "jsonl"})
        self.assertEqual(self.complete("verbatim", "run", "--device", "c"), {"cpu"})
        self.assertEqual(self.complete("verbatim", "plan", "--config", "dep"), {"deploy.yaml"})
        self.assertEqual(self.complete("verbatim", "run", "--seed", ""), set())
        for command in self.commands:
            names = {name for option in command.options for name in option.names} | {"--help"}
            self.assertEqual(self.complete("verbatim", command.name, "-"), names)

    @lacks("zsh")
    def test_zsh_reads_it(self):
        self.assertEqual(subprocess.run(["zsh", "-n", self.path("_verbatim")], capture_output=True, text=True).stderr, "")

    @lacks("fish")
    def test_fish_completes(self):
        command = "source %s; complete -C 'verbatim score --no'; complete -C 'verbatim sh'" % self.path("verbatim.fish")
        said = output_of("fish", "--no-config", "-c", command, env=dict(os.environ, HOME=self.folder.name))
        self.assertEqual({line.split("\t")[0] for line in said.splitlines()}, {"--no-bos", "--no-prefix-cache", "show"})


if __name__ == "__main__":
    unittest.main()

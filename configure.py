#!/usr/bin/env python3
"""Writes build.ninja and tests/build.ninja, the one description of how Verbatim is built.

Run without arguments it rewrites the committed files byte for byte (tests/unit/test_build.py checks that). With arguments it writes
into <builddir> instead, so that another compiler never touches the committed files:

  ./configure.py --cc clang --builddir build/clang && ninja -f build/clang/build.ninja tests
  ./configure.py --target aarch64-linux-gnu && ninja -f build/aarch64/build.ninja          # on aarch64, or with its cross compiler
  ./configure.py --target arm64-apple-macos && ninja -f build/macos/build.ninja            # on a Mac, or across; program and tools only

Sources are found by folder: after adding, moving or removing a file, run this. A test is linked with the C file of every header under
tests/ that it includes, and with --wrap for every __wrap_<function> that these files define. The kernels' forms and planted flaws
that the emulator runs are data: tests/emulator/forms.toml and flaws.toml. Read next: STYLE.md.
"""
import argparse
import glob
import os
import re
import shlex
import sys
import tomllib

# === Sources ================================================================================================================

# The program's folders of engine/; all others, and planner/, are libverbatim.a. main.c is the program's, too.
PROGRAM_FOLDERS = ["common", "eval/run", "serve", "cli"]
MAIN = "engine/main.c"
UNFUZZED_FOLDERS = ["bench", "cli", "eval/run"]  # of engine/: no fuzz target needs them
TEST_KINDS = ["unit", "kernel", "e2e"]
SCHEDULE_FUZZ = "tests/schedule/schedule_fuzz.c"
EXAMPLE = "tests/examples/embed.c"  # how a program embeds the library: built from the public header and the shared library alone
MACHO_RUN = "tests/macos/macho_run.c"  # runs the program for macOS in check/macos: built for aarch64 Linux
EMULATOR, EMULATED_KERNEL = "tests/emulator/emulator.cpp", "tests/emulator/kernel.cpp"
FORMS, FLAWS = "tests/emulator/forms.toml", "tests/emulator/flaws.toml"
PUBLIC_SOURCE, PUBLIC_HEADER = "engine/verbatim.c", "engine/verbatim.h"


def found(*patterns):
    return sorted({path for pattern in patterns for path in glob.glob(pattern, recursive=True)})


def program_sources():
    return found(MAIN, *("engine/%s/*.c" % folder for folder in PROGRAM_FOLDERS))


def library_sources(processor=None):
    """Without the files for other processors' instruction sets; all of them without `processor`."""
    left_out = tuple(suffix + ".c" for name in INSTRUCTION_SETS if processor not in (None, name) for suffix in INSTRUCTION_SETS[name])
    return sorted(path for path in {*found("engine/**/*.c", "planner/**/*.c")} - {*program_sources()} if not path.endswith(left_out))


def kernel_texts():
    """Compiled into the program by tools/embed.py and handed to NVRTC at run time."""
    return found("kernels_src/**/*.h", "kernels_src/**/*.cuh", "kernels_src/**/*.cu")


def kernel_stems():
    return re.findall(r"^KERNEL\((\w+)\)", read("kernels_src/kernels.def"), re.M)


def test_sources(*kinds):
    return [path for kind in kinds for path in found("tests/%s/**/test_*.c" % kind)]


def fuzz_sources():
    return found("tests/fuzz/fuzz_*.c")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def own_texts(path, seen):
    """path -> text of a source under tests/, of the headers under tests/ that it includes, and of their C files, and so on."""
    if path in seen or not os.path.exists(path):
        return seen
    seen[path] = read(path)
    for name in re.findall(r'^#include "([^"]+)"', seen[path], re.M):
        for header in (os.path.normpath(os.path.join(os.path.dirname(path), name)), name):
            if header.startswith("tests/"):
                own_texts(header, seen)
                own_texts(os.path.splitext(header)[0] + ".c", seen)
    return seen


def linked_sources(source):
    """A test, fuzzer or fuzzing program and its support files."""
    return [source] + sorted(path for path in own_texts(source, {}) if path.endswith(".c") and path != source)


def wrapped_functions(source):
    """Functions that a test replaces by its own __wrap_<function>; some do so for one op after another, by a macro."""
    names = set()
    for text in own_texts(source, {}).values():
        names |= set(re.findall(r"\b__wrap_(\w+)\(", text))
        if "__wrap_cpu_##stem" in text:
            names |= {"cpu_" + stem for stem in re.findall(r"\b(?:WRAP|X)\((\w+), ", text) if stem != "stem"}
        if re.search(r"#define KERNEL\(stem\)(?:[^\n]*\\\n)*[^\n]*__wrap_cpu_##stem\([^()]*\) \{", text):
            names |= {"cpu_" + stem for stem in kernel_stems()}
    return sorted(names)


def all_sources():
    """Every .c and .cpp that the build compiles from the tree; tools/tidy.py compares it with the tree."""
    mains = test_sources(*TEST_KINDS, "gpu") + fuzz_sources() + [SCHEDULE_FUZZ]
    linked = {path for source in mains for path in linked_sources(source)}
    return sorted(linked | {*library_sources(), *program_sources(), *found("tools/*.c"), MACHO_RUN, EMULATOR, EMULATED_KERNEL, EXAMPLE})


# === Flags ==================================================================================================================

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wvla"]
# -ffp-contract=off: a fused multiply-add is always written, never inferred (NUMERICS.md). No -march: the instruction set
# of a file is part of its name and never leaks into another file. One set of objects serves the program and the shared library,
# which shows what verbatim.h marks and nothing else.
# What an attacker would need to find harder, at no cost that a step shows: guarded stacks, checked copies, indirect jumps to marked places
# only, by processor. The linker's part: addresses that are drawn at start, and tables of them that cannot be written afterwards.
HARDENED = ["-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
JUMPS = {"x86_64": "-fcf-protection", "aarch64": "-mbranch-protection=standard"}
HARDENED_LINK = "-Wl,-z,relro,-z,now"
CFLAGS = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-g", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden"]
CHECKED = [*WARNINGS, "-Wstrict-prototypes", "-Wmissing-prototypes", "-Werror", "-I.", "-Iengine", "-Iplanner", "-Ikernels_src"]
# Of the emulator only. The kernels' `#pragma unroll` is unknown to g++; thread_local arrays elsewhere have no constructors.
CXXFLAGS = ["-std=c++17", "-O2", "-g", "-ffp-contract=off", "-fno-extern-tls-init", *WARNINGS, "-Werror",
            "-Wno-unknown-pragmas", "-Wno-psabi", "-I.", "-Itests/emulator"]
KERNEL_FLAGS = "-O1 -g0"  # of the hundreds of forms and flaws: half the time to compile, and most of their run is the emulator's
INSTRUCTION_SETS = {
    "x86_64": {"_avx2": "-mavx2 -mfma -mf16c", "_avx512": "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c"},
    "aarch64": {"_neon": ""},  # every processor has it
}
# The sanitizers check copies themselves. The last macro is gcc's own; clang gets it by hand.
SANITIZE = ["-U_FORTIFY_SOURCE", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
            "-D__SANITIZE_ADDRESS__=1"]
# Static but for libc and libm, so that the program can be copied to the machine with the GPU. xxhash stands before fyaml,
# whose archive holds an old copy of the same symbols: the first one met is taken.
LIBRARIES = "-l:libxxhash.a -l:libfyaml.a -l:libjansson.a -l:libpcre2-8.a -l:libzstd.a -l:libevent_core.a -l:libcrypto.a -lm".split()
# Of libverbatim.so: a shared library cannot hold the archives, which are compiled for programs. OpenSSL's is compiled for both.
SHARED_LIBRARIES = "-lxxhash -ljansson -lpcre2-8 -l:libcrypto.a -Wl,--exclude-libs,libcrypto.a -lm"
# macOS hides all beyond POSIX unless asked. A warning of a newer compiler must not end a build on a Mac. Hardening is its linker's default.
# The system's library comes first: libfyaml can bring an open_memstream of its own, for systems without one.
MACOS = "arm64-apple-macos"
MACOS_CFLAGS = ["-D_DARWIN_C_SOURCE", "-Wno-error"]
MACOS_LIBRARIES = "-lSystem -lxxhash -lfyaml -ljansson -lpcre2-8 -lzstd -levent_core".split()
MACOS_HOSTS = {  # sys.platform -> compiler, archiver, root folder of the libraries, as tools/setup_macos.sh makes them
    "darwin": ("cc", "ar", "/opt/homebrew"), "linux": ("build/macos/zig/bin/cc", "build/macos/zig/bin/ar", "build/macos/zig")}

PREFIX = "/usr/local"
OPTIONS = {  # defaults and meanings
    "cc": ("cc", "C compiler"),
    "builddir": ("build", "folder of everything that is built"),
    "prefix": (PREFIX, "where `ninja install` puts things, below $DESTDIR"),
    "target": ("", "aarch64-linux-gnu or arm64-apple-macos: builds for that, in build/aarch64 or build/macos, with its compiler; "
               "without it: for x86_64-linux-gnu"),
    "flags": ("", "further flags of the C compiler"),
    "libraries": ("", "root folder of the target's libraries, as tools/setup_aarch64.sh and setup_macos.sh make it; without it: where the "
                  "compiler looks, or for macOS where setup_macos.sh puts them"),
}


def soname():
    """Carries major and minor version: before 1.0 every minor version may change the header."""
    return "libverbatim.so." + re.search(r'#define VERBATIM_VERSION "(\d+\.\d+)\.', read(PUBLIC_HEADER)).group(1)


# === Ninja ==================================================================================================================


class NinjaWriter:
    """The part of ninja's syntax that is used here. Paths hold no spaces, colons or dollars."""

    def __init__(self):
        self.lines = ["# Written by configure.py; edit that instead."]

    def comment(self, text):
        self.lines += ["", "# " + text]

    def variable(self, name, words, indent=""):
        text = words if isinstance(words, str) else " ".join(words)
        self.lines.append((indent + name + " = " + text).rstrip())

    def rule(self, name, command, **variables):
        """What ninja prints is the first word of the name and the output."""
        self.lines.append("rule " + name)
        for key, value in {"command": command, "description": name.split("_")[0].upper() + " $out", **variables}.items():
            self.variable(key, value, "  ")

    def build(self, output, rule, inputs=(), implicit=(), order_only=(), **variables):
        words = ["build", output + ":", rule, *([inputs] if isinstance(inputs, str) else inputs)]
        self.lines.append(" ".join(words + ["|", *implicit] * bool(implicit) + ["||", *order_only] * bool(order_only)))
        for key, value in variables.items():
            self.variable(key, value, "  ")
        return output


def is_op(source):
    """The arithmetic of the CPU: nearly all of an engine's time."""
    return source.startswith(("engine/cpu/", "engine/mma/"))


def is_fuzzed(source):
    """Compiled for the fuzz targets, none of which computes, measures or is the command line: clang takes long to instrument a file."""
    return not is_op(source) and not source.startswith(tuple("engine/%s/" % folder for folder in UNFUZZED_FOLDERS))


class Variant:
    """One way of compiling everything: objects under <root>/obj, a compiler and extra flags. ops: another variant, whose objects of the
    CPU's ops are used where whole models run."""

    def __init__(self, args, root, cc_rule, link_rule, ops=None):
        self.builddir, self.processor = args.builddir, processor_of(args)
        self.root, self.cc_rule, self.link_rule, self.objects, self.ops = root, cc_rule, link_rule, {}, ops

    def object(self, ninja, source):
        if source not in self.objects:
            stem = source.removeprefix(self.builddir + "/")[:-2]
            # The ops of the CPU are optimised under the sanitizers, too: half of the time of their tests.
            flags = ["-O2"] if is_op(source) else []
            flags += [value for suffix, value in INSTRUCTION_SETS[self.processor].items() if stem.endswith(suffix)]
            output = "%s/obj/%s.o" % (self.root, stem)
            self.objects[source] = ninja.build(output, self.cc_rule, source, **({"isa": flags} if flags else {}))
        return self.objects[source]

    def library(self, ninja, takes=lambda source: True):
        """libverbatim.a, and libverbatim_program.a: the program but for main(); of these, the sources that it takes. Without the CPU's ops,
        binaries take those of self.ops."""
        generated = [self.builddir + "/gen/kernel_sources.c", self.builddir + "/gen/profile_shipped.c"]
        library = [self.object(ninja, source) for source in library_sources(self.processor) + generated if takes(source)]
        program = [self.object(ninja, source) for source in program_sources() if source != MAIN and takes(source)]
        return [ninja.build(self.root + "/libverbatim_program.a", "ar", program), ninja.build(self.root + "/libverbatim.a", "ar", library)]

    def binary(self, ninja, output, sources, libs="", objects=(), runs_models=True):
        """Linked with the libraries, of which the linker takes what is needed."""
        archives = [self.root + "/libverbatim_program.a", self.root + "/libverbatim.a"]
        if self.ops and runs_models:
            archives = [self.ops.object(ninja, source) for source in library_sources(self.processor) if is_op(source)] + archives
        extra = {"extra_libs": libs} if libs else {}
        inputs = [self.object(ninja, source) for source in sources] + [*objects] + archives
        return ninja.build("%s/%s" % (self.root, output), self.link_rule, inputs, **extra)

    def tests(self, ninja, kinds, folder="tests", emulated=()):
        """emulated: name of a test -> C++ objects linked to it as well."""
        outputs = []
        for source in test_sources(*kinds):
            name = os.path.basename(source)[:-2]
            objects = dict(emulated).get(name, [])
            libs = " ".join(["-lcmocka"] + ["-Wl,--wrap=" + function for function in wrapped_functions(source)] +
                            ["-l:libstdc++.a -static-libgcc"] * bool(objects))
            runs_models = source.startswith("tests/e2e/")
            outputs.append(self.binary(ninja, "%s/%s" % (folder, name), linked_sources(source), libs, objects, runs_models))
        return outputs


def write_shared(ninja, variant):
    """libverbatim.so, another for a wheel, which finds its libraries beside it, and the example that is linked to it: the public source,
    and what it needs of the library."""
    root, name = variant.root, soname()
    library = ninja.build(root + "/" + name, "link_shared", [variant.object(ninja, PUBLIC_SOURCE), root + "/libverbatim.a"], soname=name)
    link = ninja.build(root + "/libverbatim.so", "symlink", library, target=name)
    wheel = ninja.build(root + "/wheel/" + name, "link_shared", [variant.object(ninja, PUBLIC_SOURCE), root + "/libverbatim.a"],
                        soname=name, search="-Wl,-rpath,'$$ORIGIN'")
    return [link, wheel, ninja.build(root + "/embed_example", "example", EXAMPLE, [link, root + "/include/verbatim.h"], folder=root)]


def write_emulator(ninja, build):
    """Objects of the emulator and of every kernel in it; name of a kernel test -> what is linked to it."""
    machine, forms = build + "/obj/emulator/emulator.o", build + "/gen/ptx_forms.cuh"
    ninja.build(forms, "excerpt", found("kernels_src/**/ptx.cuh"), lines=r"\|^#define PTX_SWIZZLED|,\|^NUM u64 ptx_operand|p")
    ninja.build(machine, "cxx", EMULATOR, implicit=[forms])
    texts = ninja.build(build + "/gen/kernel_texts", "phony", kernel_texts())
    specs = {stem: [{"THREADS": 256}] for stem in kernel_stems()} | tomllib.loads(read(FORMS))  # 256 threads unless forms are given
    flaws, linked = tomllib.loads(read(FLAWS))["flaw"], {}

    def kernel(stem, form, entry, folder, flaw="", implicit=()):
        output = "%s/obj/emulator/%s.o" % (build, entry)
        spec = ["-DSPEC_%s=%du" % item for item in specs[stem][form].items()]
        text = os.path.relpath(found("kernels_src/**/%s.cu" % stem)[0], "kernels_src")
        ninja.build(output, "cxx_kernel", EMULATED_KERNEL, implicit=[forms, *implicit], stem=stem, entry=entry, folder=folder, text=text,
                    spec=spec, flaw=flaw)
        linked.setdefault("test_" + stem, [machine]).append(output)

    for stem in specs:
        for i in range(len(specs[stem])):
            kernel(stem, i, "emulated_%s_%d" % (stem, i), "kernels_src")
    for i, flaw in enumerate(flaws):
        folder = "%s/gen/flaw_%d" % (build, i)
        planted = ninja.build(folder + "/planted", "plant", implicit=[texts, "tests/emulator/plant.py"], folder=folder, file=flaw["file"],
                              edit=flaw["edit"])
        kernel(flaw["kernel"], flaw["form"], "broken_%d" % i, folder, flaw["breaks"], [planted])
    linked["test_self_check"] = [machine] + [path for paths in linked.values() for path in paths if path != machine]
    return linked


def processor_of(args):
    return "aarch64" if args.target == MACOS else args.target.split("-")[0] or "x86_64"


def write_rules(ninja, args):
    root, target, shared = args.libraries, args.target, SHARED_LIBRARIES
    if target == MACOS:
        cflags, libs = [*CFLAGS, *HARDENED, *CHECKED, *MACOS_CFLAGS], MACOS_LIBRARIES
        ar, link, folders = MACOS_HOSTS[sys.platform][1] + " qcs", "$cc", [root + "/lib", root + "/include"]
    else:
        cflags, libs = [*CFLAGS, *HARDENED, JUMPS[processor_of(args)], *CHECKED], LIBRARIES
        ar, link = "ar qcsD", "$cc -pie " + HARDENED_LINK
        folders = [root + "/usr/lib/" + target, root + "/usr/include", root + "/usr/include/" + target]
    cflags += args.flags.split()
    if root:
        cflags += [word for path in folders[1:] for word in ("-isystem", path)]
        libs, shared = ["-L" + folders[0], *libs], "-L%s %s" % (folders[0], shared)
    for name, words in {"ninja_required_version": "1.5", "builddir": args.builddir, "cc": args.cc, "cflags": cflags, "sanitize": SANITIZE,
                        "libs": libs, "cxxflags": CXXFLAGS}.items():
        ninja.variable(name, words)
    depends = {"depfile": "$out.d", "deps": "gcc"}
    cc, cxx = "-MMD -MF $out.d $cflags $isa", "g++ -MMD -MF $out.d $cxxflags -I$builddir/gen "
    ninja.rule("cc", "$cc %s -c $in -o $out" % cc, **depends)
    ninja.rule("cc_san", "$cc -MMD -MF $out.d $cflags $sanitize -O1 -g1 $isa -c $in -o $out", **depends)
    ninja.rule("cc_fuzz", "clang %s $sanitize -fsanitize=fuzzer-no-link -O1 -gline-tables-only -c $in -o $out" % cc, **depends)
    ninja.rule("ar", "rm -f $out && %s $out $in" % ar)
    ninja.rule("link", "%s -o $out $in $libs $extra_libs" % link)
    ninja.rule("link_san", "$cc $sanitize -o $out $in $libs $extra_libs")
    ninja.rule("link_fuzz", "clang $sanitize -fsanitize=fuzzer -o $out $in $libs")
    ninja.rule("link_shared", "$cc -shared %s -Wl,-z,defs -Wl,-soname,$soname $search -o $out $in %s" % (HARDENED_LINK, shared))
    ninja.rule("symlink", "ln -sf $target $out")
    ninja.rule("copy", "cp $in $out")
    ninja.rule("example", "$cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I$builddir/include -o $out $in -L$folder -lverbatim "
               "-Wl,-rpath,'$$ORIGIN'")
    ninja.rule("cxx", cxx + "-Ikernels_src -c $in -o $out", **depends)
    ninja.rule("cxx_kernel", cxx + KERNEL_FLAGS + " -I$folder $spec -D$stem=$entry -DEMULATED_ENTRY=$entry '-DEMULATED_STEM=\"$stem\"' "
               "'-DEMULATED_TEXT=\"$folder/$text\"' '-DEMULATED_SPEC=\"$spec\"' '-DEMULATED_FLAW=\"$flaw\"' -c $in -o $out", **depends)
    ninja.rule("excerpt", "sed -n '$lines' $in > $out && test -s $out")
    ninja.rule("plant", "python3 tests/emulator/plant.py $folder $file '$edit'", restat="1")
    ninja.rule("embed", "python3 tools/embed.py -o $out --table $table --header $header --root $root $in")
    ninja.rule("configure", ("python3 configure.py " + configure_arguments(args)).strip(), generator="1")
    prefix = " --prefix " + args.prefix if args.prefix != PREFIX else ""
    ninja.rule("install", "python3 tools/install.py --builddir $builddir%s $how" % prefix, pool="console")
    ninja.rule("wheel", "python3 tools/wheel.py --builddir $builddir", pool="console")
    ninja.rule("test", "python3 tools/test.py --builddir $builddir", pool="console")


def configure_arguments(args):
    given = [(name, getattr(args, name)) for name, (default, _) in OPTIONS.items() if getattr(args, name) != default]
    return " ".join(shlex.quote("--%s=%s" % pair) for pair in given)


def output_paths(args):
    """Of the top file and of the one for tests."""
    return ("build.ninja", "tests/build.ninja") if not configure_arguments(args) else (
        args.builddir + "/build.ninja", args.builddir + "/tests.ninja")


def write_tests(ninja, args, plain):
    build = args.builddir
    ninja.comment("Tests, with the kernels' texts in the emulator")
    tests = [plain.binary(ninja, "schedule_fuzz", linked_sources(SCHEDULE_FUZZ)), *plain.tests(ninja, ["gpu"], "gpu_tests"),
             *plain.tests(ninja, TEST_KINDS, emulated={} if args.target else write_emulator(ninja, build))]
    if processor_of(args) == "aarch64":
        ninja.build(build + "/macho_run", "link", plain.object(ninja, MACHO_RUN))
    ninja.comment("The program and the tests under AddressSanitizer and UndefinedBehaviorSanitizer")
    # Under the sanitizers unit and kernel tests judge the CPU's ops; whole models run ordinary ones, in a third of the time.
    san = Variant(args, build + "/san", "cc_san", "link_san", plain)
    san_all = [*san.library(ninja), san.binary(ninja, "schedule_fuzz", linked_sources(SCHEDULE_FUZZ)),
               san.binary(ninja, "verbatim", [MAIN]), *san.tests(ninja, TEST_KINDS)]
    ninja.comment("Fuzzers (clang only, never built by default)")
    fuzz = Variant(args, build + "/fuzz", "cc_fuzz", "link_fuzz", plain)
    fuzz.library(ninja, is_fuzzed)
    fuzzers = [fuzz.binary(ninja, os.path.basename(source)[:-2], linked_sources(source)) for source in fuzz_sources()]
    ninja.comment("Names to build by")
    ninja.build("tests", "phony", tests)
    ninja.build("unfuzzed", "phony", [path for source, path in plain.objects.items() if source not in fuzz.objects])
    ninja.build("san", "phony", san_all)
    ninja.build("fuzz", "phony", fuzzers)


def generate(args):
    """{path: text} of the two files."""
    build, (top_path, tests_path) = args.builddir, output_paths(args)
    ninja = NinjaWriter()
    write_rules(ninja, args)
    ninja.comment("Generated sources and these files")
    ninja.build(build + "/gen/kernel_sources.c", "embed", kernel_texts(), ["tools/embed.py"], table="kernel_sources",
                header="engine/base/kernel_sources.h", root="kernels_src")
    ninja.build(build + "/gen/profile_shipped.c", "embed", found("planner/profiles/*.json"), ["tools/embed.py"],
                table="profile_shipped", header="planner/profile_shipped.h", root="planner/profiles")
    ninja.build(top_path, "configure", implicit=["configure.py", FORMS, FLAWS])
    ninja.comment("The program, its library and tools")
    plain = Variant(args, build, "cc", "link")
    default = plain.library(ninja)
    ninja.build(build + "/include/verbatim.h", "copy", PUBLIC_HEADER)
    default += [] if args.target == MACOS else write_shared(ninja, plain)
    default += [plain.binary(ninja, "verbatim", [MAIN])]
    default += [plain.binary(ninja, os.path.basename(path)[:-2], [path]) for path in found("tools/*.c")]
    if args.target == MACOS:
        ninja.lines += ["", "default " + " ".join(default)]
        return {top_path: "\n".join(ninja.lines) + "\n"}
    ninja.comment("Names to build by")
    ninja.build("all", "phony", default)
    ninja.build("install", "install", order_only=["all"])
    ninja.build("uninstall", "install", order_only=["all"], how="--uninstall")
    ninja.build("wheel", "wheel", order_only=["all"])
    ninja.build("test", "test", order_only=["all", "tests", "san"])
    ninja.lines += ["default all", "subninja " + tests_path]
    tests = NinjaWriter()
    write_tests(tests, args, plain)
    return {path: "\n".join(writer.lines) + "\n" for path, writer in ((top_path, ninja), (tests_path, tests))}


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description="Writes build.ninja and tests/build.ninja.")
    for name, (default, what) in OPTIONS.items():
        parser.add_argument("--" + name, default=default, help=what + (" (default: %s)" % default) * bool(default))
    args = parser.parse_args(argv)
    if args.target:
        if processor_of(args) not in JUMPS or (args.target == MACOS and sys.platform not in MACOS_HOSTS):
            parser.error("--target: expected one of %s, found %s" % (", ".join([*JUMPS, MACOS]), args.target))
        compiler, folder = args.target + "-gcc", processor_of(args)
        if args.target == MACOS:
            compiler, folder, args.libraries = MACOS_HOSTS[sys.platform][0], "macos", args.libraries or MACOS_HOSTS[sys.platform][2]
        args.cc = compiler if args.cc == OPTIONS["cc"][0] else args.cc
        args.builddir = "build/" + folder if args.builddir == OPTIONS["builddir"][0] else args.builddir
    return args


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    for path, text in generate(parse_arguments(sys.argv[1:])).items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="ascii", newline="\n") as file:
            file.write(text)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks the house rules of STYLE.md that a machine can check: tidy.py [--root DIR] [--builddir DIR] [--self-test]

Prints one "file:line: message" per breach and exits 1 if there is any. Each rule is one generator below, registered with
@rule; --self-test plants a breach of every rule in a temporary tree and expects it to be reported, and no other message.
"""
import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

# === Tables =================================================================================================================

# The folders of engine/, lowest first: a folder is a layer. A file includes its own folder and lower ones, and names the folder
# ("requests/pages.h"); kernels_src/ lies below all but base. All may include verbatim.h. verbatim.c is the entry to the library and main.c
# the entry to the program: they lie between folders.
LAYERS = """
base kernels_src mma cpu ops plan gpu weights self_check exec text constrain requests jinja answer chat verbatim.c receipts traces bench
jsonl common eval eval/import eval/report eval/run serve cli main.c
""".split()
# What planner/ may include besides its own headers; who may include the planner, and the checker of its plans.
PLANNER_SEES = r"engine/base/.*|engine/plan/(?:format\w*|spread)\.h|engine/verbatim\.h|kernels_src/.*"
SEES_PLANNER = ["common", "eval/run", "serve", "cli", "main.c"]
CHECKER = ("engine/verbatim.c", "planner/checks/check.h")  # files that open a plan have it checked
# Folders behind verbatim.h: the command line, like any program, uses the engine only through that header.
PROGRAM = SEES_PLANNER
BEHIND_THE_HEADER = (r"engine/(?:base/arena|cpu/\w+|weights/(?:weights|e4m3)|exec/\w+|plan/guarantee|"
                     r"requests/(?:pages|request|schedule\w*))\.h")
# Folders whose name, or another short name, starts the symbols of their files: serve/http.c has serve_http_open.
FOLDER_PREFIXES = {"receipts": "receipt", "traces": "trace", "common": "cli", "eval/report": "eval_report", "eval/run": "eval",
                   "eval/import": "eval_import"}

# Who may name what of CUDA: pattern, the file that owns it, the header that declares it.
VENDOR_CALLS = [
    (r"\bcu(?!BLAS)[A-Z]\w*", "driver calls", {"engine/gpu/gpu.c", "engine/gpu/cuda_api.h"}),
    (r"\bnvrtc[A-Z]\w*", "NVRTC calls", {"engine/gpu/jit.c", "engine/gpu/cuda_api.h"}),
    (r"\bcublasLt\w*", "cuBLASLt calls", {"engine/gpu/gemm_lt.c", "engine/gpu/cuda_api.h"}),
    (r"\bnccl[A-Z]\w*", "NCCL calls", {"engine/gpu/nccl.c", "engine/gpu/nccl_api.h"}),
]
VENDOR_HEADER = r'#\s*include\s*[<"](?:cuda(?!_api\.h)\w*|nvrtc|cublas\w*|nccl)\.h[>"]'

KERNEL_BANS = [
    (r"\b__(?:exp|exp10|log|log2|log10|pow|sin|cos|tan|sincos|tanh)f\s*\(", "special-function intrinsic"),
    (r"\b__fdividef\s*\(|\b__saturatef\s*\(", "inexact division or clamp intrinsic"),
    (r"\b(?:expf|exp2f|exp10f|expm1f|logf|log2f|log10f|log1pf|powf|sinf|cosf|tanf|tanhf|rsqrtf|erff)\s*\(",
     "library function whose bits differ from the CPU's; use num.h"),
    (r"\w+\.approx\b|\bdiv\.full\b", "approximate PTX instruction"),
    (r"\bprintf\s*\(", "printf in a kernel"),
    (r"\b__shfl(?:_up|_down|_xor)?\s*\(", "shuffle without a mask"),
    (r"\b__shfl\w*_sync\s*\(\s*(?!(?:0xffffffffu?|FULL_WARP|WARP_ALL)\s*,)", "partial-mask shuffle"),
    (r"\batomic(?:Add|Sub|Max|Min|Exch|CAS|And|Or|Xor|Inc|Dec)\w*\s*\(", "atomic: the order of its operands is not fixed"),
    (r"\b(?:red|atom)\.(?:\w+\.)*(?:add|min|max|exch|cas|and|or|xor|inc|dec)\b", "PTX atomic or reduction"),
]
# A count of integers, a set of bits and a sum of integers do not depend on order. They are in this file, once each, in this form. So is the
# number of the next work item, used by one kernel, which no result shows.
UNORDERED_FILE, UNORDERED = "kernels_src/ptx/reduce.cuh", r"\{ (?:atomicAdd\(word, 1u\)|atomicOr\(word, bits\)|atomicAdd\(word, x\)); \}"
TAKE = r"NUM u32 reduce_take\(u32 \*word\) \{ return atomicAdd\(word, 1u\); \}"
TAKE_OWNERS = UNORDERED_FILE, "kernels_src/attn/mla_prefill.cu", "kernels_src/ranks/words.cuh"
# Arrivals at the grid barrier, counted by the CTAs of one kernel that wait for each other, do not depend on order either.
MEET_FILE, MEET = "kernels_src/ptx/ptx.cuh", r'asm volatile\("atom\.add\.acq_rel\.gpu\.global\.u32 %0, \[%1\], %2;"'
MEET_OWNERS = MEET_FILE, "kernels_src/attn/split/layout.cuh"
# The approximation from which an exact quotient starts. It is in this file, in this form.
START_FILE, START = "kernels_src/ptx/ptx.cuh", r"rcp\.approx\.ftz\.f32 %0, %1;"

GETENV_OWNERS = r"engine/(?:main|(?:common|cli)/\w+)\.c"
ALLOCATION = r"(?<![\w.>])(?:malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|strdup|strndup|free)\s*\("
# Files that run after start-up: they own no memory except what the arenas gave them.
RUN_TIME_FILES = (r"engine/(?:exec/(?:exec|watch|backend_cpu|backend_gpu|block_table|gather)|plan/guarantee|gpu/op_maps|ops/\w+|"
                  r"constrain/masks|requests/(?:request|schedule|schedule_pages|step_build|pages)|"
                  r"text/(?:stop_text|detokenizer)|cpu/(?!pool\b)\w+|mma/\w+)\.c")

FILE_LINES = {".c": 800, ".cpp": 800, ".cu": 800, ".py": 800, ".sh": 200, ".h": 250, ".cuh": 250}
PUBLIC_HEADER, PUBLIC_HEADER_LINES = "engine/verbatim.h", 400  # one header shows users everything
FUNCTION_LINES, KERNEL_LINES, LINE_COLUMNS, COMMENT_LINES, FOLDER_FILES = 70, 200, 140, 15, 45

BANNED_WORDS = [(r"\bTODO\b|\bFIXME\b|\bXXX\b|\bHACK\b", "unfinished work"), (r"(?i)\bfor now\b", "provisional wording")]
HISTORY = r"(?i)\btried and lost\b|\blost:|\bused to be\b"  # belongs in tools/bench/history/
BANNED_PATHS = r"(?<![\w.])/(home|root|Users)/\w"

TOP_LEVEL = set("""build.ninja configure.py engine kernels_src planner tests tools .ci .gitignore LICENSE NOTICE BENCHMARKS.md
EVALUATION.md LIMITS.md NUMERICS.md PLAN_FORMAT.md README.md RECEIPTS.md SERVING.md STYLE.md""".split())
NOT_OURS = {".git", "build", "__pycache__"}

# === The tree ===============================================================================================================

COMMENT = r"//[^\n]*|/\*.*?\*/"
LITERAL = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


class Tree:
    """The files of a working tree, with and without the parts that are not code."""

    def __init__(self, root, builddir):
        self.root, self.builddir = root, builddir
        self.paths = sorted(self.known_to_git() or self.walk())
        self.texts, self.codes = {}, {}

    def known_to_git(self):
        """Tracked and new files, without ignored ones; empty without git."""
        if not os.path.exists(os.path.join(self.root, ".git")):
            return []
        try:
            output = subprocess.run(["git", "-C", self.root, "ls-files", "-coz", "--exclude-standard"], capture_output=True,
                                    text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return []
        return {path for path in output.split("\0") if path and self.exists(path)}

    def walk(self):
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if name not in NOT_OURS]
            for name in files:
                if not name.endswith(".pyc"):
                    yield os.path.relpath(os.path.join(folder, name), self.root)

    def matching(self, pattern):
        return [path for path in self.paths if re.fullmatch(pattern, path)]

    def text(self, path):
        if path not in self.texts:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                self.texts[path] = file.read()
        return self.texts[path]

    def exists(self, path):
        return os.path.exists(os.path.join(self.root, path))

    def without_comments(self, path):
        if path not in self.codes:
            keep = lambda m: m.group(0) if m.group(0)[0] in "\"'" else blank(m)
            self.codes[path] = re.sub(LITERAL + "|" + COMMENT, keep, self.text(path), flags=re.S)
        return self.codes[path]

    def bare_code(self, path):
        """Without comments, literals and preprocessor lines; every line keeps its number."""
        code = re.sub(LITERAL, blank, self.without_comments(path))
        return re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", blank, code, flags=re.M)

    def configure(self):
        """The tree's own configure.py as a module; it has the source lists."""
        spec = importlib.util.spec_from_file_location("configure_of_tree", os.path.join(self.root, "configure.py"))
        module = importlib.util.module_from_spec(spec)
        sys.dont_write_bytecode = True
        spec.loader.exec_module(module)
        return module


HOST = r"(?:engine|planner)/.*\.[ch]"
C_FILES = r"(?:engine|planner|tests|tools)/.*\.(?:[ch]|cpp|cuh)"
KERNEL_FILES = r"kernels_src/.*\.(?:cu|cuh|h)"
CODE = r".*\.(?:c|cpp|h|cu|cuh|def|py|sh)|\.ci/run"
RULES = []


def rule(function):
    RULES.append(function)
    return function


def find(pattern, code, path, message):
    for match in re.finditer(pattern, code):
        yield path, code.count("\n", 0, match.start()) + 1, "%s (%s)" % (message, match.group(0).strip())


# === Layers and owners ======================================================================================================


def layer_of(path):
    """The folder of engine/, "kernels_src" or "main.c" and "verbatim.c" that a file belongs to."""
    folder = re.sub(r"^engine/?", "", os.path.dirname(path))
    return folder.split("/")[0] if folder.startswith("kernels_src") else folder or os.path.basename(path)


def resolve(tree, path, name):
    """The file that an include names: relative to the root, engine/, planner/ or kernels_src/."""
    for folder in ("", "engine", "planner", "kernels_src"):
        candidate = os.path.normpath(os.path.join(folder, name))
        if tree.exists(candidate):
            return candidate
    return None


def include_error(path, target):
    """What is wrong with path including target, or None."""
    in_planner, target_in_planner = path.startswith("planner/"), target.startswith("planner/")
    if in_planner:
        allowed = target_in_planner or re.fullmatch(PLANNER_SEES, target)
        return None if allowed else "includes %s, which planner/ does not see" % target
    layer, target_layer = layer_of(path), layer_of(target)
    if layer not in LAYERS and path != "engine/verbatim.h":
        return "%s is not in a folder of the layer table of tools/tidy.py" % path
    if target_in_planner:  # only the program drives the planner; the engine uses its checker and nothing else
        allowed = layer in SEES_PLANNER or (path, target) == CHECKER
        return None if allowed else "includes %s, which belongs to the planner" % target
    if target == "engine/verbatim.h":
        return None
    if target_layer not in LAYERS:
        return "includes %s, which is not in the layer table" % target
    if layer in PROGRAM and re.fullmatch(BEHIND_THE_HEADER, target):
        return "includes %s; a program sees the engine through verbatim.h alone" % target
    if path == "engine/verbatim.h" or LAYERS.index(target_layer) > LAYERS.index(layer):
        return "includes %s, which is not in a lower layer" % target
    return None


@rule
def layers(tree):
    for path in tree.matching(HOST):
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', tree.without_comments(path), re.M):
            line = tree.without_comments(path).count("\n", 0, match.start()) + 1
            target = resolve(tree, path, match.group(1))
            message = include_error(path, target) if target else "includes %s, which is not in the tree" % match.group(1)
            if message:
                yield path, line, message


@rule
def vendor_calls(tree):
    for path in tree.matching(HOST):
        code = tree.without_comments(path)
        yield from find(VENDOR_HEADER, code, path, "vendor header; declare what is needed in our own")
        for pattern, name, owners in VENDOR_CALLS:
            if path not in owners:
                yield from find(pattern, code, path, "%s belong to %s" % (name, " and ".join(sorted(owners))))


@rule
def environment(tree):
    for path in tree.matching(HOST):
        if not re.fullmatch(GETENV_OWNERS, path):
            yield from find(r"\b(?:secure_)?getenv\b", tree.bare_code(path), path, "only the command line reads the environment")


@rule
def allocation(tree):
    for path in tree.matching(RUN_TIME_FILES):
        yield from find(ALLOCATION, tree.bare_code(path), path, "this file runs after start-up and allocates nothing")


@rule
def kernel_bans(tree):
    for path in tree.matching(KERNEL_FILES):
        code = tree.without_comments(path)
        if path == UNORDERED_FILE:
            for parameters in r"u32 \*word", r"u32 \*word, u32 bits", r"u64 \*word, u64 x":
                code = re.sub(r"(?<=\(%s\) )%s" % (parameters, UNORDERED), blank, code)
            code = re.sub(TAKE, blank, code)
        if path not in TAKE_OWNERS:
            yield from find(r"\breduce_take\b", code, path, "reduce_take: numbers are taken in mla_prefill.cu and ranks/words.cuh only")
        if path == MEET_FILE:
            code = re.sub(MEET, blank, code, count=1)
        if path not in MEET_OWNERS:
            yield from find(r"\bptx_meet\b", code, path, "ptx_meet: blocks wait for each other in attn/split/form.cuh only")
        if path == START_FILE:
            code = re.sub(START, blank, code)
        for pattern, message in KERNEL_BANS:
            yield from find(pattern, code, path, message)


# === Sizes and words ========================================================================================================


@rule
def sizes(tree):
    for path in tree.matching(CODE + r"|.*\.md"):
        lines = tree.text(path).split("\n")
        limit = PUBLIC_HEADER_LINES if path == PUBLIC_HEADER else FILE_LINES.get(os.path.splitext(path)[1])
        if limit and len(lines) - 1 > limit:
            yield path, limit + 1, "file has %d lines, at most %d" % (len(lines) - 1, limit)
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_COLUMNS:
                yield path, number, "line has %d columns, at most %d" % (len(line), LINE_COLUMNS)
            if line != line.rstrip() or "\t" in line:
                yield path, number, "tab or space at the end of the line"


def functions(code):
    """(name, is_kernel, first line, last line) of every function of C or CUDA code without literals and preprocessor."""
    stack, start, first = [], 0, 0
    for match in re.finditer(r"[{};]", code):
        inside = any(kind != "scope" for kind in stack)
        if match.group(0) == "{":
            item = code[start:match.start()]
            kind = "block"
            if not inside:
                head = item.rstrip()
                is_scope = ")" not in head and re.search(r"\bnamespace\b|\bextern\s*$", head)
                kind = "scope" if is_scope else "function" if head.endswith(")") else "block"
                first = start + len(item) - len(item.lstrip())
            stack.append(kind)
            if kind == "scope":
                start = match.end()
        elif match.group(0) == "}" and stack:
            kind = stack.pop()
            if not any(k != "scope" for k in stack):
                head = code[first:match.start()]
                if kind == "function":
                    names = [n for n in re.findall(r"\b(\w+)\s*\(", head.split("{")[0]) if not n.startswith("__")]
                    yield (names or ["?"])[0], "__global__" in head, code.count("\n", 0, first) + 1, \
                        code.count("\n", 0, match.start()) + 1
                start = match.end()
        elif match.group(0) == ";" and not inside:
            start = match.end()


@rule
def function_sizes(tree):
    for path in tree.matching(C_FILES) + tree.matching(KERNEL_FILES):
        for name, is_kernel, first, last in functions(tree.bare_code(path)):
            limit = KERNEL_LINES if is_kernel else FUNCTION_LINES
            if last - first + 1 > limit:
                yield path, first, "%s has %d lines, at most %d" % (name, last - first + 1, limit)


@rule
def words(tree):
    for path in tree.matching(CODE) + tree.matching(r"[^/]*\.md|(?:engine|planner|kernels_src|tools)/.*\.md"):
        if path in ("tools/tidy.py", "tools/tidy_cases.py"):  # they must spell out what they forbid
            continue
        for pattern, message in BANNED_WORDS + [(BANNED_PATHS, "a path of one machine")]:
            yield from find(pattern, tree.text(path), path, message)


@rule
def opening_comment(tree):
    for path in tree.matching(C_FILES) + tree.matching(r"kernels_src/.*\.(?:cu|cuh|h|def)"):
        if not re.match(r"/\* (?:\S*/)?%s\b" % re.escape(os.path.basename(path)), tree.text(path)):
            yield path, 1, "does not open with a comment that names the file and says what it owns"
        elif tree.text(path).split("*/")[0].count("\n") >= COMMENT_LINES:
            yield path, COMMENT_LINES + 1, "the opening comment has more than %d lines" % COMMENT_LINES


@rule
def history(tree):
    for path in tree.matching(C_FILES) + tree.matching(KERNEL_FILES):
        keep = lambda m: blank(m) if m.group(0)[0] in "\"'" else m.group(0)
        comments = re.sub(LITERAL + "|" + COMMENT, keep, tree.text(path), flags=re.S)
        yield from find(HISTORY, comments, path, "history; it belongs in tools/bench/history/")


@rule
def folders(tree):
    """Each folder of engine/ and kernels_src/ has a README.md and few files, whose names do not repeat the folder's."""
    inside = {}
    for path in tree.matching(r"(?:engine|kernels_src)/.*"):
        inside.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    for folder, names in sorted(inside.items()):
        if "README.md" not in names and folder.count("/") <= (2 if folder.startswith("engine/") else 1):
            yield folder + "/README.md", 1, "missing: what the folder owns, what it must not know, what to read first"
        if len(names) > FOLDER_FILES:
            yield folder, 1, "folder has %d files, at most %d" % (len(names), FOLDER_FILES)
        for name in names:
            if folder.startswith("engine/") and name.startswith(os.path.basename(folder) + "_"):
                yield folder + "/" + name, 1, "the name repeats its folder's"


# === Completeness ===========================================================================================================


@rule
def kernel_table(tree):
    table = "kernels_src/kernels.def"
    if not tree.exists(table):
        yield table, 1, "missing"
        return
    headings = "\n".join(re.findall(r"^#+ .*$", tree.text("NUMERICS.md"), re.M)) if tree.exists("NUMERICS.md") else ""
    code = tree.without_comments(table)
    for match in re.finditer(r"\bKERNEL\((\w+)", code):
        stem, line = match.group(1), code.count("\n", 0, match.start()) + 1
        for path in ("kernels_src/*/%s.cu", "engine/cpu/%s.c", "engine/ops/%s.c", "engine/self_check/%s.c", "planner/checks/%s.c",
                     "tests/kernel/test_%s.c"):
            if not tree.matching((path % stem).replace("*", r"\w+")):
                yield table, line, "kernel %s lacks %s" % (stem, path % stem)
        if "`%s`" % stem not in headings:
            yield table, line, "kernel %s has no section `%s` in NUMERICS.md" % (stem, stem)


@rule
def source_lists(tree):
    old = os.getcwd()
    os.chdir(tree.root)  # the lists name the contents of the folders
    try:
        listed = tree.configure().all_sources()
    finally:
        os.chdir(old)
    for path in tree.matching(r".*\.c(?:pp)?"):
        if path not in listed:
            yield path, 1, "is not built: configure.py does not find it"


@rule
def top_level(tree):
    for name in sorted({path.split("/")[0] for path in tree.paths}):
        if name not in TOP_LEVEL:
            yield name, 1, "is not an allowed entry of the top level (table in tools/tidy.py)"


def symbol_prefixes(path):
    """The allowed starts of an external symbol: its file's stem, or its folder's name and the stem."""
    stem, layer = os.path.splitext(os.path.basename(path))[0], layer_of(path)
    if path.startswith("engine/cpu/"):
        return ["cpu", stem]
    if path.startswith("engine/mma/"):
        return [re.sub("_(?:avx2|avx512|neon|portable)$", "", stem)]
    if path.startswith("planner/checks/"):
        return [stem, "checks_" + stem]
    if layer in LAYERS and stem not in ("verbatim", "main"):
        prefix = FOLDER_PREFIXES.get(layer, layer)
        return [stem, "%s_%s" % (prefix, stem)] + [prefix] * (stem == os.path.basename(layer))
    return [stem]


@rule
def symbols(tree):
    """Skips objects that are missing or older than their source: the tests run after a build."""
    for path in tree.matching(r"(?:engine|planner)/.*\.c"):
        built = os.path.join(tree.root, tree.builddir, "obj", path[:-2] + ".o")
        if not os.path.exists(built) or os.path.getmtime(built) < os.path.getmtime(os.path.join(tree.root, path)):
            continue
        output = subprocess.run(["nm", "-g", "--defined-only", built], capture_output=True, text=True, check=True).stdout
        for symbol in [line.split()[-1] for line in output.splitlines() if line.strip()]:
            if not any(symbol == p or symbol.startswith(p + "_") for p in symbol_prefixes(path)):
                yield path, 1, "external symbol %s does not start with %s_" % (symbol, symbol_prefixes(path)[0])


# === Running ================================================================================================================


def breaches(root, builddir="build"):
    tree = Tree(root, builddir)
    return sorted({"%s:%d: %s" % found for check in RULES for found in check(tree)})


def self_test():
    spec = importlib.util.spec_from_file_location("tidy_cases", os.path.join(os.path.dirname(__file__), "tidy_cases.py"))
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    failures = 0
    for name, changes, expected in cases.CASES:
        with tempfile.TemporaryDirectory() as root:
            cases.write_tree(root, changes)
            found = breaches(root)
        good = len(found) == 1 and re.search(expected, found[0]) if expected else not found
        failures += not good
        print("%s %s" % ("ok  " if good else "FAIL", name))
        if not good:
            print("  expected: %s\n  found: %s" % (expected or "nothing", found or "nothing"))
    unplanted = {check.__name__ for check in RULES} - {name.split(":")[0] for name, _, _ in cases.CASES}
    if unplanted:
        print("FAIL rules without a planted breach: " + ", ".join(sorted(unplanted)))
    print("%d cases, %d failed" % (len(cases.CASES), failures))
    return 1 if failures or unplanted else 0


def main():
    parser = argparse.ArgumentParser(description="Checks the house rules.")
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--builddir", default="build")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    found = breaches(args.root, args.builddir)
    for message in found:
        print(message)
    return 1 if found else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())

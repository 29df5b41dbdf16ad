"""Planted breaches for tidy.py --self-test.

TREE is a small tree without a breach. A case changes it and names what must be reported: (rule: what, {path: new text or a
function of the old text, None to remove}, pattern of the one expected message, or None for no message).
"""
import os
import shutil
import subprocess

CONFIGURE = '''
import glob
def all_sources():
    folders = ("engine", "planner", "tests/kernel")
    return [path for folder in folders for path in glob.glob(folder + "/**/*.c", recursive=True)]
'''
TREE = {
    "configure.py": CONFIGURE,
    "README.md": "text\n",
    "NUMERICS.md": "# Numerics\n## 1. `scale`\n",
    "engine/base/base.h": "/* base.h - base. */\n",
    "engine/base/fail.c": "/* fail.c - errors. */\n#include \"base/base.h\"\nint fail_count;\n",
    "engine/gpu/gpu.h": "/* gpu.h - the GPU. */\n#include \"base/base.h\"\n",
    "engine/gpu/gpu.c": "/* gpu.c - the GPU. */\n#include \"gpu/gpu.h\"\nvoid gpu_open(void) { cuInit(0); }\n",
    "engine/exec/exec.h": "/* exec.h - the loop. */\n",
    "engine/exec/exec.c": "/* exec.c - the loop. */\n#include \"exec/exec.h\"\n#include \"gpu/gpu.h\"\nvoid exec_run(void) {}\n",
    "engine/main.c": "/* main.c - the program. */\n#include \"planner/place.h\"\nint main(void) { return !getenv(\"X\"); }\n",
    "engine/cpu/scale.h": "/* scale.h - shared by the folder. */\n",
    "engine/cpu/scale.c": "/* scale.c - scale. */\n#include \"cpu/scale.h\"\n#include \"kernels_src/abi.h\"\n",
    "engine/ops/scale.c": "/* scale.c - scale. */\n#include \"kernels_src/abi.h\"\n",
    "engine/self_check/scale.c": "/* self_check/scale.c - scale. */\n#include \"kernels_src/abi.h\"\n",
    "planner/checks/scale.c": "/* scale.c - scale. */\n#include \"kernels_src/abi.h\"\n",
    "planner/place.h": "/* place.h - placement. */\n",
    "planner/place.c": "/* place.c - placement. */\n#include \"place.h\"\n#include \"engine/base/base.h\"\n",
    **{folder + "/README.md": "text\n" for folder in ("engine", "engine/base", "engine/gpu", "engine/exec", "engine/cpu", "engine/ops",
                                                       "engine/self_check", "kernels_src", "kernels_src/rows")},
    "kernels_src/abi.h": "/* abi.h - structs. */\n",
    "kernels_src/kernels.def": "/* kernels.def - every op: KERNEL(stem). */\nKERNEL(scale)\n",
    "kernels_src/rows/scale.cu": "/* scale.cu - scale. */\n#include \"abi.h\"\nextern \"C\" __global__ void scale(float *x) {\n"
                            "  x[0] = __shfl_xor_sync(0xffffffffu, x[0], 1); /* not __expf(x) */\n}\n",
    "tests/kernel/test_scale.c": "/* test_scale.c - scale. */\nint main(void) { return 0; }\n",
}


def append(text):
    return lambda old: old + text


def long_function(lines, head="static void f(void) {\n"):
    return append(head + "  ;\n" * (lines - 2) + "}\n")


def write_tree(root, changes):
    tree = dict(TREE)
    objects = {}
    for path, change in changes.items():
        if path.endswith(".o"):
            objects[path] = change
        else:
            tree[path] = change(tree.get(path, "")) if callable(change) else change
    for path, text in tree.items():
        if text is None:
            continue
        os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)
    for path, source in objects.items():
        write_object(os.path.join(root, path), source)


def write_object(path, source):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    compiler = shutil.which("cc") or shutil.which("clang")
    subprocess.run([compiler, "-c", "-x", "c", "-", "-o", path], input=source, text=True, check=True)


EXEC, KERNEL, SCALE_CPU = "engine/exec/exec.c", "kernels_src/rows/scale.cu", "engine/cpu/scale.c"


CHECK = {"planner/checks/check.h": "/* check.h - the checker. */\n"}


def in_verbatim(header):
    return {"engine/verbatim.c": '/* verbatim.c - the engine. */\n#include "planner/%s.h"\n' % header, **CHECK}


def in_kernel(line):
    return {KERNEL: append("__device__ float f(float x) { return %s; }\n" % line)}


def in_reduce(line):
    return {"kernels_src/ptx/README.md": "text\n", "kernels_src/ptx/reduce.cuh": "/* reduce.cuh - sums. */\n%s\n" % line}


CASES = [
    ("clean tree", {}, None),
    ("layers: upward include", {"engine/gpu/gpu.c": append('#include "exec/exec.h"\n')}, r"engine/gpu/gpu.c:4: .*lower layer"),
    ("layers: same layer", {"engine/gpu/gpu.c": append('#include "gpu/jit.h"\n'), "engine/gpu/jit.h": "/* jit.h - j. */\n"},
     None),
    ("layers: without the folder", {"engine/gpu/gpu.c": append('#include "jit.h"\n'), "engine/gpu/jit.h": "/* jit.h - j. */\n"},
     r"gpu.c:4: .*not in the tree"),
    ("layers: same family", {EXEC: append('#include "exec/state.h"\n'),
                             "engine/exec/state.h": '/* state.h - s. */\n#include "exec/exec.h"\n'}, None),
    ("layers: one header lower than its .c", {
        "engine/verbatim.h": "/* verbatim.h - v. */\n",
        "engine/verbatim.c": '/* verbatim.c - v. */\n#include "verbatim.h"\n#include "exec/exec.h"\n',
        EXEC: append('#include "verbatim.h"\n')}, None),
    ("layers: unknown file", {"engine/odd.h": '/* odd.h - odd. */\n#include "base/base.h"\n'}, r"odd.h:2: .*layer table"),
    ("layers: missing header", {EXEC: append('#include "nowhere.h"\n')}, r"not in the tree"),
    ("layers: planner sees the engine", {"planner/place.c": append('#include "engine/gpu/gpu.h"\n')}, r"place.c:4: .*does not see"),
    ("layers: cpu op sees exec", {SCALE_CPU: append('#include "engine/exec/exec.h"\n')}, r"scale.c:4: .*lower layer"),
    ("layers: engine sees the planner", {EXEC: append('#include "planner/place.h"\n')}, r"exec.c:5: .*the planner"),
    ("layers: verbatim.c has the checker", in_verbatim("checks/check"), None),
    ("layers: verbatim.c sees more of the planner", in_verbatim("place"), r"verbatim.c:2: .*the planner"),
    ("layers: another file sees the checker", {EXEC: append('#include "planner/checks/check.h"\n'), **CHECK}, r"exec.c:5: .*the planner"),
    ("layers: the program sees into the engine", {"engine/main.c": append('#include "exec/exec.h"\n')}, r"main.c:4: .*verbatim.h alone"),
    ("layers: include in a comment", {EXEC: append('/*\n#include "nowhere.h"\n*/\n')}, None),
    ("vendor_calls: driver", {EXEC: append("void exec_x(void) { cuInit(0); }\n")}, r"exec.c:5: driver calls"),
    ("vendor_calls: library name in a text", {EXEC: append('static const char *s = "cuBLASLt";\n')}, None),
    ("vendor_calls: NVRTC", {EXEC: append("static int nvrtcVersion;\n")}, r"exec.c:5: NVRTC"),
    ("vendor_calls: cuBLASLt", {"engine/gpu/gpu.c": append("static int cublasLtCreate;\n")}, r"gpu.c:4: cuBLASLt"),
    ("vendor_calls: header", {"planner/place.c": append("#include <cuda.h>\n")}, r"place.c:4: vendor header"),
    ("environment: engine", {EXEC: append('static char *s(void) { return getenv("X"); }\n')}, r"exec.c:5: .*environment"),
    ("allocation: at run time", {EXEC: append("static void *s(void) { return malloc(1); }\n")}, r"exec.c:5: .*allocates"),
    ("allocation: of another thing", {EXEC: append("static void s(void) { a.free(); pool_malloc(1); }\n")}, None),
    ("kernel_bans: __expf", in_kernel("__expf(x)"), r"scale.cu:6: special"),
    ("kernel_bans: __sinf", in_kernel("__sinf(x)"), r"special"),
    ("kernel_bans: __fdividef", in_kernel("__fdividef(x, x)"), r"inexact"),
    ("kernel_bans: expf", in_kernel("expf(x)"), r"library function"),
    ("kernel_bans: rsqrtf", in_kernel("rsqrtf(x)"), r"library function"),
    ("kernel_bans: ex2.approx", in_kernel('asm_("ex2.approx.f32")'), r"approximate"),
    ("kernel_bans: rcp.approx", in_kernel('asm_("rcp.approx.ftz.f32")'), r"approximate"),
    ("kernel_bans: tanh.approx", in_kernel('asm_("tanh.approx.f32")'), r"approximate"),
    ("kernel_bans: printf", in_kernel('printf("x")'), r"printf"),
    ("kernel_bans: partial mask", in_kernel("__shfl_xor_sync(0xffffu, x, 1)"), r"partial-mask"),
    ("kernel_bans: old shuffle", in_kernel("__shfl(x, 1)"), r"without a mask"),
    ("kernel_bans: atomicAdd", in_kernel("atomicAdd(&x, x)"), r"atomic"),
    ("kernel_bans: atomicMax", in_kernel("atomicMax_block(&x, x)"), r"atomic"),
    ("kernel_bans: a count of integers", in_reduce("NUM void reduce_count(u32 *word) { atomicAdd(word, 1u); }"), None),
    ("kernel_bans: a set of bits", in_reduce("NUM void reduce_mark(u32 *word, u32 bits) { atomicOr(word, bits); }"), None),
    ("kernel_bans: a sum of floats", in_reduce("NUM void reduce_add(f32 *word) { atomicAdd(word, 1u); }"), r"reduce.cuh:2: atomic"),
    ("kernel_bans: another sum", in_reduce("NUM void reduce_add(u32 *word, u32 x) { atomicAdd(word, x); }"), r"reduce.cuh:2: atomic"),
    ("kernel_bans: a share of work", in_reduce("NUM u32 reduce_take(u32 *word) { return atomicAdd(word, 1u); }"), None),
    ("kernel_bans: another atomic", in_reduce("NUM u32 reduce_next(u32 *word) { return atomicAdd(word, 1u); }"), r"reduce.cuh:2: atomic"),
    ("kernel_bans: a share of work elsewhere", in_kernel("x = reduce_take(&n)"), r"reduce_take"),
    ("kernel_bans: a count elsewhere", {KERNEL: append("NUM void reduce_count(u32 *word) { atomicAdd(word, 1u); }\n")},
     r"scale.cu:6: atomic"),
    ("kernel_bans: red", in_kernel('asm_("red.global.add.f32")'), r"PTX atomic"),
    ("sizes: long file", {EXEC: append("\n" * 797)}, r"exec.c:801: file has 801"),
    ("sizes: longest file", {EXEC: append("\n" * 796)}, None),
    ("sizes: long header", {"engine/exec/exec.h": append("\n" * 250)}, r"exec.h:251: file has 251"),
    ("sizes: long line", {EXEC: append("/* %s */\n" % ("x" * 140))}, r"exec.c:5: line has 146"),
    ("sizes: tab", {EXEC: append("\tint exec_x;\n")}, r"exec.c:5: tab"),
    ("sizes: trailing space", {EXEC: append("int exec_x; \n")}, r"exec.c:5: tab or space"),
    ("function_sizes: longest", {EXEC: long_function(70)}, None),
    ("function_sizes: too long", {EXEC: long_function(71)}, r"exec.c:5: f has 71 lines"),
    ("function_sizes: two-line head", {EXEC: long_function(71, "static void f(\n  int x) {\n")}, r"f has 72 lines"),
    ("function_sizes: long table", {EXEC: long_function(90, "static int t[] = {\n")}, None),
    ("function_sizes: kernel", {KERNEL: long_function(200, 'extern "C" __global__ void k(int x) {\n')}, None),
    ("function_sizes: long kernel", {KERNEL: long_function(201, 'extern "C" __global__ void k(int x) {\n')}, r"k has 201"),
    ("function_sizes: in a namespace", {KERNEL: append("namespace {\nvoid g() {\n" + "  ;\n" * 70 + "}\n}\n")}, r"g has 72"),
    ("words: TODO", {EXEC: append("/* TODO */\n")}, r"exec.c:5: unfinished"),
    ("words: for now", {"README.md": append("It works for now.\n")}, r"README.md:2: provisional"),
    ("words: own path", {"README.md": append("See /ho" + "me/me/notes.\n")}, r"README.md:2: a path"),
    ("words: other path", {"README.md": append("See /usr/home/x and tests/root/x.\n")}, None),
    ("opening_comment: none", {"engine/exec/exec.h": "int exec_x;\n"}, r"exec.h:1: does not open"),
    ("opening_comment: wrong name", {EXEC: lambda old: old.replace("exec.c", "loop.c")}, r"exec.c:1: does not open"),
    ("opening_comment: longest", {EXEC: lambda old: old.replace(" - the loop.", " - the loop." + "\n * x" * 14)}, None),
    ("opening_comment: too long", {EXEC: lambda old: old.replace(" - the loop.", " - the loop." + "\n * x" * 15)},
     r"exec.c:16: the opening"),
    ("history: in a kernel", {KERNEL: append("/* Lost: two warps. */\n")}, r"scale.cu:6: history"),
    ("history: in prose", {"README.md": append("What was tried and lost: see there.\n")}, None),
    ("folders: no README", {"engine/gpu/README.md": None}, r"engine/gpu/README.md:1: missing"),
    ("folders: many files", {"engine/gpu/x%d.txt" % i: "x\n" for i in range(43)}, r"engine/gpu:1: folder has 46"),
    ("folders: a repeated name", {"engine/gpu/gpu_x.h": "/* gpu_x.h - x. */\n"}, r"gpu_x.h:1: the name repeats"),
    ("sizes: long line of Markdown", {"README.md": append("x" * 141 + "\n")}, r"README.md:2: line has 141"),
    ("kernel_table: no kernel", {KERNEL: None}, r"lacks kernels_src/./scale.cu"),
    ("kernel_table: no CPU twin", {SCALE_CPU: None},
     r"lacks engine/cpu/scale.c"),
    ("kernel_table: no description", {"engine/ops/scale.c": None}, r"lacks engine/ops/scale.c"),
    ("kernel_table: no probes", {"engine/self_check/scale.c": None}, r"lacks engine/self_check/scale.c"),
    ("kernel_table: no reading of the checker", {"planner/checks/scale.c": None}, r"lacks planner/checks/scale.c"),
    ("kernel_table: no test", {"tests/kernel/test_scale.c": None}, r"lacks tests/kernel"),
    ("kernel_table: no section", {"NUMERICS.md": "# Numerics\n`scale` is in the text only.\n"}, r"no section `scale`"),
    ("source_lists: not found", {"tests/odd/test_x.c": "/* test_x.c - x. */\n"}, r"tests/odd/test_x.c:1: is not built"),
    ("top_level: stray file", {"notes.txt": "x\n"}, r"notes.txt:1: is not an allowed"),
    ("symbols: good", {"build/obj/engine/exec/exec.o": "void exec_run(void) {}\nstatic int x;\nint exec;\n"}, None),
    ("symbols: bad", {"build/obj/engine/exec/exec.o": "void run(void) {}\n"}, r"exec.c:1: external symbol run "),
    ("symbols: bad CPU op", {"build/obj/engine/cpu/scale.o": "void stray(void) {}\n"}, r"scale.c:1: external symbol stray "),
    ("symbols: CPU op", {"build/obj/engine/cpu/scale.o": "void cpu_scale(void) {}\nvoid scale_core_avx2(void) {}\n"}, None),
    ("symbols: description", {"build/obj/engine/ops/scale.o": "const int ops_scale;\n",
                              "build/obj/planner/checks/scale.o": "const int checks_scale;\n"}, None),
    ("symbols: bad reading", {"build/obj/planner/checks/scale.o": "const int ops_scale;\n"}, r"external symbol ops_scale "),
    ("symbols: main", {"build/obj/engine/main.o": "int main(void) { return 0; }\n"}, None),
]

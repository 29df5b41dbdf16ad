#!/usr/bin/env python3
"""Compiles every kernel with NVRTC for the SPEC values that plans use: kernelc.py [--nvrtc LIB] [--cubins DIR] [--each-value] [STEM...]

No GPU is needed. Prints registers, static and dynamic shared memory and local memory of each variant. Fails on a compile error, on any
warning (such as a serialised wgmma), on local memory (stack or spills), on more shared memory than a block may have, on a register touched
while a wgmma uses it (wgmma_check.py), and, with --cubins and nvdisasm on the PATH, on a tensor-core kernel without HGMMA (QGMMA for e4m3).
The options are those of engine/gpu/jit.c. --cubins stores the machine code: compare it before and after a change that should not alter it.
--each-value takes a few variants in which each value of each SPEC constant occurs: a third of the time, for the suite.
"""
import argparse
import ctypes
import glob
import os
import re
import struct
import subprocess
import sys
import tomllib

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
import wgmma_check  # noqa: E402

OPTIONS = ["--gpu-architecture=sm_90a", "--std=c++17", "--no-source-include", "--fmad=false", "--ftz=false", "--prec-div=true",
           "--prec-sqrt=true"]
SHARED_BYTES_MAX = 232448
STATIC_SHARED_BYTES_MAX = 49152
RESERVED_SHARED_BYTES = 1024  # reserved by the system, included in every section of shared memory, in addition to the block's 227 KiB
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "kernels_src")
with open(os.path.join(ROOT, "tests/emulator/forms.toml"), "rb") as forms:
    FORMS = tomllib.load(forms)  # a kernel with neither a rule of variants() nor forms has blocks of 256 threads

# gemm and gemm_bias, large M: weight rows, most tokens, stages, blocks of 64 k in a stage, CTAs of a cluster, CTAs with the same weights
TILES = [(64, 32, 8, 2, 2, 2), (64, 48, 15, 1, 2, 2), (64, 64, 12, 1, 1, 1), (64, 64, 12, 1, 2, 2), (64, 96, 9, 1, 1, 1),
         (64, 128, 8, 1, 1, 1), (64, 128, 8, 1, 2, 2), (128, 96, 7, 1, 2, 2), (128, 128, 6, 1, 1, 1), (64, 256, 5, 1, 1, 1),
         (128, 256, 4, 1, 1, 1)]
# the same for fp8_gemm and fp8_moe_gemm
FP8_TILES = [(64, 64, 13, 1, 1, 1), (64, 64, 13, 1, 2, 2), (128, 64, 8, 1, 1, 1), (64, 128, 8, 1, 1, 1), (64, 128, 8, 1, 2, 2),
             (128, 128, 6, 1, 1, 1), (128, 128, 6, 1, 2, 2), (128, 128, 6, 1, 2, 1), (128, 256, 4, 1, 1, 1), (128, 256, 4, 1, 2, 1),
             (128, 256, 4, 1, 2, 2)]
FP8_EXPERTS = [(128, 64, 8, 1, 1, 0), (128, 64, 8, 1, 2, 0), (128, 128, 6, 1, 1, 0), (128, 128, 6, 1, 2, 0), (128, 256, 4, 1, 1, 0),
               (128, 256, 4, 1, 2, 0)]
# moe_gemm
EXPERTS = [(128, 256, 4, 1, 1, 0), (128, 256, 4, 1, 2, 0), (128, 192, 5, 1, 2, 0), (128, 128, 6, 1, 2, 0)]
PRODUCTS = ["gemm", "gemm_bias", "moe_gemm", "fp8_gemm", "fp8_moe_gemm"]
TENSOR_CORE = PRODUCTS + ["mla_attn", "mla_expand", "mla_prefill", "attn", "index_score"]
# nope_dim, rope_dim, v_dim, stages of mla_prefill: the heads of the models
HEADS = [(64, 32, 64, 3), (64, 64, 64, 3), (64, 64, 128, 3), (128, 64, 128, 2), (192, 64, 256, 2)]
# head_dim, v_dim, rows of a pass, stages, pages of a stage, totals in shared memory of attn
GROUPED = [(64, 64, 128, 4, 2, 1), (80, 80, 128, 2, 2, 1), (96, 96, 128, 2, 2, 1), (112, 112, 128, 2, 2, 1),
           (160, 160, 128, 2, 1, 1), (128, 128, 128, 2, 2, 1), (128, 128, 128, 3, 2, 0),
           (128, 128, 128, 3, 1, 1), (192, 128, 128, 2, 2, 0), (256, 256, 128, 2, 1, 0), (64, 64, 64, 4, 1, 1), (80, 80, 64, 2, 1, 0),
           (96, 96, 64, 2, 1, 0), (128, 128, 64, 2, 1, 0), (192, 128, 64, 2, 1, 0), (256, 256, 64, 3, 1, 0)]


def small_m_bytes(n, rows, blocks, stages, scaled=False):
    """Dynamic shared memory of small_m.cuh or, with scales, of small_m_scaled.cuh."""
    ring_x = -(-stages * blocks * rows * 128 // 1024) * 1024
    scales = stages * blocks * (max(rows, 8) + 4) * 4 if scaled else 0
    return 2048 + ring_x + stages * blocks * n * 128 + max((n + 4) * max(rows, 8) * 4, (64 - n) * 128) + scales


def small_m_tiles(of_experts=False, scaled=False):
    """Tiles as planner/specialise.c chooses them, with 220 KiB of shared memory."""
    stages_kib = [(1, 36), (8, 28), (16, 28), (32, 28)]
    if scaled:
        stages_kib = [(1, 36), (1, 18), (8, 40), (16, 48), (32, 48)]
    if of_experts:
        stages_kib = [(1, 20), (8, 40), (16, 40), (32, 40)]
    for rows, kib in stages_kib:
        for n in range(8, 72, 8):
            blocks = max(blocks for blocks in (1, 2, 4, 8, 16) if blocks * (n + rows) * 128 <= kib << 10 or blocks == 1)
            yield n, rows, blocks, max(s for s in range(2, 64) if small_m_bytes(n, rows, blocks, s, scaled) <= 220 << 10)


def large_m_bytes(n, rows, stages):
    """Dynamic shared memory of large_m.cuh."""
    return 1024 + stages * (n + rows) * 128 + (1 if n == 64 else 2) * 8192 + 256


def fp8_variants(stem):
    """The variants of fp8_gemm and fp8_moe_gemm for large M."""
    of_experts = stem == "fp8_moe_gemm"
    return [({"THREADS": 384 if n * rows > 4096 else 256, "MAPS": 1, "TILE_N": n, "TILE_ROWS": rows, "STAGES": stages, "CLUSTER": cluster,
              "DEPTH": depth, **({"CLUSTER_ROWS": shared} if shared else {})},
             1024 + stages * ((n + rows) * 128 + rows * 4 + 16) + (2 if n * rows > 4096 else 1) * 8192 + 256 + (4104 if of_experts else 0))
            for n, rows, stages, depth, cluster, shared in (FP8_EXPERTS if of_experts else FP8_TILES)]


def variants(stem):
    """(SPEC values, dynamic shared bytes) of every variant worth checking."""
    if stem == "qkv_rope":
        return [({"THREADS": 256}, 0)] + [({"THREADS": 256, "MAPS": 1, "TILE_N": n, "TILE_ROWS": 1, "K_BLOCKS": 2, "STAGES": 2},
                                           small_m_bytes(n, 1, 2, 2)) for n in range(8, 72, 8)]
    if stem == "mla_fold":
        return [({"THREADS": 256}, 0)] + [({"THREADS": 192, "MAPS": 1, "TILE_N": n, "TILE_ROWS": 1, "K_BLOCKS": 8, "STAGES": 2},
                                           small_m_bytes(n, 1, 8, 2)) for n in range(8, 72, 8)]
    if stem == "attn_fold":
        return [({"THREADS": 64}, 26112)]
    if stem == "router":
        return [({"THREADS": threads}, 0) for threads in (128, 512)]
    if stem == "rmsnorm":
        return [({"THREADS": threads, "HELD": held}, 0)
                for threads, held in ((512, 1), (512, 2), (512, 4), (256, 4), (256, 8))]
    if stem == "rank_norm":
        return [({"THREADS": 512, "HELD": held}, 0) for held in (1, 2, 4)]
    if stem == "index_topk":
        return [({"THREADS": threads, "HELD": held, "CLUSTER": cluster}, 4 * held)
                for threads, cluster, sizes in ((512, 8, (8448, 22528)), (1024, 1, (17408, 56832))) for held in sizes]
    if stem == "mla_attn":
        sizes = [{"KV_LORA_RANK": rank, "ROPE_DIM": rope} for rank in (256, 512) for rope in (32, 64)]
        pairs = [{"THREADS": 512, "MAPS": 1, **size, "ROWS": 64, "PAIR": 2} for size in sizes]
        few = [{"THREADS": 512, "MAPS": 1, **size, "ROWS": rows} for size in sizes for rows in (8, 16, 32)]
        shared = [{**form, "SHARES": 4} for form in few]
        gathered = [{**form, "KV_FORMAT": kind, "LISTS": lists} for form in pairs + few for kind in (0, 1, 2) for lists in (0, 1)
                    if (kind or lists) and (kind != 1 or form["KV_LORA_RANK"] == 512)]
        lists = [{"MAPS": 1, "KV_LORA_RANK": 512, "ROPE_DIM": 64, "ROWS": 64, "KV_FORMAT": kind, "LISTS": 1} for kind in (0, 1, 2)]
        turns = [{"THREADS": 512 if form["KV_FORMAT"] else 384, **form, "TURNS": 1} for form in lists]
        spread = [{"THREADS": 512, **form, "SPREAD": sharers, **groups} for form in lists for sharers in (8, 16, 32)
                  for groups in ({}, {"GROUPS": 1})]
        return [(spec, SHARED_BYTES_MAX if spec["ROWS"] >= 32 else 224256) for spec in pairs + few + shared + gathered + turns + spread]
    if stem == "mla_prefill":
        return [({"THREADS": 384, "NOPE_DIM": nope, "ROPE_DIM": rope, "V_DIM": v, "STAGES": stages, "MAPS": 1},
                 2048 + 2 * 8192 * (nope // 64 + 1) + stages * (2 if v <= 128 else 1) * 8192 * (nope // 64 + 1 + v // 64))
                for nope, rope, v, stages in HEADS]
    if stem == "attn":
        return [({"THREADS": 384 if rows == 128 else 256 if kind else 160, "MAPS": 1, "HEAD_DIM": k, "V_DIM": v, "ROWS": rows,
                  "STAGES": stages, "PAGES": pages, "HELD": held, **({"KV_FORMAT": kind} if kind else {})},
                 1664 + 8192 * (rows // 64 * -(-k // 64) + stages * pages * (-(-k // 64) + -(-v // 64))) + held * rows * 4 * (v + 2))
                for kind in (0, 2) for k, v, rows, stages, pages, held in GROUPED if rows == 64 or not kind]
    if stem == "index_score":
        return [({"THREADS": 640, "MAPS": 1, "HEADS": heads, "PAGES": pages, "STAGES": 8 // pages},
                 1536 + 2 * (4 * 16384 + 2048) + 8 * 9216)
                for heads in (16, 32, 64) for pages in (1, 2)]
    if stem == "mla_expand":
        return [({"THREADS": 384, "MAPS": 1, "TILE_N": 128, "TILE_ROWS": 256, "STAGES": 4, "CLUSTER": 1, **more},
                 large_m_bytes(128, 256, 4)) for more in ({}, {"PIECES": 1})]
    if stem not in PRODUCTS:
        return [(spec, 0) for spec in FORMS.get(stem, [{"THREADS": 256}])]
    of_experts, scaled = stem.endswith("moe_gemm"), stem.startswith("fp8")
    few = [({"THREADS": 192, "MAPS": 1, "TILE_N": n, "TILE_ROWS": rows, "K_BLOCKS": blocks, "STAGES": stages},
            small_m_bytes(n, rows, blocks, stages, scaled) + (1028 if of_experts else 0))
           for n, rows, blocks, stages in small_m_tiles(of_experts, scaled)]
    if scaled:
        if not of_experts:
            few += [({**spec, "ROW_TILES": 2}, shared) for spec, shared in few if spec["TILE_N"] == 32 and spec["TILE_ROWS"] in (8, 16)]
        return few + fp8_variants(stem)
    many = [({"THREADS": 128 + 2 * n, "MAPS": 1, "TILE_N": n, "TILE_ROWS": rows, "STAGES": stages,
              "CLUSTER": cluster, "DEPTH": depth, **({"CLUSTER_ROWS": shared} if shared else {})},
             large_m_bytes(n, rows, stages * depth) + (4104 if stem == "moe_gemm" else 0))
            for n, rows, stages, depth, cluster, shared in (EXPERTS if of_experts else TILES)]
    return few + many


class Nvrtc:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def call(self, name, *args):
        return getattr(self.library, name)(*args)

    def compile(self, name, texts, spec):
        """(cubin or None, PTX, log)"""
        spec_text = "".join("#define SPEC_%s %du\n" % item for item in spec.items())
        headers = [item for item in texts.items() if not item[0].endswith(".cu")] + [("spec.cuh", spec_text)]
        count = len(headers)
        names = (ctypes.c_char_p * count)(*[header.encode() for header, _ in headers])
        bodies = (ctypes.c_char_p * count)(*[text.encode() for _, text in headers])
        program = ctypes.c_void_p()
        source = next(text for path, text in texts.items() if os.path.basename(path) == name)
        if self.call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), count, bodies, names):
            raise SystemExit("kernelc.py: nvrtcCreateProgram failed")
        options = (ctypes.c_char_p * len(OPTIONS))(*[option.encode() for option in OPTIONS])
        result = self.call("nvrtcCompileProgram", program, len(OPTIONS), options)
        log = self.text(program, "nvrtcGetProgramLog")
        cubin = None if result else self.bytes(program, "nvrtcGetCUBIN")
        ptx = "" if result else self.text(program, "nvrtcGetPTX")
        self.call("nvrtcDestroyProgram", ctypes.byref(program))
        return cubin, ptx, log

    def bytes(self, program, getter):
        size = ctypes.c_size_t()
        self.call(getter + "Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(max(size.value, 1))
        self.call(getter, program, data)
        return data.raw[:size.value]

    def text(self, program, getter):
        return self.bytes(program, getter).rstrip(b"\0").decode(errors="replace").strip()


def resources(cubin, stem):
    """(registers, local bytes, static shared bytes) of the one kernel in a cubin: ELF sections and its .nv.info records."""
    table, = struct.unpack_from("<Q", cubin, 40)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * entry_bytes) for i in range(count)]
    names_at = sections[names_index][4]
    name_of = lambda s: cubin[names_at + s[0]:cubin.index(b"\0", names_at + s[0])].decode()
    by_name = {name_of(s): s for s in sections}
    shared, info = by_name.get(".nv.shared." + stem), by_name[".nv.info"]
    registers = local = 0
    at, end = info[4], info[4] + info[5]
    while at < end:  # records: format, attribute, u16 size or value, then size bytes where format is 4
        form, attribute, size = struct.unpack_from("<BBH", cubin, at)
        if form == 4 and attribute == 0x2f:  # REGCOUNT: symbol, registers
            registers = struct.unpack_from("<I", cubin, at + 8)[0]
        if form == 4 and attribute in (0x11, 0x12, 0x23):  # FRAME_SIZE, MIN_STACK_SIZE, MAX_STACK_SIZE: symbol, bytes
            local = max(local, struct.unpack_from("<I", cubin, at + 8)[0])
        at += 4 + (size if form == 4 else 0)
    return registers, local, max(shared[5] - RESERVED_SHARED_BYTES, 0) if shared else 0


def disassemble(path, stem):
    try:
        listing = subprocess.run(["nvdisasm", path], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        return None, []
    count = len(re.findall(r"\b[HQ]GMMA", listing))
    faults = ["no HGMMA or QGMMA"] if stem in TENSOR_CORE and count == 0 else []
    faults += ["local memory access"] if re.search(r"\b(?:LDL|STL)\b", listing) else []
    special = sorted(set(re.findall(r"\bMUFU\.(?:EX2|LG2|SIN|COS|TANH)\b", listing)))
    return count, faults + ["special function " + name for name in special]


def each_value(numbered):
    """A few of the numbered variants that together have every value of every SPEC constant, in each form (set of constants); but for
    STAGES, which sizes a ring in shared memory and differs from tile to tile."""
    numbered = list(numbered)
    values = [{(*sorted(spec), *item) for item in spec.items() if item[0] != "STAGES"} for _, (spec, _) in numbered]
    wanted, kept = set().union(*values), set()
    while wanted:
        best = max(range(len(values)), key=lambda i: len(values[i] & wanted))  # the first one, of equals
        kept.add(best)
        wanted -= values[best]
    return [numbered[i] for i in sorted(kept)]


def check(nvrtc, texts, stem, choose, cubins):
    failures = 0
    for number, (spec, dynamic) in choose(enumerate(variants(stem))):
        label = "%-12s %s" % (stem, " ".join("%s=%d" % item for item in spec.items()))
        cubin, ptx, log = nvrtc.compile(stem + ".cu", texts, spec)
        if cubin is None:
            print("FAIL %s\n%s" % (label, log))
            failures += 1
            continue
        registers, local, static = resources(cubin, stem)
        faults = ([log] if log else []) + wgmma_check.hazards(ptx)
        faults += ["%d bytes of local memory" % local] if local else []
        faults += ["too much shared memory"] if static + dynamic > SHARED_BYTES_MAX or static > STATIC_SHARED_BYTES_MAX else []
        faults += ["too many registers"] if registers * spec["THREADS"] > 65536 else []
        count = None
        if cubins:
            path = os.path.join(cubins, "%s.%d.cubin" % (stem, number))
            with open(path, "wb") as file:
                file.write(cubin)
            count, found = disassemble(path, stem)
            faults += found
        print("%s %-66s %3d registers, shared %5d + %6d, local %d%s" % (
            "FAIL" if faults else "ok  ", label, registers, static, dynamic, local, "" if count is None else ", %d GMMA" % count))
        for fault in faults:
            print("     " + fault)
        failures += bool(faults)
    return failures


def find_nvrtc():
    found = sorted(glob.glob("/usr/local/cuda*/lib*/libnvrtc.so*") + glob.glob("/usr/local/cuda*/targets/*/lib/libnvrtc.so*"))
    return found[0] if found else "libnvrtc.so.13"


def main():
    parser = argparse.ArgumentParser(description="Compiles every kernel with NVRTC and checks what comes out.")
    parser.add_argument("--nvrtc", default=find_nvrtc(), help="path of libnvrtc.so")
    parser.add_argument("--cubins", help="folder for the cubins; nvdisasm inspects them if it is on PATH")
    parser.add_argument("--each-value", dest="choose", action="store_const", const=each_value, default=list,
                        help="a few variants in which each SPEC value occurs")
    parser.add_argument("stems", nargs="*", help="kernels (default: all of kernels.def)")
    args = parser.parse_args()
    with open(os.path.join(FOLDER, "kernels.def"), encoding="ascii") as file:
        stems = args.stems or re.findall(r"^KERNEL\((\w+)\)", file.read(), re.M)
    texts = {}
    for path in sorted(glob.glob(FOLDER + "/**/*", recursive=True)):
        if path.endswith((".h", ".cuh", ".cu")):
            with open(path, encoding="ascii") as file:
                texts[os.path.relpath(path, FOLDER)] = file.read()
    if args.cubins:
        os.makedirs(args.cubins, exist_ok=True)
    nvrtc = Nvrtc(args.nvrtc)
    failures = sum(check(nvrtc, texts, stem, args.choose, args.cubins) for stem in stems)
    print("%d variants failed" % failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

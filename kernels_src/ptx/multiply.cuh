/* ptx/multiply.cuh - wgmma, the tensor-core MMA of a warpgroup: m64nNk16 of bf16 and m64nNk32 of e4m3, fp32 accumulators. A part of
 * ptx.cuh.
 *
 * NUMERICS.md, "H16" and "H32", says what one of them computes. */
#ifndef VERBATIM_PTX_MULTIPLY_CUH
#define VERBATIM_PTX_MULTIPLY_CUH
#include "ptx/ptx.cuh"

/* d[64][N] += a[64][16] * b[16][N], one H16 step per element; the length of d is N / 2. Thread t of the warpgroup holds, in
 * d[4 * j + 2 * h + e], row 16 * (t / 32) + t % 32 / 4 + 8 * h, column 8 * j + 2 * (t % 4) + e.
 * ptx_multiply: b's rows are N (SWIZZLED or PLAIN). ptx_multiply_turned: a is transposed, its rows are k. */
#define PTX_D8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PTX_D12 PTX_D8 ", %8, %9, %10, %11"
#define PTX_D16 PTX_D8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PTX_D20 PTX_D16 ", %16, %17, %18, %19"
#define PTX_D24 PTX_D16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define PTX_D32 PTX_D24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_D40 PTX_D32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define PTX_D48 PTX_D40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define PTX_D56 PTX_D48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define PTX_D64 PTX_D56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_D72 PTX_D64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define PTX_D80 PTX_D72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define PTX_D88 PTX_D80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define PTX_D96 PTX_D88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define PTX_D104 PTX_D96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define PTX_D112 PTX_D104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define PTX_D120 PTX_D112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define PTX_D128 PTX_D120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define PTX_OUT4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PTX_OUT8(i) PTX_OUT4(i), PTX_OUT4(i + 4)
#define PTX_OUT16(i) PTX_OUT8(i), PTX_OUT8(i + 8)
#define PTX_OUT32(i) PTX_OUT16(i), PTX_OUT16(i + 16)
#define PTX_OUT64(i) PTX_OUT32(i), PTX_OUT32(i + 32)
#define PTX_MULTIPLY(name, n, registers, turned, a_at, b_at, ...)                                                              \
  NUM void name(f32 (&d)[n / 2], u64 a, u64 b) {                                                                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" registers "}, " a_at ", " b_at                   \
                 ", 1, 1, 1, " turned ";" : __VA_ARGS__ : "l"(a), "l"(b));                                                  \
  }
PTX_MULTIPLY(ptx_multiply, 8, "%0, %1, %2, %3", "0, 0", "%4", "%5", PTX_OUT4(0))
PTX_MULTIPLY(ptx_multiply, 16, PTX_D8, "0, 0", "%8", "%9", PTX_OUT8(0))
PTX_MULTIPLY(ptx_multiply, 32, PTX_D16, "0, 0", "%16", "%17", PTX_OUT16(0))
PTX_MULTIPLY(ptx_multiply, 48, PTX_D24, "0, 0", "%24", "%25", PTX_OUT16(0), PTX_OUT8(16))
PTX_MULTIPLY(ptx_multiply, 64, PTX_D32, "0, 0", "%32", "%33", PTX_OUT32(0))
PTX_MULTIPLY(ptx_multiply, 80, PTX_D40, "0, 0", "%40", "%41", PTX_OUT32(0), PTX_OUT8(32))
PTX_MULTIPLY(ptx_multiply, 96, PTX_D48, "0, 0", "%48", "%49", PTX_OUT32(0), PTX_OUT16(32))
PTX_MULTIPLY(ptx_multiply, 112, PTX_D56, "0, 0", "%56", "%57", PTX_OUT32(0), PTX_OUT16(32), PTX_OUT8(48))
PTX_MULTIPLY(ptx_multiply, 128, PTX_D64, "0, 0", "%64", "%65", PTX_OUT64(0))
PTX_MULTIPLY(ptx_multiply, 144, PTX_D72, "0, 0", "%72", "%73", PTX_OUT64(0), PTX_OUT8(64))
PTX_MULTIPLY(ptx_multiply, 160, PTX_D80, "0, 0", "%80", "%81", PTX_OUT64(0), PTX_OUT16(64))
PTX_MULTIPLY(ptx_multiply, 176, PTX_D88, "0, 0", "%88", "%89", PTX_OUT64(0), PTX_OUT16(64), PTX_OUT8(80))
PTX_MULTIPLY(ptx_multiply, 192, PTX_D96, "0, 0", "%96", "%97", PTX_OUT64(0), PTX_OUT32(64))
PTX_MULTIPLY(ptx_multiply, 208, PTX_D104, "0, 0", "%104", "%105", PTX_OUT64(0), PTX_OUT32(64), PTX_OUT8(96))
PTX_MULTIPLY(ptx_multiply, 224, PTX_D112, "0, 0", "%112", "%113", PTX_OUT64(0), PTX_OUT32(64), PTX_OUT16(96))
PTX_MULTIPLY(ptx_multiply, 240, PTX_D120, "0, 0", "%120", "%121", PTX_OUT64(0), PTX_OUT32(64), PTX_OUT16(96), PTX_OUT8(112))
PTX_MULTIPLY(ptx_multiply, 256, PTX_D128, "0, 0", "%128", "%129", PTX_OUT64(0), PTX_OUT64(64))
/* With a in registers, two elements in each: a[2 * j + h] is row + 8 * h, columns 8 * j + 2 * (t % 4) and the next one. _across: b is
 * transposed, its rows are k (ACROSS). */
#define PTX_MULTIPLY_HELD(name, n, registers, across, a_at, b_at, ...)                                                         \
  NUM void name(f32 (&d)[n / 2], const u32 (&a)[4], u64 b) {                                                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" registers "}, {" a_at "}, " b_at                 \
                 ", 1, 1, 1, " across ";" : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));              \
  }
PTX_MULTIPLY_HELD(ptx_multiply, 8, "%0, %1, %2, %3", "0", "%4, %5, %6, %7", "%8", PTX_OUT4(0))
PTX_MULTIPLY_HELD(ptx_multiply_across, 16, PTX_D8, "1", "%8, %9, %10, %11", "%12", PTX_OUT8(0))
PTX_MULTIPLY_HELD(ptx_multiply_across, 24, PTX_D12, "1", "%12, %13, %14, %15", "%16", PTX_OUT8(0), PTX_OUT4(8))
PTX_MULTIPLY_HELD(ptx_multiply_across, 32, PTX_D16, "1", "%16, %17, %18, %19", "%20", PTX_OUT16(0))
PTX_MULTIPLY_HELD(ptx_multiply_across, 40, PTX_D20, "1", "%20, %21, %22, %23", "%24", PTX_OUT16(0), PTX_OUT4(16))
PTX_MULTIPLY_HELD(ptx_multiply_across, 48, PTX_D24, "1", "%24, %25, %26, %27", "%28", PTX_OUT16(0), PTX_OUT8(16))
PTX_MULTIPLY_HELD(ptx_multiply_across, 64, PTX_D32, "1", "%32, %33, %34, %35", "%36", PTX_OUT32(0))
PTX_MULTIPLY_HELD(ptx_multiply_across, 80, PTX_D40, "1", "%40, %41, %42, %43", "%44", PTX_OUT32(0), PTX_OUT8(32))
PTX_MULTIPLY_HELD(ptx_multiply_across, 96, PTX_D48, "1", "%48, %49, %50, %51", "%52", PTX_OUT32(0), PTX_OUT16(32))
PTX_MULTIPLY_HELD(ptx_multiply_across, 112, PTX_D56, "1", "%56, %57, %58, %59", "%60", PTX_OUT32(0), PTX_OUT16(32), PTX_OUT8(48))
PTX_MULTIPLY_HELD(ptx_multiply_across, 128, PTX_D64, "1", "%64, %65, %66, %67", "%68", PTX_OUT64(0))
PTX_MULTIPLY_HELD(ptx_multiply_across, 144, PTX_D72, "1", "%72, %73, %74, %75", "%76", PTX_OUT64(0), PTX_OUT8(64))
PTX_MULTIPLY_HELD(ptx_multiply_across, 160, PTX_D80, "1", "%80, %81, %82, %83", "%84", PTX_OUT64(0), PTX_OUT16(64))
PTX_MULTIPLY_HELD(ptx_multiply_across, 176, PTX_D88, "1", "%88, %89, %90, %91", "%92", PTX_OUT64(0), PTX_OUT16(64), PTX_OUT8(80))
PTX_MULTIPLY_HELD(ptx_multiply_across, 192, PTX_D96, "1", "%96, %97, %98, %99", "%100", PTX_OUT64(0), PTX_OUT32(64))
PTX_MULTIPLY_HELD(ptx_multiply_across, 208, PTX_D104, "1", "%104, %105, %106, %107", "%108", PTX_OUT64(0), PTX_OUT32(64), PTX_OUT8(96))
PTX_MULTIPLY_HELD(ptx_multiply_across, 224, PTX_D112, "1", "%112, %113, %114, %115", "%116", PTX_OUT64(0), PTX_OUT32(64), PTX_OUT16(96))
PTX_MULTIPLY_HELD(ptx_multiply_across, 240, PTX_D120, "1", "%120, %121, %122, %123", "%124", PTX_OUT64(0), PTX_OUT32(64), PTX_OUT16(96),
                  PTX_OUT8(112))
PTX_MULTIPLY_HELD(ptx_multiply_across, 256, PTX_D128, "1", "%128, %129, %130, %131", "%132", PTX_OUT64(0), PTX_OUT64(64))
PTX_MULTIPLY(ptx_multiply_turned, 8, "%0, %1, %2, %3", "1, 0", "%4", "%5", PTX_OUT4(0))
PTX_MULTIPLY(ptx_multiply_turned, 16, PTX_D8, "1, 0", "%8", "%9", PTX_OUT8(0))
PTX_MULTIPLY(ptx_multiply_turned, 32, PTX_D16, "1, 0", "%16", "%17", PTX_OUT16(0))

/* The same for e4m3 numbers, 32 k at a time: one H32 step per element. Both operands hold bytes, k contiguous (SWIZZLED, PLAIN or ONE_ROW:
 * a row of 128 bytes holds 128 k, 16 bytes hold 16). _anew: d = a * b, the first step of a chain from +0; the old value of d is ignored. */
#define PTX_MULTIPLY_BYTES(name, n, registers, adds, a_at, b_at, ...)                                                          \
  NUM void name(f32 (&d)[n / 2], u64 a, u64 b) {                                                                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" registers "}, " a_at ", " b_at                   \
                 ", " adds ", 1, 1;" : __VA_ARGS__ : "l"(a), "l"(b));                                                          \
  }
#define PTX_MULTIPLY_E4M3(n, registers, ...)                                                                                   \
  PTX_MULTIPLY_BYTES(ptx_multiply_e4m3, n, registers, "1", __VA_ARGS__)                                                        \
  PTX_MULTIPLY_BYTES(ptx_multiply_e4m3_anew, n, registers, "0", __VA_ARGS__)
PTX_MULTIPLY_E4M3(8, "%0, %1, %2, %3", "%4", "%5", PTX_OUT4(0))
PTX_MULTIPLY_E4M3(16, PTX_D8, "%8", "%9", PTX_OUT8(0))
PTX_MULTIPLY_E4M3(32, PTX_D16, "%16", "%17", PTX_OUT16(0))
PTX_MULTIPLY_E4M3(48, PTX_D24, "%24", "%25", PTX_OUT16(0), PTX_OUT8(16))
PTX_MULTIPLY_E4M3(64, PTX_D32, "%32", "%33", PTX_OUT32(0))
PTX_MULTIPLY_E4M3(80, PTX_D40, "%40", "%41", PTX_OUT32(0), PTX_OUT8(32))
PTX_MULTIPLY_E4M3(96, PTX_D48, "%48", "%49", PTX_OUT32(0), PTX_OUT16(32))
PTX_MULTIPLY_E4M3(112, PTX_D56, "%56", "%57", PTX_OUT32(0), PTX_OUT16(32), PTX_OUT8(48))
PTX_MULTIPLY_E4M3(128, PTX_D64, "%64", "%65", PTX_OUT64(0))
PTX_MULTIPLY_E4M3(144, PTX_D72, "%72", "%73", PTX_OUT64(0), PTX_OUT8(64))
PTX_MULTIPLY_E4M3(160, PTX_D80, "%80", "%81", PTX_OUT64(0), PTX_OUT16(64))
PTX_MULTIPLY_E4M3(176, PTX_D88, "%88", "%89", PTX_OUT64(0), PTX_OUT16(64), PTX_OUT8(80))
PTX_MULTIPLY_E4M3(192, PTX_D96, "%96", "%97", PTX_OUT64(0), PTX_OUT32(64))
PTX_MULTIPLY_E4M3(208, PTX_D104, "%104", "%105", PTX_OUT64(0), PTX_OUT32(64), PTX_OUT8(96))
PTX_MULTIPLY_E4M3(224, PTX_D112, "%112", "%113", PTX_OUT64(0), PTX_OUT32(64), PTX_OUT16(96))
PTX_MULTIPLY_E4M3(240, PTX_D120, "%120", "%121", PTX_OUT64(0), PTX_OUT32(64), PTX_OUT16(96), PTX_OUT8(112))
PTX_MULTIPLY_E4M3(256, PTX_D128, "%128", "%129", PTX_OUT64(0), PTX_OUT64(64))

#endif

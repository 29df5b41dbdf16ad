/* kernel_test.h - how every kernel is tested: one set of cases, run by the CPU reference in every instruction set, by the emulator and by
 * the GPU.
 *
 * A test builds its cases in one memory image: buffers are separated by poison (0xff: NaN as bf16 and as fp32), and the memory an op may
 * write is declared. The reference runs with one thread and with three, in every instruction set; all images must be equal, and nothing but
 * declared outputs may change. On a GPU the same initial image is uploaded, the kernel runs (twice), and the resulting image must equal the
 * reference's in every byte. The emulator does the same with the kernel's text on the CPU; it is not linked under the sanitizers
 * (tests/emulator/README.md). The outputs of all cases give one XXH3-128 digest, which must equal the digest that the test names;
 * `--record FILE` appends the digest of the GPU's outputs to a file, for the test to name. Needs nothing of the engine above the kernel
 * table. Read next: test_rmsnorm.c. */
#ifndef VERBATIM_KERNEL_TEST_H
#define VERBATIM_KERNEL_TEST_H
#include "tests/unit/unit.h"
#include "engine/gpu/jit.h"
#include "engine/ops/kernels.h"
#include "engine/gpu/op_maps.h"
#include "tests/kernel/cases.h"

typedef struct kernel_test kernel_test;

#define KERNEL_SPECS_MAX 8u

typedef struct kernel_variant { /* one way of launching the kernel */
  jit_spec spec[KERNEL_SPECS_MAX]; /* in addition to SPEC_THREADS   */
  u32 spec_count;
  u32 grid[3];
  u32 threads, shared_bytes;
  u32 rows;                     /* launch rows, for variants with maps       */
} kernel_variant;

/* Starts a case: drops all buffers and fills the memory image with poison. */
void kernel_test_start(kernel_test *test);

/* Buffers of the image, 256-byte aligned, filled with poison. The caller may fill them before kernel_test_run. */
void *kernel_test_input(kernel_test *test, size_t bytes);   /* must not change               */
void *kernel_test_output(kernel_test *test, size_t bytes);  /* may change; part of the digest */
void *kernel_test_scratch(kernel_test *test, size_t bytes); /* may change, not compared       */
step_in *kernel_test_step(kernel_test *test, u32 tokens, u32 logits, u32 tiles);

/* Consecutive positions of alternating sequences, across page boundaries; block tables of `stride` pages each. Room for two more tokens. */
typedef struct kernel_places { u32 *position, *seq, *block_table; } kernel_places;
kernel_places kernel_test_places(kernel_test *test, u32 tokens, u32 seqs, u32 stride, u32 pages);

/* Part of an output that must not change: padding rows, gaps between rows. */
void kernel_test_keep(kernel_test *test, const void *part, size_t bytes);

/* fp32 part of an output whose zeros may have either sign and whose NaNs any payload. */
void kernel_test_loose(kernel_test *test, const void *part, size_t bytes);

/* Runs the case; without variants only the reference runs. Pointers in args point into the image, which then holds the result. */
void kernel_test_run(kernel_test *test, const void *args, const kernel_variant *variants, u32 variant_count);

/* main() of a kernel test: runs the cases on the CPU, compares their digest with `golden`, which a GPU recorded, and runs them on the GPU
 * if there is one and in the emulator if it is linked. */
int kernel_test_main(int argc, char **argv, const char *stem, const char *golden, void (*run_all)(kernel_test *));

/* |got - want| <= relative * |want| + absolute, or both NaN; prints and fails otherwise. */
void kernel_test_near(double got, double want, double relative, double absolute);

/* Fills rows with random numbers in the exponent range of typical activations. */
void kernel_test_floats(cases *c, f32 *out, size_t count, f32 scale);
void kernel_test_bf16s(cases *c, bf16 *out, size_t count, f32 scale);

/* The H16 chain of k pairs from c, by the definition. */
f32 kernel_test_chain(const bf16 *a, const bf16 *b, u64 b_stride, u32 k, f32 c);

/* tree(p, n) by recursion: the sum over indices first, first + step, ... below n. Called with first 0, step 1. */
f32 kernel_test_tree(const f32 *p, u32 n, u32 first, u32 step);

/* 1 / sqrt(mean of squares + eps) of a row as `rmsnorm` states it. */
f32 kernel_test_norm(const f32 *v, u32 n, f32 eps);

/* For the test of gemm: FILE of `--record-steps FILE`, or null; and whether the GPU runs the cases now. */
const char *kernel_test_steps_file(const kernel_test *test);
bool kernel_test_on_gpu(const kernel_test *test);

/* How many results a case shall compare with NUMERICS.md: `count` of the CPU's; none where the emulator or a GPU runs the case again, whose
 * bytes kernel_test_run has compared with the CPU's. */
u32 kernel_test_checks(const kernel_test *test, u32 count);

#endif

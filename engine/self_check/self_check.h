/* self_check.h - the start-up self-check: small fixed probes of every op, and the digest each must give.
 *
 * A probe is one launch of one op. Its inputs follow from a formula of integers, its shapes go over the edges of tiles, blocks and pages,
 * and all that no op may read is poison. Everything lies in one image, and the known answer is the digest of the whole image afterwards:
 * of the results, and of all that must still be as it was. Bits do not depend on the machine, a kernel's tiles or the number of threads,
 * so that one answer serves every way of computing the op; it is part of what the numerics id stands for.
 * Knows nothing of machines: exec/start.c runs the probes. Read next: self_check/cases.h. */
#ifndef VERBATIM_SELF_CHECK_H
#define VERBATIM_SELF_CHECK_H
#include "base/base.h"
#include "base/digest.h"
#include "plan/plan.h"

#define SELF_CHECK_BYTES (1u << 20)     /* the image of a probe, and what its kernel scribbles on behind it */
#define SELF_CHECK_ARGS_WORDS 22u       /* the largest argument struct, in 8 bytes */

typedef struct self_check_launch {
  const char *probe;     /* "batches, bf16"                                                               */
  uint32_t kernel;       /* row of kernels.def                                                            */
  uint32_t grid_items[3]; /* of the kernel: see self_check_grid                                           */
  uint32_t grid_more;    /* blocks in y besides                                                           */
  uint32_t rows;         /* launch rows                                                                   */
  uint64_t image_bytes;  /* go to the machine                                                             */
  uint64_t judged_bytes; /* of these come back: what lies behind may hold anything when the op has run    */
  uint64_t args[SELF_CHECK_ARGS_WORDS]; /* the op's argument struct                                       */
} self_check_launch;

uint32_t self_check_count(void);

/* Whether the probe is one of the kernel's, for models of these dimensions. index < self_check_count(). */
bool self_check_is_for(uint32_t index, uint32_t kernel, const plan_model *model);

/* Whether a kernel with or without the form for few rows can run it: only that gathers rows, and only it has qkv_rope's products. */
bool self_check_is_for_form(uint32_t index, bool is_few);

/* Whether a kernel for KV rows of that format, with lists of them or without, is asked it; one_chunk: a kernel that takes only lists that
 * are one chunk, of which there are probes of its own. */
bool self_check_is_for_rows(uint32_t index, uint32_t kv_format, bool lists, bool one_chunk);

/* Whether a kernel of index_score for so many heads of the indexer can run it; all that are not of that op. */
bool self_check_is_for_heads(uint32_t index, uint32_t heads);

/* Writes the probe's image, SELF_CHECK_BYTES aligned to 256 bytes, and its launch; address: where the machine will have the image. */
void self_check_build(uint32_t index, uint8_t *image, uint64_t address, self_check_launch *launch);

/* The grid of a kernel that takes tile_n columns and tile_rows rows a block, of whole clusters; 1, 1 and 1 for kernels without. */
void self_check_grid(const self_check_launch *launch, uint32_t tile_n, uint32_t tile_rows, uint32_t cluster, uint32_t grid[3]);

/* The known answer of the probe, and the digest of an image. */
digest self_check_answer(uint32_t index);
digest self_check_digest(const self_check_launch *launch, const uint8_t *image);

/* The digest of what the host computes of trigonometry and logarithms for the tables of `qkv_rope`, and its known answer. */
digest self_check_tables(void);
digest self_check_tables_answer(void);

#endif

/* self_check.h - the start-up self-check: small fixed probes of every op, and the digest each must give.
 *
 * A probe is one launch of one op. Its inputs follow from a formula of integers, its shapes cross the edges of tiles, blocks and pages, and
 * all memory that the op must not read is poison. Everything lies in one image, and the known answer is the digest of the whole image
 * afterwards: of the results, and of everything that must be unchanged. Bits do not depend on the backend, a kernel's tiles or the number
 * of threads, so one answer serves every way of computing the op. The answers are part of the numerics id's meaning. Knows nothing of
 * backends: exec/start.c runs the probes. Read next: self_check/cases.h. */
#ifndef VERBATIM_SELF_CHECK_H
#define VERBATIM_SELF_CHECK_H
#include "base/base.h"
#include "base/digest.h"
#include "plan/plan.h"

#define SELF_CHECK_BYTES (1u << 20)     /* the image of a probe, and scratch of its kernel after it */
#define SELF_CHECK_ARGS_WORDS 22u       /* the largest argument struct, in units of 8 bytes         */

typedef struct self_check_launch {
  const char *probe;     /* "batches, bf16"                                                               */
  uint32_t kernel;       /* row of kernels.def                                                            */
  uint32_t grid_items[3]; /* numbers of items in x, y and z: see self_check_grid                          */
  uint32_t grid_more;    /* additional blocks in y                                                        */
  uint32_t rows;         /* launch rows                                                                   */
  uint64_t image_bytes;  /* bytes sent to the backend                                                     */
  uint64_t judged_bytes; /* bytes read back and judged: those after may hold anything when the op has run */
  uint64_t args[SELF_CHECK_ARGS_WORDS]; /* the op's argument struct                                       */
} self_check_launch;

uint32_t self_check_count(void);

/* Whether the probe is one of the kernel's probes for models of these dimensions. index < self_check_count(). */
bool self_check_is_for(uint32_t index, uint32_t kernel, const plan_model *model);

/* Whether a kernel of the small-M form, or of another form, can run it: only the small-M form gathers rows and has qkv_rope's products. */
bool self_check_is_for_form(uint32_t index, bool is_few);

/* Whether the probe applies to a kernel for KV rows of that format, with or without top-k lists; one_chunk: a kernel that takes only lists
 * of one chunk, which has its own probes. */
bool self_check_is_for_rows(uint32_t index, uint32_t kv_format, bool lists, bool one_chunk);

/* Whether a kernel of index_score for this many indexer heads can run it; true for probes of other ops. */
bool self_check_is_for_heads(uint32_t index, uint32_t heads);

/* Whether a kernel of exchange with tags, or one without, can run it; true for probes of other ops. */
bool self_check_is_for_tags(uint32_t index, bool has_tags);

/* Whether a kernel of kv_widen or mla_expand that dequantizes piece by piece, or takes such rows, or another one, can run it; true for
 * probes of other ops. */
bool self_check_is_for_pieces(uint32_t index, bool has_pieces);

/* Writes the probe's image, SELF_CHECK_BYTES aligned to 256 bytes, and its launch; address: of the image on the backend. */
void self_check_build(uint32_t index, uint8_t *image, uint64_t address, self_check_launch *launch);

/* The grid of a kernel with tile_n columns and tile_rows rows per block, in whole clusters of cluster[0] blocks along x by cluster[1] along
 * y; 1 for kernels without tiles or clusters. */
void self_check_grid(const self_check_launch *launch, uint32_t tile_n, uint32_t tile_rows, const uint32_t cluster[2], uint32_t grid[3]);

/* The known answer of the probe, and the digest of an image. */
digest self_check_answer(uint32_t index);
digest self_check_digest(const self_check_launch *launch, const uint8_t *image);

/* The digest of the host's trigonometry and logarithms for the tables of `qkv_rope`, and its known answer. */
digest self_check_tables(void);
digest self_check_tables_answer(void);

#endif

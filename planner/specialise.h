/* specialise.h - how the GPU runs an op: tile constants, block size, shared memory, grid, with alternatives by launch row count.
 *
 * Follows the limits in the kernels' own headers. The choice never changes a bit, so everything here is about speed. Read next:
 * graph_add.c, which calls it for every op. */
#ifndef VERBATIM_SPECIALISE_H
#define VERBATIM_SPECIALISE_H
#include "draft.h"

#define SPECIALISE_CHOICES_MAX 16u
#define SPECIALISE_SPECS_MAX 9u
#define SPECIALISE_BLOCKS 132u    /* one per multiprocessor of an H200 */
#define SPECIALISE_ATTN_CTAS SPECIALISE_BLOCKS /* more work items than this would wait */
#define SPECIALISE_GROUPED_CTAS (2u * SPECIALISE_BLOCKS) /* of grouped-query attention */
#define SPECIALISE_FOLD_CTAS SPECIALISE_ATTN_CTAS /* one per multiprocessor also fits next to the attention's blocks */

typedef struct specialise_spec {
  const char *name; /* "SPEC_THREADS" */
  uint32_t value;
} specialise_spec;

typedef struct specialise_choice {
  uint32_t rows_min, rows_max; /* launch rows it is for */
  uint32_t threads, shared_bytes;
  uint32_t spec_count;
  specialise_spec specs[SPECIALISE_SPECS_MAX];
  plan_dim grid[3];
} specialise_choice;

/* Writes the alternatives for an op whose launch rows lie in [rows_min, rows_max]: disjoint, ascending, without gaps. args: the op's struct
 * of abi.h; of its pointers only which are null is read. Returns their number, 1 to SPECIALISE_CHOICES_MAX. */
uint32_t specialise_op(uint32_t kernel, const void *args, uint32_t rows_min, uint32_t rows_max,
                       specialise_choice choices[SPECIALISE_CHOICES_MAX]);

/* Launch rows up to which the experts' first product gathers its rows itself, at least 16. */
uint32_t specialise_gathered_rows(uint32_t experts, uint32_t top_k);

/* The index of the choice's kernel in the plan's kernel table, added if new. */
uint32_t specialise_kernel(draft *plan, uint32_t kernel, const specialise_choice *choice);

#endif

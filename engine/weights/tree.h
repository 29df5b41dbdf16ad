/* weights/tree.h - the weights digest as a tree of two levels: a digest for every tensor of a model folder that a plan uses, and the digest
 * of these.
 *
 * The root is what receipts hold (RECEIPTS.md, "Weights digest"). If two folders have different roots, a leaf differs and names the tensor.
 * Reads all weights and stores none. Allocates memory, and no engine runs at the same time. Read next: weights.h. */
#ifndef VERBATIM_WEIGHTS_TREE_H
#define VERBATIM_WEIGHTS_TREE_H
#include "base/base.h"
#include "base/digest.h"
#include "base/sha256.h"
#include "plan/plan.h"
#include "weights/safetensors.h"

typedef struct weights_tree_leaf {
  const char *name;           /* the plan's              */
  const safetensor *tensor;   /* its dtype, rank, shape  */
  digest data;                /* of the tensor's bytes   */
  sha256 strong;              /* of them, or zeros       */
} weights_tree_leaf;

typedef struct weights_tree {
  safetensors *set;
  weights_tree_leaf *leaves;  /* [count], in the order of the plan's tensor table; valid while plan and tree are open */
  uint32_t count;
  digest root;
  sha256 strong_root;         /* of the text of weights_line, by name; zeros if it was not asked for */
} weights_tree;

/* Called with the bytes read so far and in all, by the calling thread. */
typedef void weights_tree_progress(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* threads: number of reading threads, 0: one per core. strong: also take every SHA-256. progress may be null. Errors are those of
 * safetensors_open and weights_load; close it also after an error. */
status weights_tree_open(weights_tree *self, const plan *p, const char *model_dir, uint32_t threads, bool strong,
                         weights_tree_progress *progress, void *context);
/* Writes the beginning of the leaf's line in the text of strong_root; its name and a line feed follow. See weights_line. */
#define WEIGHTS_TREE_LINE_BYTES 512u
const char *weights_tree_line(const weights_tree_leaf *leaf, char line[WEIGHTS_TREE_LINE_BYTES]);
void weights_tree_close(weights_tree *self); /* a zeroed one is allowed */

#endif

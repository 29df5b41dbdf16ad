/* weights/tree.c - see weights/tree.h. weights.c reads, matches and digests. */
#include "weights/tree.h"
#include "weights/weights.h"
#include <stdlib.h>

typedef struct reading {
  weights_tree *tree;
  weights_tree_progress *progress;
  void *context;
} reading;

static void pass_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
  const reading *self = context;
  if (self->progress) self->progress(self->context, done_bytes, total_bytes);
}

static void add_leaf(void *context, const char *name, const safetensor *tensor, const digest *data,
                     const sha256 *strong) {
  weights_tree *tree = ((const reading *)context)->tree;
  tree->leaves[tree->count++] = (weights_tree_leaf){.name = name, .tensor = tensor, .data = *data,
                                                      .strong = *strong};
}

status weights_tree_open(weights_tree *self, const plan *p, const char *model_dir, uint32_t threads, bool strong,
                         weights_tree_progress *progress, void *context) {
  weights_report report;
  reading now = {.tree = self, .progress = progress, .context = context};
  *self = (weights_tree){.leaves = calloc(2ull * p->tensor_count + 1, sizeof *self->leaves)};
  if (!self->leaves) return FAIL(ERR_LIMIT, "weights: no memory");
  TRY(safetensors_open(&self->set, model_dir));
  TRY(weights_digest(p, self->set, threads, strong, pass_progress, add_leaf, &now, &report));
  self->root = report.digest;
  self->strong_root = report.sha256;
  return OK;
}

_Static_assert(WEIGHTS_LINE_BYTES <= WEIGHTS_TREE_LINE_BYTES, "a line's beginning fits");

const char *weights_tree_line(const weights_tree_leaf *leaf, char line[WEIGHTS_TREE_LINE_BYTES]) {
  return weights_line(leaf->tensor, &leaf->strong, line);
}

void weights_tree_close(weights_tree *self) {
  safetensors_close(self->set);
  free(self->leaves);
  *self = (weights_tree){0};
}

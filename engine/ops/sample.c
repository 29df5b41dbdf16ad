/* sample.c - the op `sample`: a token from each row of logits. NUMERICS.md "sample"; see ops/op.h. */
#include "ops/op.h"

/* The cost is that of a greedy row, which reads no adjusted logits and reports no alternatives. */
static void operands(op_operands *o) {
  const sample_args *a = o->args;
  READS(sample, logits, .kind = OP_POINT, .rows = OP_LOGITS, .type = OP_F32, .columns = a->vocab);
  READS(sample, adjusted, .kind = OP_POINT, .rows = OP_LOGITS, .type = OP_F32, .columns = a->vocab, .is_free = true);
  READS(sample, param, .kind = OP_ENGINE, .rows = OP_LOGITS, .columns = sizeof(sample_param));
  WRITES(sample, sampled, .kind = OP_ENGINE, .rows = OP_ONCE, .type = OP_U32, .columns = 1, .is_free = true);
  WRITES(sample, result, .kind = OP_ENGINE, .rows = OP_LOGITS, .columns = sizeof(sample_result));
  WRITES(sample, top, .kind = OP_ENGINE, .rows = OP_LOGITS, .columns = TOP_LOGPROBS_MAX * sizeof(top_logprob), .is_free = true);
}

/* The largest logit, and the sum of exponentials for its probability. */
static void cost(const op_operands *o, const op_step *step, op_cost *sum) {
  const sample_args *a = o->args;
  sum->flops += 3.0 * (double)step->rows * a->vocab;
}

const op_description ops_sample = {.pointers = offsetof(sample_args, vocab) / 8, .optional = OP_POINTER(sample, top),
                                   .family = OP_OF_LOGITS, .operands = operands, .cost = cost};

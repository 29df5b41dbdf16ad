/* accept.cu - which guesses of a step were right, and the inputs of the ops that make the next ones. NUMERICS.md, `accept`.
 *
 * Block t writes next_token[t] and, if t < D, everything of sequence t: thread j what pass j + 1 reads. logit_row [R] has no token row
 * twice. Grid: rows. 256 threads. Everything is read after the wait: the op follows `sample`, and moves a few hundred bytes a row. No op
 * after it reads its results before it is complete: the engine starts the next op only then. */
#include "spec.cuh"
#include "ptx/ptx.cuh"

/* The last logits row of the sequence whose token row has the token that the row before it chose. */
NUM u32 last_right(const accept_args &a, const step_draft &d) {
  u32 r = d.first;
  while (r + 1u < d.first + d.count && a.result[r].token == a.token[a.logit_row[r + 1u]]) r++;
  return r;
}

NUM void write_draft(const accept_args &a, u32 d) {
  const u32 pass = threadIdx.x;
  if (pass >= a.draft_tokens) return;
  const u32 row = last_right(a, a.drafts[d]), token_row = a.logit_row[row], slot = a.drafts[d].slot;
  const u32 position = a.position[token_row] + pass;
  sample_param param = a.param[row];
  param.position += pass + 1u;
  param.slot = d;
  param.target = -1;
  param.top_count = param.adjusted = 0u;
  a.draft_param[(u64)pass * a.stride + d] = param;
  if (pass == 0u) {
    a.source[d] = token_row;
    return;
  }
  const u64 at = (u64)(pass - 1u) * a.stride + d;
  a.draft_position[at] = position;
  a.draft_tiles[at] = attn_tile{d, 1u, slot, position};
  if (pass > 1u) return;
  a.draft_token[d] = -1 - (i32)d;
  a.draft_seq[d] = slot;
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void accept(const __grid_constant__ accept_args a) {
  ptx_grid_next();
  const u32 t = blockIdx.x;
  ptx_grid_wait();
  if (t >= a.step->token_count) return;
  const i32 next = a.next[t];
  if (threadIdx.x == 0) a.next_token[t] = next < 0 ? 0 : next;
  __syncthreads();
  const u32 rows = next < 0 ? a.step->logit_count : 0u;
  for (u32 r = threadIdx.x; r < rows; r += SPEC_THREADS)
    if (a.logit_row[r] == t) a.next_token[t] = a.result[r].token;
  if (t < a.step[STEP_DRAFTS].token_count) write_draft(a, t);
}

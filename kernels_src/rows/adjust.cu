/* adjust.cu - the logits a token is chosen from: after penalties, the token list and the ban of all others. NUMERICS.md, `adjust`.
 *
 * logits, adjusted [R][vocab] fp32, history [pages][64], lists [max_seqs][TOKEN_LIST_MAX]. Grid: rows, ceil(vocab / ADJUST_SLICE). 512
 * threads. A block takes ADJUST_SLICE tokens of a row: it reads the whole history and keeps one word of shared memory for each of its own
 * tokens. Rows that are not adjusted cost nothing. Moves 8 bytes a logit, and 4 bytes a token of history for each slice. */
#include "spec.cuh"
#include "ptx/reduce.cuh"

/* Mark of a token: how often it was generated (below 2^20, as positions are), whether it is in the prompt, its place in the list. */
#define MARK_GENERATED 0xfffffu
#define MARK_PROMPT 0x100000u
#define MARK_LIST_SHIFT 21u /* the place plus 1; 0: not in the list */
static_assert(TOKEN_LIST_MAX < 1u << (32u - MARK_LIST_SHIFT), "the place in the list has 11 bits");

/* Marks the tokens first .. first + count - 1. Reads only the history that some penalty needs. */
NUM void mark_slice(u32 *marks, const adjust_args &a, const sample_param &p, u32 first, u32 count) {
  const token_bias *list = a.lists + (u64)p.slot * TOKEN_LIST_MAX;
  const u32 *pages = a.block_table + (u64)p.slot * a.block_table_stride;
  const bool counts = (num_bits(p.presence) | num_bits(p.frequency)) != 0;
  const u32 from = p.repetition != 1.0f ? 0 : counts ? p.prompt_count : p.position;
  for (u32 i = threadIdx.x; i < count; i += SPEC_THREADS) marks[i] = 0;
  __syncthreads();
#pragma unroll 4
  for (u32 at = from + threadIdx.x; at < p.position; at += SPEC_THREADS) {
    const u32 i = (u32)a.history[(u64)pages[at / PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS] - first;
    if (i >= count) continue;
    if (at < p.prompt_count) {
      reduce_mark(&marks[i], MARK_PROMPT);
    } else {
      reduce_count(&marks[i]);
    }
  }
  __syncthreads();
  for (u32 place = threadIdx.x; place < p.list_count; place += SPEC_THREADS) {
    const u32 i = (u32)list[place].token - first;
    if (i < count) marks[i] |= (place + 1u) << MARK_LIST_SHIFT; /* no token is in the list twice */
  }
  __syncthreads();
}

NUM f32 adjust_one(f32 logit, u32 mark, const sample_param &p, const token_bias *list) {
  const u32 generated = mark & MARK_GENERATED, place = mark >> MARK_LIST_SHIFT;
  if (mark & (MARK_PROMPT | MARK_GENERATED)) logit = logit > 0.0f ? num_div(logit, p.repetition) : num_mul(logit, p.repetition);
  logit = num_sub(logit, num_mul(p.frequency, (f32)generated));
  if (generated) logit = num_sub(logit, p.presence);
  logit = logit > 0x1.fffffep127f ? 0x1.fffffep127f : logit < -0x1.fffffep127f ? -0x1.fffffep127f : logit;
  if (place) return num_add(logit, list[place - 1u].bias);
  return p.list_only ? num_float(0xff800000u) : logit;
}

extern "C" __global__ __launch_bounds__(SPEC_THREADS) void adjust(const __grid_constant__ adjust_args a) {
  __shared__ u32 marks[ADJUST_SLICE];
  ptx_grid_next();
  const u32 r = blockIdx.x, first = blockIdx.y * ADJUST_SLICE;
  const bool is_adjusted = r < a.step->logit_count && first < a.vocab && a.param[r].adjusted;
  ptx_grid_wait();
  if (!is_adjusted) return;
  const sample_param p = a.param[r];
  const u32 count = a.vocab - first < ADJUST_SLICE ? a.vocab - first : ADJUST_SLICE;
  const u64 start = (u64)r * a.vocab + first;
  const token_bias *list = a.lists + (u64)p.slot * TOKEN_LIST_MAX;
  mark_slice(marks, a, p, first, count);
#pragma unroll 4
  for (u32 i = threadIdx.x; i < count; i += SPEC_THREADS) a.adjusted[start + i] = adjust_one(a.logits[start + i], marks[i], p, list);
}

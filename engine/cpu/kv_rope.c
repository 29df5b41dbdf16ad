/* kv_rope.c - the CPU reference of kv_rope: bias, norm and rotation of a token's queries and keys, and its KV row. Numbers are fp32 up to
 * the rotation; the row is computed in bf16, and the cache stores it in its format. NUMERICS.md "kv_rope". Read next: rows.h. */
#include "base/limits.h"
#include "cpu/cpu.h"
#include "cpu/kv_rows.h"

/* u of all heads of the queries, keys or values of a token: of each KV head's columns `count`, from `first` on. */
static void gather(const kv_rope_args *a, u32 token, u32 first, u32 count, f32 *u) {
  const u32 width = (a->heads / a->kv_heads + 1) * a->head_dim + a->v_dim;
  const f32 *x = a->x + (u64)token * a->x_stride;
  for (u32 i = 0; i < a->kv_heads * count; i++) {
    const u32 at = i / count * width + first + i % count;
    u[i] = a->bias ? num_add(x[at], num_from_bf16(a->bias[at])) : x[at]; /* R16.1 */
  }
}

static void normalise(const kv_rope_args *a, f32 *u, const bf16 *weight, u32 columns) {
  const u32 width = a->norms_row ? columns : a->head_dim;
  for (u32 first = 0; first < columns && weight; first += width) {
    const f32 r = rows_norm_factor(u + first, width, a->eps);
    for (u32 i = 0; i < width; i++) u[first + i] = num_mul(num_mul(u[first + i], r), num_from_bf16(weight[i])); /* R1.8, R1.9 */
  }
}

/* One head of the queries or keys. */
static void write_head(const kv_rope_args *a, u32 token, const f32 *u, bf16 *out) {
  const u32 rotated = a->cos_sin ? a->rope_dim : 0;
  if (rotated) rows_rotate(out, u, a->cos_sin + (u64)a->position[token] * rotated, rotated, a->half_split, 1);
  for (u32 i = rotated; i < a->head_dim; i++) out[i] = num_to_bf16(u[i]); /* R16.2 */
}

static void do_queries(const kv_rope_args *a, u32 token, f32 *u) {
  gather(a, token, 0, a->heads / a->kv_heads * a->head_dim, u);
  normalise(a, u, a->q_norm, a->heads * a->head_dim);
  for (u32 h = 0; h < a->heads; h++) write_head(a, token, u + h * a->head_dim, a->q_out + ((u64)token * a->heads + h) * a->head_dim);
}

static void do_row(const kv_rope_args *a, u32 token, f32 *u, bf16 *row) {
  const u32 width = a->head_dim + a->v_dim, keys = a->kv_heads * a->head_dim, values = a->kv_heads * a->v_dim;
  const u32 queries = a->heads / a->kv_heads * a->head_dim;
  gather(a, token, queries, a->head_dim, u);
  normalise(a, u, a->k_norm, keys);
  for (u32 h = 0; h < a->kv_heads; h++) write_head(a, token, u + h * a->head_dim, row + h * width);
  gather(a, token, queries + a->head_dim, a->v_dim, u);
  for (u32 i = 0; i < values; i++) row[i / a->v_dim * width + a->head_dim + i % a->v_dim] = num_to_bf16(u[i]); /* R16.2 */
  const u32 position = a->position[token];
  const u64 page = a->block_table[(u64)a->seq[token] * a->block_table_stride + position / PAGE_TOKENS];
  u8 *to = (u8 *)a->kv + (page * PAGE_TOKENS + position % PAGE_TOKENS) * KV_ROW_BYTES(a->kv_format, keys, values);
  kv_rows_write(row, a->kv_format, a->kv_scale, SCALE_F32, keys, values, to);
}

static void do_token(void *context, uint32_t token, void *scratch) {
  const kv_rope_args *a = context;
  f32 *u = scratch;
  do_queries(a, token, u);
  do_row(a, token, u, (bf16 *)(u + HEADS_MAX * HEAD_DIM_MAX));
}

void cpu_kv_rope(const kv_rope_args *args, cpu_pool *pool) {
  kv_rope_args a = *args;
  _Static_assert(HEADS_MAX * HEAD_DIM_MAX * (sizeof(f32) + 2 * sizeof(bf16)) <= CPU_SCRATCH_BYTES, "numbers and KV row of a token");
  ASSERT(a.heads <= HEADS_MAX && a.kv_heads > 0 && a.heads % a.kv_heads == 0 && a.head_dim <= HEAD_DIM_MAX && a.v_dim <= HEAD_DIM_MAX);
  ASSERT(a.kv_format != KV_FP8_DS_MLA);
  cpu_pool_run(pool, a.step->token_count, do_token, &a);
}

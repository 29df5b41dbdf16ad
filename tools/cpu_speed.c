/* cpu_speed.c - measures the CPU backend's three products on this processor: gemm, moe_gemm and mla_attn of DeepSeek-V2-Lite's size by rows
 * and threads, in GFLOP/s (multiplications and additions that the model requires), and as a share of as many single threads.
 *
 *   cpu_speed [most threads]     default: every core
 *
 * Every call uses other weights, so that they come from memory as in a model; `read` is the GB/s at which the threads can read weights, an
 * upper limit for the GFLOP/s of one row. Figures are the best of several calls. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/base/clock.h"
#include "engine/cpu/cpu.h"
#include "kernels_src/num.h"

#define CELL_SECONDS 0.12
#define ROWS_MAX 64u
#define HIDDEN 2048u
#define QUERY_COLUMNS 3072u /* 16 heads of 128 + 64 */
#define EXPERTS 64u
#define TOP_K 6u
#define GATE_UP 2816u
#define HEADS 16u
#define RANK 512u
#define ROPE 64u
#define CONTEXT 1024u
#define PAGES (CONTEXT / PAGE_TOKENS)
#define LAYERS 4u /* sets of weights */

typedef struct speed {
  cpu_pool *pool;
  step_in step;
  bf16 *x, *w, *experts, *kv;
  f32 *y;
  u32 row_token[ROWS_MAX * TOP_K], expert_first[EXPERTS + 1], block_table[ROWS_MAX * PAGES];
  attn_tile tiles[ROWS_MAX];
} speed;

typedef double one_call(speed *s, u32 rows, u32 layer); /* work done: FLOP */

static double call_gemm(speed *s, u32 rows, u32 layer) {
  gemm_args a = {.step = &s->step, .x = s->x, .w = s->w + (u64)layer * QUERY_COLUMNS * HIDDEN, .y = s->y, .ldx = HIDDEN,
                 .ldy = QUERY_COLUMNS, .n = QUERY_COLUMNS, .k = HIDDEN, .batches = 1, .y_kind = Y_F32};
  cpu_gemm(&a, s->pool);
  return 2.0 * rows * QUERY_COLUMNS * HIDDEN;
}

static double call_moe_gemm(speed *s, u32 rows, u32 layer) {
  moe_gemm_args a = {.step = &s->step, .expert_first = s->expert_first, .row_token = s->row_token, .x = s->x, .y = s->y,
                     .w = s->experts + (u64)layer * EXPERTS * GATE_UP * HIDDEN, .ldx = HIDDEN, .n = GATE_UP, .k = HIDDEN,
                     .experts = EXPERTS, .top_k = TOP_K, .y_kind = Y_F32};
  cpu_moe_gemm(&a, s->pool);
  return 2.0 * rows * TOP_K * GATE_UP * HIDDEN;
}

/* Every row is a sequence of its own. */
static double call_mla_attn(speed *s, u32 rows, u32 layer) {
  mla_attn_args a = {.step = &s->step, .tiles = s->tiles, .q = s->x, .block_table = s->block_table, .out = (bf16 *)(void *)s->y,
                     .kv = s->kv + (u64)layer * ROWS_MAX * CONTEXT * (RANK + ROPE), .heads = HEADS, .kv_lora_rank = RANK,
                     .rope_dim = ROPE, .block_table_stride = PAGES, .chunk_tokens = 256, .group_chunks = 16, .scale_log2 = 0.1f};
  cpu_mla_attn(&a, s->pool);
  return 2.0 * rows * HEADS * CONTEXT * (2 * RANK + ROPE);
}

#define READ_BYTES (1u << 20) /* of one item */

typedef struct read_job {
  const u64 *from;
  _Atomic u64 sum; /* else the compiler would drop the reads */
} read_job;

static void read_item(void *context, uint32_t index, void *scratch) {
  read_job *job = context;
  (void)scratch;
  const u64 *word = job->from + (u64)index * (READ_BYTES / 8);
  u64 sum[8] = {0};
  for (u32 i = 0; i < READ_BYTES / 8; i += 8)
    for (u32 j = 0; j < 8; j++) sum[j] ^= word[i + j];
  for (u32 j = 0; j < 8; j++) job->sum += sum[j];
}

static double call_read(speed *s, u32 rows, u32 layer) { /* bytes */
  u64 bytes = 2ull * EXPERTS * GATE_UP * HIDDEN;
  read_job job = {.from = (const u64 *)(const void *)(s->experts + (u64)layer * EXPERTS * GATE_UP * HIDDEN)};
  (void)rows;
  cpu_pool_run(s->pool, (u32)(bytes / READ_BYTES), read_item, &job);
  return (double)bytes;
}

static void set_rows(speed *s, u32 rows) {
  s->step = (step_in){.token_count = rows, .logit_count = rows, .tile_count = rows, .seq_count = rows};
  u32 at = 0;
  for (u32 e = 0; e < EXPERTS; e++) { /* token t chooses experts 11 t, 11 t + 7, ... */
    s->expert_first[e] = at;
    for (u32 t = 0; t < rows; t++)
      for (u32 i = 0; i < TOP_K; i++)
        if ((11 * t + 7 * i) % EXPERTS == e) s->row_token[at++] = t;
  }
  s->expert_first[EXPERTS] = at;
  for (u32 t = 0; t < rows; t++) {
    s->tiles[t] = (attn_tile){.row = t, .count = 1, .seq = t, .position = CONTEXT - 1};
    for (u32 i = 0; i < PAGES; i++) s->block_table[t * PAGES + i] = t * PAGES + i;
  }
}

static double measure(speed *s, one_call *call, u32 rows) {
  double best = 0, begun = clock_seconds();
  set_rows(s, rows);
  for (u32 i = 0; i < 3 || clock_seconds() - begun < CELL_SECONDS; i++) {
    double from = clock_seconds(), flop = call(s, rows, i % LAYERS);
    best = fmax(best, 1e-9 * flop / (clock_seconds() - from));
  }
  return best;
}

static bf16 *random_numbers(u64 count, f32 scale) {
  bf16 *v = aligned_alloc(64, (count * sizeof *v + 63) / 64 * 64);
  if (!v) {
    fprintf(stderr, "cpu_speed: no memory for %llu numbers\n", (unsigned long long)count);
    exit(1);
  }
  for (u64 i = 0, z = count; i < count; i++) { /* the sum of four bytes is close enough to normal */
    z = z * 6364136223846793005ull + 1442695040888963407ull;
    u32 bits = (u32)(z >> 32);
    v[i] = num_to_bf16(((f32)((bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24)) - 510.0f) * scale);
  }
  return v;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    one_call *call;
  } ops[] = {{"gemm", call_gemm}, {"moe_gemm", call_moe_gemm}, {"mla_attn", call_mla_attn}};
  static const u32 rows[] = {1, 4, 16, 64};
  static speed s;
  double single[ARRAY_LEN(ops)][ARRAY_LEN(rows)] = {{0}};
  u32 most = argc > 1 ? (u32)strtoul(argv[1], NULL, 10) : 0;
  s.x = random_numbers((u64)ROWS_MAX * HEADS * (RANK + ROPE), 1.0f / 128);
  s.w = random_numbers((u64)LAYERS * QUERY_COLUMNS * HIDDEN, 1.0f / 8192);
  s.experts = random_numbers((u64)LAYERS * EXPERTS * GATE_UP * HIDDEN, 1.0f / 8192);
  s.kv = random_numbers((u64)LAYERS * ROWS_MAX * CONTEXT * (RANK + ROPE), 1.0f / 128);
  s.y = malloc(sizeof *s.y * ROWS_MAX * TOP_K * QUERY_COLUMNS);
  if (!s.y || cpu_pool_open(&s.pool, most) != OK) return 1;
  most = cpu_pool_threads(s.pool);
  cpu_pool_close(s.pool);
  printf("%s, GFLOP/s (and the share of as many single threads)\nthreads op       ", cpu_isa());
  for (u32 r = 0; r < ARRAY_LEN(rows); r++) printf("%9u rows", rows[r]);
  for (u32 threads = 1; threads <= most; threads *= 2) {
    if (cpu_pool_open(&s.pool, threads) != OK) return 1;
    for (u32 op = 0; op < ARRAY_LEN(ops); op++) {
      printf("\n%7u %-9s", threads, ops[op].name);
      for (u32 r = 0; r < ARRAY_LEN(rows); r++) {
        double rate = measure(&s, ops[op].call, rows[r]);
        if (threads == 1) single[op][r] = rate;
        printf("%7.1f (%3.0f%%)", rate, 100 * rate / single[op][r] / threads);
        fflush(stdout);
      }
    }
    printf("\n%7u read     %7.1f GB/s", threads, measure(&s, call_read, 1));
    cpu_pool_close(s.pool);
  }
  printf("\n");
  return 0;
}

/* specialise.c - the tile tables and grids of specialise.h, one function per kernel whose choice depends on its shape.
 *
 * Numbers follow kernels_src/README.md; check.c tests that grids cover the work and that blocks fit the GPU. Must not know memory offsets.
 * Read next: kernels_src/README.md. */
#include "specialise.h"
#include <string.h>
#include "abi.h"
#include "attn/attn_cut.h"

/* What the choice for a product depends on. For scaled e4m3 k counts pairs, so that a block of k has 128 bytes in every format. */
typedef struct product {
  uint32_t n, k, y_kind;
  uint32_t count, top_k; /* batches; or the number of experts and how many of them a token has */
  bool is_scaled;
  bool is_first; /* of scaled products: the next op runs concurrently with it */
} product;

/* Large-M products: weight rows and token rows of a tile, stages and blocks of k in each, tiles of a cluster along both axes. */
typedef struct many_shape {
  uint32_t n, rows, stages, depth, beside, below;
} many_shape;

/* Small-M products: launch rows the form is for (for moe_gemm from 9 on: rows of an expert), rows of a tile, maximum bytes of a stage of
 * both operands, maximum bytes of shared memory. Rings are so large that two blocks never share a multiprocessor: otherwise blocks of the
 * next op would start early on multiprocessors that are done, in twos, and finish late (a product of 2048 x 2048: 4.8 us instead of 3.8).
 * With rings that leave room for a second block, one row of scaled products of 2112 x 7168, 7168 x 2048 and 8192 x 1536 takes 4.4, 3.7 and
 * 3.2 us instead of 5.8, 4.4 and 3.8 after a product like itself, but a step of one token (8 layers of DeepSeek-V3) is not faster: 1,992
 * us. */
typedef struct few_shape {
  uint32_t rows_max, rows, stage_bytes, shared_bytes;
} few_shape;

#define FEW_BYTES_MAX (220u << 10) /* also if a block walks over several tiles */
#define FEW_BYTES_SHARED (48u << 10) /* for one row on few blocks: leaves room for the next product's blocks, which start early */
static const few_shape FEW[] = {
    {1, 1, 36 << 10, 150 << 10}, {8, 8, 28 << 10, 150 << 10}, {16, 16, 28 << 10, 150 << 10}, {32, 32, 28 << 10, FEW_BYTES_MAX}};
/* For scaled products: with four or more blocks of 128 k in a stage a multiplication overlaps the additions (32 rows of 4096 x 7168 with
 * silu: 10.5 us, with two blocks per stage 14.7; 8 rows with eight blocks 8.2, with four 8.3). */
static const few_shape FEW_SCALED[] = {
    {1, 1, 36 << 10, 150 << 10}, {8, 8, 40 << 10, FEW_BYTES_MAX}, {16, 16, 48 << 10, FEW_BYTES_MAX}, {32, 32, 48 << 10, FEW_BYTES_MAX}};
/* One row of a shared expert, whose ops run between those of the routing (ORDER_FIRST): half of a multiprocessor's shared memory, to leave
 * room for these. A step of one token of 8 layers of DeepSeek-V3, five of them with experts, takes 1,953 us (1,990 with as much as other
 * products). Not used for bf16: GLM-4.7-Flash gains 1.1 %, DeepSeek-V2-Lite loses 4.3 and Moonlight 2.8. */
static const few_shape FEW_SCALED_FIRST = {1, 1, 18 << 10, 113 << 10};
static const few_shape FEW_OF_EXPERT[] = {
    {1, 1, 20 << 10, 226 << 10}, {8, 8, 40 << 10, 150 << 10}, {8, 16, 40 << 10, 150 << 10}, {16, 32, 40 << 10, FEW_BYTES_MAX}};

static plan_dim constant(uint32_t count) { return (plan_dim){.constant = count}; }
static plan_dim per_rows(uint32_t mul, uint32_t div) { return (plan_dim){.rows_mul = mul, .rows_div = div}; }

static void set_grid(specialise_choice *choice, plan_dim x, plan_dim y, plan_dim z) {
  choice->grid[0] = x;
  choice->grid[1] = y;
  choice->grid[2] = z;
}

static void add_spec(specialise_choice *choice, const char *name, uint32_t value) {
  ASSERT(choice->spec_count < SPECIALISE_SPECS_MAX);
  choice->specs[choice->spec_count++] = (specialise_spec){name, value};
}

static void set_threads(specialise_choice *choice, uint32_t threads) {
  choice->threads = threads;
  add_spec(choice, "SPEC_THREADS", threads);
}

static uint32_t many_cluster(const many_shape *many) { return many->beside * max_u32(many->below, 1); }

/* Warpgroups that multiply; one more loads. */
static uint32_t many_multiplying(const many_shape *many, bool is_scaled) {
  return is_scaled ? many->n * many->rows > 4096 ? 2 : 1 : many->n / 64;
}

static void set_many(specialise_choice *choice, const many_shape *many, bool is_scaled, uint32_t more_bytes) {
  const uint32_t multiplying = many_multiplying(many, is_scaled), cluster = many_cluster(many);
  const uint32_t stage_bytes = (many->n + many->rows) * 128 * many->depth + (is_scaled ? many->rows * 4 + 16 : 0);
  set_threads(choice, 128 * (1 + multiplying));
  add_spec(choice, "SPEC_MAPS", 1);
  add_spec(choice, "SPEC_TILE_N", many->n);
  add_spec(choice, "SPEC_TILE_ROWS", many->rows);
  add_spec(choice, "SPEC_STAGES", many->stages);
  add_spec(choice, "SPEC_CLUSTER", cluster);
  if (many->below > 0) add_spec(choice, "SPEC_CLUSTER_ROWS", many->below);
  if (many->depth > 1) add_spec(choice, "SPEC_DEPTH", many->depth);
  choice->shared_bytes = 1024 + many->stages * stage_bytes + multiplying * 8192 + 256 + more_bytes;
  set_grid(choice, constant(SPECIALISE_BLOCKS / cluster), constant(cluster), constant(1));
}

/* Multiprocessors take whole tiles: weight rows of the busiest one. */
static uint64_t few_cost(uint64_t columns, uint64_t batches, uint32_t height, uint32_t tile_n) {
  return div_up(div_up(columns, height) * batches, SPECIALISE_BLOCKS) * tile_n;
}

/* Columns that a tile gives. */
static uint32_t few_height(uint32_t tile_n, bool silu, bool is_scaled) {
  return !silu ? tile_n : is_scaled ? FP8_HALF(tile_n, 2) : tile_n / 2;
}

/* The tallest tile of at most `most` rows whose busiest multiprocessor has at most 3 % more rows than with the best tile: fewer, longer
 * tiles cost less. Tiles of 8 rows take turns at half the speed of taller ones (10944 x 2048: 21 us), so they are for a single turn. silu:
 * a tile gives half as many columns as it has weight rows, or fewer. */
static uint32_t few_tile_n(uint64_t columns, uint64_t batches, bool silu, bool is_scaled, uint32_t most) {
  const bool has_turns = div_up(columns, silu ? 4 : 8) * batches > SPECIALISE_BLOCKS;
  const uint32_t first = has_turns && most > 8 ? 16 : 8;
  uint64_t least = UINT64_MAX;
  uint32_t best = first;
  for (uint32_t n = first; n <= most; n += 8) least = min_u64(least, few_cost(columns, batches, few_height(n, silu, is_scaled), n));
  for (uint32_t n = first; n <= most; n += 8)
    if (few_cost(columns, batches, few_height(n, silu, is_scaled), n) * 100 <= least * 103) best = n;
  return best;
}

/* Shared memory of small_m.cuh: alignment, barriers, the rings of X and of W; after them the bytes read in place of the operand's missing
 * rows, which also hold gate and up rows while these are combined; and scales of X and W. */
static uint32_t few_bytes(const few_shape *few, uint32_t tile_n, uint32_t k_blocks, uint32_t stages, bool is_scaled) {
  uint32_t columns = max_u32(few->rows, 8), tail = (64 - tile_n) * 128, exchange = (tile_n + 4) * columns * 4, blocks = stages * k_blocks;
  return 2048 + (uint32_t)align_up(blocks * few->rows * 128, 1024) + blocks * tile_n * 128 + max_u32(tail, exchange) +
         (is_scaled ? blocks * (columns + 4) * 4 : 0);
}

static void set_few(specialise_choice *choice, const few_shape *few, uint32_t tile_n, const product *a, uint32_t shared_bytes,
                    uint32_t more_bytes) {
  uint32_t stages = 2, k_blocks = 16;
  while (k_blocks > 1 && (k_blocks * 64 > a->k || k_blocks * (tile_n + few->rows) * 128 > few->stage_bytes ||
                          (a->is_scaled && a->k / 64 % k_blocks != 0))) /* the last stage would multiply what follows k */
    k_blocks /= 2;
  while (stages < 63 && few_bytes(few, tile_n, k_blocks, stages + 1, a->is_scaled) + more_bytes <= shared_bytes) stages++;
  add_spec(choice, "SPEC_MAPS", 1);
  add_spec(choice, "SPEC_TILE_N", tile_n);
  add_spec(choice, "SPEC_TILE_ROWS", few->rows);
  add_spec(choice, "SPEC_K_BLOCKS", k_blocks);
  add_spec(choice, "SPEC_STAGES", stages);
  choice->shared_bytes = few_bytes(few, tile_n, k_blocks, stages, a->is_scaled) + more_bytes;
}

/* Begins the choice for the rows up to `last`, after the choices so far; NULL if no rows are left. */
static specialise_choice *next_choice(specialise_choice *choices, uint32_t *count, uint32_t *next, uint64_t last, uint32_t rows_max) {
  if (*next > last || *next > rows_max) return NULL;
  specialise_choice *choice = &choices[(*count)++];
  *choice = (specialise_choice){.rows_min = *next, .rows_max = (uint32_t)min_u64(last, rows_max)};
  *next = choice->rows_max + 1;
  return choice;
}

/* For experts, in pairs; and for mla_expand. */
static const many_shape SMALL = {128, 128, 6, 1, 2, 0}, MIDDLE = {128, 192, 5, 1, 2, 0}, WIDE = {128, 256, 4, 1, 2, 0};
static const many_shape ALONE = {128, 256, 4, 1, 1, 0};

/* Tiles of gemm. Pairs gain where they share weights; larger clusters do not fit on all multiprocessors. */
static const many_shape TILES[] = {
    {64, 32, 8, 2, 1, 2}, {64, 48, 15, 1, 1, 2}, {64, 64, 12, 1, 1, 1}, {64, 64, 12, 1, 1, 2}, {64, 96, 9, 1, 1, 1}, {64, 128, 8, 1, 1, 1},
    {64, 128, 8, 1, 1, 2}, {128, 96, 7, 1, 1, 2}, {128, 128, 6, 1, 1, 1}, {64, 256, 5, 1, 1, 1}, {128, 256, 4, 1, 1, 1}};
/* The same for scaled numbers, whose tiles of 256 rows the kernel may narrow to 128; and for experts. */
static const many_shape SCALED_TILES[] = {
    {64, 64, 13, 1, 1, 1}, {64, 64, 13, 1, 1, 2}, {128, 64, 8, 1, 1, 1}, {64, 128, 8, 1, 1, 1}, {64, 128, 8, 1, 1, 2},
    {128, 128, 6, 1, 1, 1}, {128, 128, 6, 1, 1, 2}, {128, 128, 6, 1, 2, 1}, {128, 256, 4, 1, 1, 1}, {128, 256, 4, 1, 2, 1},
    {128, 256, 4, 1, 1, 2}};
static const many_shape SCALED_SMALL = {128, 64, 8, 1, 2, 0}, SCALED_MIDDLE = {128, 128, 6, 1, 2, 0}, SCALED_WIDE = {128, 256, 4, 1, 2, 0};
#define WAVE_CYCLES 150u /* of a block of k, in which a warpgroup multiplies 64 rows' products by their scales */
#define L2_BYTES 8000u /* per cycle, to all multiprocessors together */
#define COPY_BYTES 40u /* per cycle, to one of them; twice as many for data that a pair shares */
#define TILE_CYCLES 300u /* for a tile's results and the pipeline's start, and for each of its token rows: */
#define TILE_ROW_CYCLES 8u
#define PAIR_CYCLES 250u /* additional, to start and to end together */
#define WIDE_CYCLES 100u /* additional for 64 k of the widest tiles, whose tokens are loaded by TMA tiles of 32 */

/* Cycles of a block of k. 128 bytes of both operands' rows are written to shared memory, and every warpgroup that multiplies 64 rows of one
 * operand by its part of the other reads them, 128 bytes per cycle: that takes as long as the products, or longer. For scaled numbers: or a
 * warpgroup's products and sums one after the other. */
static uint64_t block_cycles(const many_shape *tile, uint32_t width, bool is_scaled) {
  if (!is_scaled) return tile->n + width + tile->n / 64 * (64 + width);
  const uint32_t columns = tile->rows == 64 ? 64 : tile->n, waves = width / 64 * (tile->n / columns);
  const uint32_t own = (uint32_t)div_up(waves, many_multiplying(tile, true)) * (columns * 2 + WAVE_CYCLES);
  return max_u32(tile->n + width + waves * (64 + columns), own);
}

/* Cycles to load a block of k from L2, which reads for every block what its cluster does not share; for scaled numbers at least the cycles
 * that one multiprocessor takes. */
static uint64_t copy_cycles(const many_shape *tile, uint64_t active, uint32_t width, bool is_scaled) {
  const uint64_t bytes = (tile->n / tile->below + width / tile->beside) * 128, l2 = active * bytes / L2_BYTES;
  return is_scaled && bytes / COPY_BYTES > l2 ? bytes / COPY_BYTES : l2;
}

/* Cycles of the busiest multiprocessor, as measured on an H200, for tiles of `width` token rows. */
static uint64_t width_cost(const many_shape *tile, const product *a, uint32_t rows, uint32_t width) {
  const uint32_t across = (a->y_kind == Y_SILU ? tile->n / 2 : tile->n) * tile->beside, columns = a->y_kind == Y_SILU ? a->n / 2 : a->n;
  const uint32_t cluster = many_cluster(tile), at_once = SPECIALISE_BLOCKS / cluster;
  const uint64_t clusters = div_up(columns, across) * div_up(rows, width * tile->below) * a->count;
  const uint64_t active = (clusters < at_once ? clusters : at_once) * cluster, own = block_cycles(tile, width, a->is_scaled);
  const uint64_t copies = copy_cycles(tile, active, width, a->is_scaled);
  const uint64_t block = (own > copies ? own : copies) + (tile->rows == 256 && !a->is_scaled ? WIDE_CYCLES : 0);
  return div_up(clusters, at_once) * (block * (a->k / 64) + TILE_CYCLES + TILE_ROW_CYCLES * width) + (cluster > 1 ? PAIR_CYCLES : 0);
}

/* The kernel narrows the widest tiles where that is better. */
static uint64_t tile_cost(const many_shape *tile, const product *a, uint32_t rows) {
  uint64_t least = width_cost(tile, a, rows, tile->rows);
  for (uint32_t width = 128; tile->rows == 256 && width < 256; width += a->is_scaled ? 128 : 16) {
    const uint64_t cost = width_cost(tile, a, rows, width);
    least = least < cost ? least : cost;
  }
  return least;
}

static const many_shape *best_tile(const product *a, uint32_t rows) {
  const many_shape *tiles = a->is_scaled ? SCALED_TILES : TILES, *best = tiles;
  for (size_t i = 1; i < (a->is_scaled ? ARRAY_LEN(SCALED_TILES) : ARRAY_LEN(TILES)); i++)
    if (tile_cost(&tiles[i], a, rows) < tile_cost(best, a, rows)) best = &tiles[i];
  return best;
}

/* Row counts at which another tile may be the best: 64, 96, 128, 192, ... */
static uint32_t more_rows(uint32_t rows) { return rows & (rows - 1) ? rows / 3 * 4 : rows / 2 * 3; }

/* A scaled tile of 16 rows leaves half of an MMA unused, and 32 token rows, which cannot load early, are twice as many bytes as its
 * weights. So pairs of blocks take tiles of 32, half of the token rows each, if all pairs run at once; L2 then delivers each weight twice
 * (32 rows of 2112 x 7168: alone no faster, but a decode step of DeepSeek-V3 takes 2.8 us less per layer). */
static bool is_in_pairs(const product *a, const few_shape *shape, uint32_t columns, uint32_t tile_n) {
  return a->is_scaled && shape->rows == 32 && tile_n == 16 &&
         2 * div_up(columns, few_height(2 * tile_n, a->y_kind == Y_SILU, true)) <= SPECIALISE_BLOCKS;
}

static void set_few_in_pairs(specialise_choice *choice, const few_shape *shape, uint32_t columns, const product *a) {
  const few_shape half = {shape->rows_max, shape->rows / 2, shape->stage_bytes, shape->shared_bytes};
  set_few(choice, &half, 32, a, half.shared_bytes, 0);
  add_spec(choice, "SPEC_ROW_TILES", 2);
  set_grid(choice, constant(2 * (uint32_t)div_up(columns, few_height(32, a->y_kind == Y_SILU, true))), constant(1), constant(1));
}

static uint32_t choose_gemm(const product *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  const bool silu = a->y_kind == Y_SILU;
  const uint32_t columns = silu ? a->n / 2 : a->n, tile_n = few_tile_n(columns, a->count, silu, a->is_scaled, 64);
  const uint64_t tiles = div_up(columns, few_height(tile_n, silu, a->is_scaled)) * a->count;
  const few_shape *shape = a->is_scaled ? FEW_SCALED : FEW;
  uint32_t count = 0, next = rows_min;
  for (size_t i = 0; i < ARRAY_LEN(FEW); i++, shape++) {
    specialise_choice *few = next_choice(choices, &count, &next, shape->rows_max, rows_max);
    if (!few) continue;
    const bool beside = shape->rows == 1 && 2 * tiles < SPECIALISE_BLOCKS;
    const few_shape *used = shape->rows == 1 && a->is_first ? &FEW_SCALED_FIRST : shape;
    set_threads(few, 192);
    if (is_in_pairs(a, used, columns, tile_n)) {
      set_few_in_pairs(few, used, columns, a);
      continue;
    }
    set_few(few, used, tile_n, a, tiles > SPECIALISE_BLOCKS ? FEW_BYTES_MAX : beside ? FEW_BYTES_SHARED : used->shared_bytes, 0);
    set_grid(few, constant((uint32_t)min_u64(tiles, SPECIALISE_BLOCKS)), constant(1), constant(1));
  }
  for (uint32_t rows = 64; next <= rows_max; rows = more_rows(rows)) {
    const many_shape *tile = best_tile(a, rows);
    while (rows < rows_max && (count + 1 == SPECIALISE_CHOICES_MAX || best_tile(a, more_rows(rows)) == tile)) rows = more_rows(rows);
    specialise_choice *many = next_choice(choices, &count, &next, rows, rows_max);
    if (many) set_many(many, tile, a->is_scaled, 0);
  }
  return count;
}

uint32_t specialise_gathered_rows(uint32_t experts, uint32_t top_k) {
  const few_shape *most = &FEW_OF_EXPERT[ARRAY_LEN(FEW_OF_EXPERT) - 1];
  return most->rows_max * experts / top_k;
}

/* The tile follows the number of rows per expert when tokens are spread evenly. For one token the number of experts is known; it takes
 * small tiles in all available memory, because blocks of the first product end up to 6 us apart, and those of the second load meanwhile. */
static uint32_t choose_moe_gemm(const product *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  const bool silu = a->y_kind == Y_SILU;
  const uint32_t columns = silu ? a->n / 2 : a->n;
  uint32_t count = 0, next = rows_min;
  for (size_t i = 0; i < ARRAY_LEN(FEW_OF_EXPERT); i++) {
    const few_shape *shape = &FEW_OF_EXPERT[i];
    const uint64_t last = shape->rows <= 8 ? shape->rows_max : (uint64_t)shape->rows_max * a->count / a->top_k;
    specialise_choice *few = next_choice(choices, &count, &next, last, rows_max);
    if (!few) continue;
    set_threads(few, 192);
    const uint32_t tile_n = shape->rows == 1 ? few_tile_n(columns, a->top_k, silu, a->is_scaled, 32) : 64;
    set_few(few, shape, tile_n, a, shape->shared_bytes, (a->count + 1) * 4);
    set_grid(few, constant(SPECIALISE_BLOCKS), constant(1), constant(1));
  }
  const many_shape *const plain[] = {&SMALL, &MIDDLE, &WIDE}, *const scaled[] = {&SCALED_SMALL, &SCALED_MIDDLE, &SCALED_WIDE};
  const many_shape *const *shapes = a->is_scaled ? scaled : plain;
  /* Few rows: bound by memory, and narrower tiles have more stages in flight. Scaled: an expert with one row more than a tile of 128 has a
   * second tile, which takes more than half as long (256 experts, 128 rows on average, us: 4096 x 7168 3823, with the widest tiles 3269;
   * 7168 x 2048 1912 and 1607). */
  const uint64_t of_expert[] = {a->is_scaled ? 48 : 96, a->is_scaled ? 112 : 160, UINT32_MAX};
  const uint64_t across = div_up(columns, silu ? 64 : 128);
  for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
    specialise_choice *many = next_choice(choices, &count, &next, of_expert[i] * a->count / a->top_k, rows_max);
    if (!many) continue;
    many_shape shape = *shapes[i];
    if (across % 2 != 0 && across <= 16) shape.beside = 1; /* with an odd number, one block of a pair would be idle */
    set_many(many, &shape, a->is_scaled, (a->count + 1) * 8);
  }
  return count;
}

/* Tokens that 2-CTA clusters process concurrently, each CTA 64 of 128 heads. */
#define ATTN_PAIRED_ROWS (SPECIALISE_ATTN_CTAS / 4)

static void set_attn(specialise_choice *choice, const mla_attn_args *a, uint32_t rows, uint32_t threads, const char *form, uint32_t value) {
  set_threads(choice, threads);
  add_spec(choice, "SPEC_MAPS", 1);
  add_spec(choice, "SPEC_KV_LORA_RANK", a->kv_lora_rank);
  add_spec(choice, "SPEC_ROPE_DIM", a->rope_dim);
  add_spec(choice, "SPEC_ROWS", rows);
  if (form) add_spec(choice, form, value);
  if (attn_is_gathered(a)) add_spec(choice, "SPEC_KV_FORMAT", a->kv_format);
  if (attn_is_gathered(a)) add_spec(choice, "SPEC_LISTS", a->list_max > 0);
  choice->shared_bytes = ATTN_SHARED_BYTES(rows);
}

/* The number of tokens up to which each is split over 32, 16 or 8 CTAs, all running concurrently. H200, 128 heads, lists of 2,048,
 * fp8_ds_mla: one token takes 22 us on 32 CTAs, 27 on 16, 36 on 8, 63 on a 2-CTA cluster; 16 tokens on 8 CTAs each 40, on clusters 64; 32
 * tokens on 8, in two rounds, 79, on clusters 72. 64 heads: one token 20, 16 tokens 32. */
#define ATTN_SPREAD_ROWS(sharers) (ATTN_SPREAD_BLOCKS / (sharers))

static uint32_t choose_spread(const mla_attn_args *a, uint32_t *next, uint32_t rows_max, specialise_choice *choices) {
  uint32_t count = 0;
  for (uint32_t sharers = ATTN_SPREAD_MOST; sharers >= 8; sharers /= 2) {
    specialise_choice *choice = next_choice(choices, &count, next, ATTN_SPREAD_ROWS(sharers), rows_max);
    if (!choice) continue;
    set_attn(choice, a, 64, 512, "SPEC_SPREAD", sharers);
    if (a->heads <= 64) add_spec(choice, "SPEC_GROUPS", 1);
    set_grid(choice, constant(ATTN_SPREAD_BLOCKS), constant(1), constant(1));
  }
  return count;
}

/* Few heads in steps whose contexts may be split (decoding), or with gathered rows: attn/decode/form.cuh; for one token with a short
 * context in clusters, with which a step of DeepSeek-V2-Lite takes 1,877 us instead of 1,921 (steps of four tokens gain nothing). Otherwise
 * 64 rows at a time by 2-CTA clusters, attn/cluster/form.cuh; for lists of one chunk, more than 64 heads and more tokens than run
 * concurrently, ping-pong, attn/pingpong/form.cuh; for few tokens with such lists, split over many CTAs, attn/split/form.cuh. */
static uint32_t choose_mla_attn(const mla_attn_args *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  const uint32_t rows = attn_form_rows(a);
  uint32_t next = rows_min, count = attn_may_spread(a) ? choose_spread(a, &next, rows_max, choices) : 0;
  plan_dim x = per_rows(rows == 64 ? 2 * (uint32_t)div_up(a->heads, 64) : 1, 1);
  x.cap = SPECIALISE_ATTN_CTAS;
  if (a->slots_max > 0) x = constant(SPECIALISE_ATTN_CTAS);
  specialise_choice *one = attn_shares_chunks(a) ? next_choice(choices, &count, &next, 1, rows_max) : NULL;
  if (one) {
    set_attn(one, a, rows, 512, "SPEC_SHARES", ATTN_SHARES);
    set_grid(one, constant(ATTN_SHARES * (uint32_t)div_up(a->block_table_stride * PAGE_TOKENS, a->chunk_tokens)), constant(1), constant(1));
  }
  specialise_choice *few = next_choice(choices, &count, &next, attn_takes_turns(a) ? ATTN_PAIRED_ROWS : UINT32_MAX, rows_max), *many;
  if (few) {
    set_attn(few, a, rows, 512, rows == 64 ? "SPEC_PAIR" : NULL, 2);
    set_grid(few, x, constant(1), constant(1));
  }
  many = next_choice(choices, &count, &next, UINT32_MAX, rows_max);
  if (many) {
    set_attn(many, a, 64, ATTN_TURN_THREADS(a->kv_format), "SPEC_TURNS", 1);
    set_grid(many, constant(SPECIALISE_ATTN_CTAS), constant(1), constant(1));
  }
  return count;
}

/* Shared memory: queries of two warpgroups; stages of k and v, of two pages if registers have room for their scores; barriers; ones; and
 * less than 1 KiB that is static. */
static void choose_mla_prefill(const mla_prefill_args *a, specialise_choice *choice) {
  const uint32_t k_boxes = a->nope_dim / 64 + (uint32_t)div_up(a->rope_dim, 64), fixed = 2048 + 2 * k_boxes * 8192;
  const uint32_t stage = (a->v_dim <= 128 ? 2 : 1) * (k_boxes + a->v_dim / 64) * 8192, stages = min_u32(3, (231424 - fixed) / stage);
  choice->shared_bytes = fixed + stages * stage;
  set_threads(choice, 384);
  add_spec(choice, "SPEC_NOPE_DIM", a->nope_dim);
  add_spec(choice, "SPEC_ROPE_DIM", a->rope_dim);
  add_spec(choice, "SPEC_V_DIM", a->v_dim);
  add_spec(choice, "SPEC_STAGES", stages);
  add_spec(choice, "SPEC_MAPS", 1);
  plan_dim x = per_rows(a->heads, 1);
  x.cap = SPECIALISE_ATTN_CTAS;
  set_grid(choice, x, constant(1), constant(1));
}

/* Dynamic shared memory of attn (kernels_src/attn/grouped/layout.cuh). */
static uint32_t grouped_bytes(const attn_args *a, uint32_t rows, uint32_t stages, uint32_t pages, uint32_t held) {
  const uint32_t k_boxes = (uint32_t)div_up(a->head_dim, 64), v_boxes = (uint32_t)div_up(a->v_dim, 64);
  return 1664 + 8192 * (rows / 64 * k_boxes + stages * pages * (k_boxes + v_boxes)) + held * rows * 4 * (a->v_dim + 2);
}

#define GROUPED_BYTES_MAX 231376u  /* and 1,072 bytes that are static */
#define GROUPED_BYTES_HALF 113664u /* two CTAs share a multiprocessor */

/* Steps that may be split (decoding): a warpgroup that waits for memory, and two CTAs on a multiprocessor where they fit. Others: two
 * warpgroups, stages of two pages where registers have room for their scores. Totals of chunks lie in shared memory if two stages fit next
 * to them; a context of one chunk has none. Codes are dequantized by a warpgroup, which leaves no registers for a second one
 * that multiplies. */
static void choose_attn(const attn_args *a, specialise_choice *choice) {
  const bool is_decode = a->slots_max > 0, is_one_chunk = (uint64_t)a->block_table_stride * PAGE_TOKENS <= a->chunk_tokens;
  const bool is_coded = a->kv_format != KV_BF16, is_narrow = is_decode || is_coded;
  const uint32_t rows = is_narrow ? 64 : 128, pages = !is_narrow && a->v_dim <= 128 && a->chunk_tokens % (2 * PAGE_TOKENS) == 0 ? 2 : 1;
  const bool is_half = is_narrow && !(is_coded && a->head_dim > 128) && grouped_bytes(a, rows, 2, pages, 0) <= GROUPED_BYTES_HALF;
  const uint32_t most = is_half ? GROUPED_BYTES_HALF : is_narrow ? GROUPED_BYTES_MAX : GROUPED_BYTES_MAX + 704;
  const uint32_t held = !is_one_chunk && grouped_bytes(a, rows, 2, pages, 1) <= most;
  uint32_t stages = 2;
  while (stages < 5 && grouped_bytes(a, rows, stages + 1, pages, held) <= most) stages++;
  choice->shared_bytes = grouped_bytes(a, rows, stages, pages, held);
  set_threads(choice, !is_narrow ? 384 : is_coded ? 256 : 160);
  add_spec(choice, "SPEC_MAPS", 1);
  add_spec(choice, "SPEC_HEAD_DIM", a->head_dim);
  add_spec(choice, "SPEC_V_DIM", a->v_dim);
  add_spec(choice, "SPEC_ROWS", rows);
  add_spec(choice, "SPEC_STAGES", stages);
  add_spec(choice, "SPEC_PAGES", pages);
  add_spec(choice, "SPEC_HELD", held);
  if (is_coded) add_spec(choice, "SPEC_KV_FORMAT", a->kv_format);
  plan_dim x = per_rows(a->kv_heads, 1);
  x.cap = (is_half ? 2 : 1) * SPECIALISE_ATTN_CTAS;
  if (is_decode) x = constant(x.cap);
  set_grid(choice, x, constant(1), constant(1));
}

/* Up to this many rows are assumed to be single tokens of requests, for which pages are read from memory and stages hold one page; more
 * rows are assumed to be prompts, which are bound by multiplication. */
#define SCORE_FEW 256

/* Four warpgroups multiply and a fifth loads; shared memory: queries and weights of two tiles, eight pages, barriers. */
static uint32_t choose_index_score(const index_score_args *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  uint32_t count = 0, next = rows_min;
  for (uint32_t pages = 1; pages <= 2; pages++) {
    specialise_choice *choice = next_choice(choices, &count, &next, pages == 1 ? SCORE_FEW : UINT32_MAX, rows_max);
    if (!choice) continue;
    set_threads(choice, 640);
    add_spec(choice, "SPEC_MAPS", 1);
    add_spec(choice, "SPEC_HEADS", a->heads);
    add_spec(choice, "SPEC_PAGES", pages);
    add_spec(choice, "SPEC_STAGES", 8 / pages);
    choice->shared_bytes = 1536 + 2 * (4 * 16384 + 2048) + 8 * 9216;
    set_grid(choice, constant(SPECIALISE_BLOCKS), constant(1), constant(1));
  }
  return count;
}

static void choose_rows(specialise_choice *choice, uint32_t threads, plan_dim x, plan_dim y) {
  set_threads(choice, threads);
  set_grid(choice, x, y, constant(1));
}

/* Few rows: blocks have many threads, to end soon, and a row must fit into their registers. Many rows: many blocks share a
 * multiprocessor. */
static uint32_t choose_rmsnorm(const rmsnorm_args *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  uint32_t count = 0, next = rows_min, held = 1;
  while (held * 4 * 512 < a->dim) held *= 2;
  specialise_choice *few = held > 4 ? NULL : next_choice(choices, &count, &next, SPECIALISE_BLOCKS, rows_max), *many;
  if (few) choose_rows(few, 512, per_rows(1, 1), constant(1));
  if (few) add_spec(few, "SPEC_HELD", held);
  many = next_choice(choices, &count, &next, UINT32_MAX, rows_max);
  if (many) choose_rows(many, 256, per_rows(1, 1), constant(1));
  if (many) add_spec(many, "SPEC_HELD", a->dim > 1024 ? 8 : 4);
  return count;
}

/* A row in the registers of a block, as for few rows of rmsnorm. */
static void choose_rank_norm(const rank_norm_args *a, specialise_choice *choice) {
  uint32_t held = 1;
  while (held * 4 * 512 < a->dim) held *= 2;
  choose_rows(choice, 512, per_rows(1, 1), constant(1));
  add_spec(choice, "SPEC_HELD", held);
}

/* Heads have blocks of their own, besides that of the KV row, as long as all blocks run concurrently, eight per multiprocessor. With w_uk:
 * one token, and blocks for its products. */
static uint32_t choose_qkv_rope(const qkv_rope_args *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  const uint32_t blocks = 1 + (uint32_t)div_up(a->heads, 8), tile_n = few_tile_n(a->kv_lora_rank, a->heads, false, false, 64);
  uint32_t count = 0, next = rows_min;
  if (a->absorbs) {
    choices[0] = (specialise_choice){.rows_min = 1, .rows_max = 1};
    set_threads(&choices[0], 256);
    set_few(&choices[0], &FEW[0], tile_n, &(product){.k = a->nope_dim}, FEW_BYTES_SHARED, 0);
    const uint32_t tiles = (uint32_t)div_up(a->kv_lora_rank, tile_n) * a->heads;
    set_grid(&choices[0], constant(blocks + min_u32(tiles, SPECIALISE_BLOCKS)), constant(1), constant(1));
    return 1;
  }
  specialise_choice *few = next_choice(choices, &count, &next, 8 * SPECIALISE_BLOCKS / blocks, rows_max), *many;
  if (few) choose_rows(few, 256, per_rows(1, 1), constant(blocks));
  many = next_choice(choices, &count, &next, UINT32_MAX, rows_max);
  if (many) choose_rows(many, 256, per_rows(1, 1), constant(1));
  return count;
}

/* The same without products. Warps have the heads of one token, of 128 columns or of 256. */
static uint32_t choose_kv_rope(const kv_rope_args *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  const uint32_t blocks = (uint32_t)div_up(a->heads + 2 * a->kv_heads, 8);
  uint32_t count = 0, next = rows_min;
  specialise_choice *few = next_choice(choices, &count, &next, 8 * SPECIALISE_BLOCKS / blocks, rows_max), *many;
  if (few) choose_rows(few, 256, per_rows(1, 1), constant(blocks));
  many = next_choice(choices, &count, &next, UINT32_MAX, rows_max);
  if (many) choose_rows(many, 256, per_rows(1, 1), constant(1));
  for (uint32_t i = 0; i < count; i++) add_spec(&choices[i], "SPEC_HELD", max_u32(a->head_dim, a->v_dim) > 128 ? 2 : 1);
  return count;
}

/* Two warps in a block, each with 32 columns of a token and head. */
static plan_dim fold_blocks(const attn_fold_args *a) {
  plan_dim x = per_rows(a->heads * (uint32_t)div_up(a->v_dim, 32), 2);
  x.cap = 8 * SPECIALISE_BLOCKS;
  return x;
}

/* With w_uv: one token and one tile per block, because each block folds the units itself, and a ring that holds a whole row and leaves no
 * room for a second block. */
static void choose_mla_fold(const mla_fold_args *a, specialise_choice *choice) {
  uint32_t tile_n = 8;
  while (tile_n < 64 && div_up(a->v_dim, tile_n) * a->heads > SPECIALISE_BLOCKS) tile_n += 8;
  const uint32_t tiles = (uint32_t)div_up(a->v_dim, tile_n) * a->heads;
  set_threads(choice, a->lifts ? 192 : 256);
  if (a->lifts) set_few(choice, &FEW[0], tile_n, &(product){.k = a->kv_lora_rank}, FEW[0].shared_bytes, 0);
  set_grid(choice, constant(a->lifts ? min_u32(tiles, SPECIALISE_BLOCKS) : SPECIALISE_FOLD_CTAS), constant(1), constant(1));
}

/* A share of 64 tokens costs less than counting the shares of the others; if rows are copied as well, all multiprocessors take part. */
static plan_dim sort_blocks(const moe_sort_args *a) {
  plan_dim x = per_rows(1, a->columns ? 16 : 64);
  x.cap = SPECIALISE_BLOCKS;
  return x;
}

static void set_index_topk(specialise_choice *choice, uint32_t threads, plan_dim x, uint32_t cluster, uint32_t held) {
  choose_rows(choice, threads, x, constant(ROW_BLOCKS));
  add_spec(choice, "SPEC_CLUSTER", cluster);
  add_spec(choice, "SPEC_HELD", held);
  choice->shared_bytes = held * 4;
}

/* Few rows: as many clusters as run concurrently. Many: one block per multiprocessor, except for some. */
static uint32_t choose_index_topk(const index_topk_args *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  uint32_t count = 0, next = rows_min;
  plan_dim x = per_rows(1, 1);
  x.cap = min_u32(a->row_count, INDEX_TOPK_FEW);
  const uint64_t last = a->row_count <= INDEX_TOPK_FEW ? UINT32_MAX : a->row_first + (uint64_t)INDEX_TOPK_FEW;
  specialise_choice *few = next_choice(choices, &count, &next, last, rows_max), *many;
  if (few) set_index_topk(few, 512, x, ROW_BLOCKS, INDEX_TOPK_HELD);
  many = next_choice(choices, &count, &next, UINT32_MAX, rows_max);
  if (many) set_index_topk(many, 1024, constant(SPECIALISE_BLOCKS / ROW_BLOCKS), 1, INDEX_TOPK_HELD_MANY);
  return count;
}

/* 128 columns per eight threads, up to eight blocks per multiprocessor. */
static plan_dim quant_blocks(const act_quant_args *a) {
  plan_dim x = per_rows(a->rows_mul * (uint32_t)div_up(a->columns, 4096), 1);
  x.cap = 8 * SPECIALISE_BLOCKS;
  return x;
}

/* Few bytes of columns for all ranks: words with tags, one per thread. Others: flags, four pieces of 16 bytes per thread. */
static uint32_t choose_exchange(const exchange_args *a, uint32_t rows_min, uint32_t rows_max, specialise_choice *choices) {
  uint32_t count = 0, next = rows_min, row_bytes = 0;
  for (uint32_t t = 0; t < EXCHANGE_TABLES; t++) row_bytes += a->rows_mul[t] * a->part_bytes[t];
  const uint64_t tagged = a->form == EXCHANGE_COLUMNS ? EXCHANGE_TAGGED_BYTES / row_bytes : 0;
  specialise_choice *few = next_choice(choices, &count, &next, tagged, rows_max), *many;
  plan_dim x = per_rows(row_bytes / 8 * (a->count - 1), 512);
  x.cap = EXCHANGE_BLOCKS_MAX;
  if (few) choose_rows(few, 512, x, constant(1));
  if (few) add_spec(few, "SPEC_TAGGED", 1);
  many = next_choice(choices, &count, &next, UINT32_MAX, rows_max);
  x.rows_mul = row_bytes / 8;
  x.rows_div = 8 * 512 * (a->form == EXCHANGE_ROWS ? a->count : 1);
  if (many) choose_rows(many, 512, x, constant(1));
  if (many) add_spec(many, "SPEC_TAGGED", 0);
  return count;
}

static plan_dim slices(const adjust_args *a) { return constant((uint32_t)div_up(a->vocab, ADJUST_SLICE)); }

static plan_dim fold_slices(const moe_fold_args *a) { return constant((uint32_t)div_up(a->columns, MOE_FOLD_COLUMNS)); }

static product product_of(uint32_t kernel, const void *args) {
  const gemm_args *plain = args;
  const gemm_bias_args *biased = args;
  const moe_gemm_args *of_experts = args;
  const fp8_gemm_args *scaled = args;
  const fp8_moe_gemm_args *scaled_of_experts = args;
  switch (kernel) {
    case OP_gemm_bias: return (product){biased->n, biased->k, biased->y_kind, 1, 0, false, false};
    case OP_gemm: return (product){plain->n, plain->k, plain->y_kind, plain->batches, 0, false, false};
    case OP_moe_gemm:
      return (product){of_experts->n, of_experts->k, of_experts->y_kind, of_experts->experts, of_experts->top_k, false, false};
    case OP_fp8_gemm: return (product){scaled->n, scaled->k / 2, scaled->y_kind, 1, 0, true, scaled->order == ORDER_FIRST};
    case OP_fp8_moe_gemm: break;
    default: return (product){0};
  }
  return (product){scaled_of_experts->n, scaled_of_experts->k / 2, scaled_of_experts->y_kind, scaled_of_experts->experts,
                   scaled_of_experts->top_k, true, false};
}

uint32_t specialise_op(uint32_t kernel, const void *args, uint32_t rows_min, uint32_t rows_max,
                       specialise_choice choices[SPECIALISE_CHOICES_MAX]) {
  ASSERT(kernel < OP_COUNT);
  ASSERT(rows_min >= 1 && rows_min <= rows_max);
  specialise_choice *choice = &choices[0];
  const product a = product_of(kernel, args);
  if (kernel == OP_gemm || kernel == OP_gemm_bias || kernel == OP_fp8_gemm) return choose_gemm(&a, rows_min, rows_max, choices);
  if (kernel == OP_moe_gemm || kernel == OP_fp8_moe_gemm) return choose_moe_gemm(&a, rows_min, rows_max, choices);
  if (kernel == OP_rmsnorm) return choose_rmsnorm(args, rows_min, rows_max, choices);
  if (kernel == OP_index_score) return choose_index_score(args, rows_min, rows_max, choices);
  if (kernel == OP_index_topk) return choose_index_topk(args, rows_min, rows_max, choices);
  if (kernel == OP_qkv_rope) return choose_qkv_rope(args, rows_min, rows_max, choices);
  if (kernel == OP_kv_rope) return choose_kv_rope(args, rows_min, rows_max, choices);
  if (kernel == OP_exchange) return choose_exchange(args, rows_min, rows_max, choices);
  if (kernel == OP_mla_attn) return choose_mla_attn(args, rows_min, rows_max, choices);
  *choice = (specialise_choice){.rows_min = rows_min, .rows_max = rows_max};
  switch (kernel) {
    case OP_embed: choose_rows(choice, 128, per_rows(1, 1), constant(1)); break;
    case OP_index_qk: choose_rows(choice, 128, per_rows(((const index_qk_args *)args)->heads + 1, INDEX_QK_ROWS), constant(1)); break;
    case OP_attn_cut: choose_rows(choice, ATTN_CUT_TILES, constant(1), constant(1)); break;
    case OP_mla_expand:
      set_many(choice, &ALONE, false, 0);
      if (!((const mla_expand_args *)args)->block_table) add_spec(choice, "SPEC_PIECES", 1);
      break;
    case OP_mla_prefill: choose_mla_prefill(args, choice); break;
    case OP_attn: choose_attn(args, choice); break;
    case OP_mla_fold: choose_mla_fold(args, choice); break;
    case OP_attn_fold:
      choose_rows(choice, 64, fold_blocks(args), constant(1));
      choice->shared_bytes = ATTN_FOLD_BYTES(64);
      break;
    case OP_router:
      if (((const router_args *)args)->sorts) choose_rows(choice, rows_max > 4 ? 512 : 128, constant(1), constant(1));
      else choose_rows(choice, 128, per_rows(1, 4), constant(1));
      break;
    case OP_moe_sort: choose_rows(choice, 1024, sort_blocks(args), constant(1)); break;
    case OP_act_quant: choose_rows(choice, 256, quant_blocks(args), constant(1)); break;
    case OP_kv_widen:
      choose_rows(choice, 128, constant(6 * SPECIALISE_BLOCKS), constant(1));
      if (!((const kv_widen_args *)args)->table) add_spec(choice, "SPEC_PIECES", 1);
      break;
    case OP_rank_norm: choose_rank_norm(args, choice); break;
    case OP_moe_fold: choose_rows(choice, MOE_FOLD_COLUMNS / 4, per_rows(1, 1), fold_slices(args)); break;
    case OP_adjust: choose_rows(choice, 512, per_rows(1, 1), slices(args)); break;
    case OP_sample:
      choose_rows(choice, 512, per_rows(1, 1), constant(ROW_BLOCKS));
      choice->shared_bytes = SAMPLE_PART_BYTES(((const sample_args *)args)->vocab);
      break;
    case OP_row_digest: choose_rows(choice, 1024, per_rows(1, 1), constant(ROW_BLOCKS)); break;
    default: choose_rows(choice, 256, per_rows(1, 1), constant(1)); break;
  }
  return 1;
}

static bool is_same(const draft *plan, const plan_kernel *row, uint32_t kernel, const specialise_choice *choice) {
  if (row->kernel != kernel || row->threads != choice->threads || row->shared_bytes != choice->shared_bytes) return false;
  if (row->spec_count != choice->spec_count) return false;
  const plan_spec *specs = (const plan_spec *)plan->specs.items + row->first_spec;
  for (uint32_t i = 0; i < choice->spec_count; i++)
    if (specs[i].value != choice->specs[i].value || strcmp(draft_string_at(plan, specs[i].name), choice->specs[i].name) != 0) return false;
  return true;
}

uint32_t specialise_kernel(draft *plan, uint32_t kernel, const specialise_choice *choice) {
  const plan_kernel *rows = plan->kernels.items;
  for (uint32_t i = 0; i < plan->kernels.count; i++)
    if (is_same(plan, &rows[i], kernel, choice)) return i;
  uint32_t index = plan->kernels.count;
  plan_kernel row = {.kernel = kernel, .first_spec = plan->specs.count, .spec_count = choice->spec_count, .threads = choice->threads,
                     .shared_bytes = choice->shared_bytes};
  for (uint32_t i = 0; i < choice->spec_count; i++) {
    uint32_t name = draft_string(plan, "%s", choice->specs[i].name);
    *(plan_spec *)draft_append(&plan->specs, 1) = (plan_spec){name, choice->specs[i].value};
  }
  *(plan_kernel *)draft_append(&plan->kernels, 1) = row;
  return index;
}

/* self_check/images.h - how the images of the self-check's probes are made: buffers surrounded by poison, and numbers from integers alone.
 *
 * Private to this folder. Changing anything here changes the answers of probes. */
#ifndef VERBATIM_SELF_CHECK_IMAGES_H
#define VERBATIM_SELF_CHECK_IMAGES_H
#include "self_check/cases.h"
#include "kernels_src/num.h"

/* === Images ================================================================================================================= */

/* A buffer of the image, filled with poison and followed by poison. */
static inline void *take(self_check_image *image, uint64_t bytes) {
  uint64_t at = image->used;
  image->used = align_up(at + bytes + 64, 256);
  ASSERT(image->used <= SELF_CHECK_BYTES);
  memset(image->bytes + at, 0xff, image->used - at);
  return image->bytes + at;
}

static inline const step_in *take_step(self_check_image *image, u32 tokens, u32 logits, u32 tiles) {
  step_in *step = take(image, sizeof *step);
  *step = (step_in){.token_count = tokens, .logit_count = logits, .tile_count = tiles, .seq_count = 1};
  image->launch->rows = tokens > logits ? tokens : logits;
  return step;
}

/* The end of the judged part: buffers allocated after this may hold anything when the op has run. */
static inline void end_judged(self_check_image *image) { image->launch->judged_bytes = image->used; }

/* Rows after the step's own are launched as well, since a grid may be larger than the step. */
static inline void set_launch(self_check_image *image, const void *args, size_t args_bytes, u32 x, u32 y, u32 z) {
  u32 *items = image->launch->grid_items;
  items[0] = x;
  items[1] = y;
  items[2] = z;
  memcpy(image->launch->args, args, args_bytes);
}

#define LAUNCH(image, args, x, y, z) set_launch((image), &(args), sizeof(args), (x), (y), (z))

/* === Numbers ================================================================================================================ */

static inline u64 random_bits(self_check_image *image) { return random_next(&image->random); }

static inline u32 random_below(self_check_image *image, u32 limit) { return (u32)((random_bits(image) >> 32) * limit >> 32); }

/* Numbers of both signs, exponents from `low` on; some are ties of the rounding to bf16, some zero, some subnormal. */
static inline void fill_f32(self_check_image *image, f32 *out, u32 count, i32 low, u32 exponents) {
  for (u32 i = 0; i < count; i++) {
    u64 r = random_bits(image);
    u32 sign = (u32)(r >> 63) << 31, fraction = r & 0x7fffff, field = (u32)(127 + low) + (u32)(r >> 40 & 0xffff) % exponents;
    switch (r >> 24 & 63) {
      case 0: fraction = (fraction & ~0xffffu) | 0x8000u; break;
      case 1: field = fraction = 0; break;
      case 2: field = 0; break;
      default: break;
    }
    out[i] = num_float(sign | field << 23 | fraction);
  }
}

static inline void fill_bf16(self_check_image *image, bf16 *out, u32 count, i32 low, u32 exponents) {
  for (u32 i = 0; i < count; i++) {
    u64 r = random_bits(image);
    u32 field = (u32)(127 + low) + (u32)(r >> 40 & 0xffff) % exponents;
    out[i] = (bf16)((r >> 63) << 15 | field << 7 | (r & 127));
  }
}

/* One large number per row, and many small ones, whose squares are lost if added to the large one one by one, but not if added to each
 * other first: the order of a sum of squares shows. */
static inline void fill_spiky(self_check_image *image, f32 *out, u32 count, u32 row) {
  for (u32 i = 0; i < count; i++) {
    u64 r = random_bits(image);
    out[i] = i % row == 0 ? 1.0f : num_float((u32)(r >> 63) << 31 | 114u << 23 | 0x340000u | (u32)(r & 0x3ffff)); /* near 1.4 * 2^-13 */
  }
}

/* The factor of a term of a sum: of four consecutive terms two cancel and two are small, and the bits that remain of the small ones depend
 * on the partial sum they were added to. The order of the sum shows, even in bf16; so does the reversed order, since the cancelling terms
 * are adjacent. */
static inline f32 order_share(u32 term, u32 column) {
  static const f32 shares[] = {1.0f, -1.0f, 0x1p-19f, 0x1p-20f};
  return shares[(term + column) % ARRAY_LEN(shares)];
}

enum product_kind { PRODUCT_PLAIN, PRODUCT_WIDE, PRODUCT_CANCELLING, PRODUCT_SUBNORMAL, PRODUCT_ZEROS, PRODUCT_LONGEST, PRODUCT_KINDS };

static inline bf16 pack(u64 r, i32 exponent) { return (bf16)((r >> 63) << 15 | (u32)(127 + exponent) << 7 | (r & 127)); }

/* k numbers of one operand's row; side 0: x, 1: w. The corners of the tensor-core rule: truncated terms, sums that cancel except for a last
 * bit, subnormal factors, zeros of both signs, the longest significands. */
static inline void fill_product(self_check_image *image, bf16 *out, u32 k, u32 kind, u32 side) {
  for (u32 i = 0; i < k; i++) {
    u64 r = random_bits(image);
    i32 spread = (i32)(r >> 16 & 0xffff);
    switch (kind) {
      case PRODUCT_WIDE: out[i] = pack(r, spread % 81 - 40); break;
      case PRODUCT_SUBNORMAL: out[i] = pack(r, side ? spread % 60 - 40 : spread % 4 - 127); break;
      case PRODUCT_ZEROS: out[i] = r >> 8 & 3 ? (bf16)((r >> 63) << 15) : pack(r, spread % 9 - 8); break;
      case PRODUCT_LONGEST: out[i] = pack((u64)(r >> 60 == 0) << 63 | 127, 0); break;
      default: out[i] = pack(r, spread % 9 - 8); break;
    }
    if (kind == PRODUCT_CANCELLING && i % 2) out[i] = (bf16)(out[i - 1] ^ (side ? 0 : 0x8000u) ^ (r >> 8 & 7 ? 0 : 1));
  }
}

/* One step of products below 2^-133, the least E of the rule, then zeros: the sums are subnormal. */
static inline void fill_least(self_check_image *image, bf16 *out, u32 k, u32 side) {
  memset(out, 0, k * 2ull);
  for (u32 i = 0; i < 16; i++) {
    u64 r = random_bits(image);
    out[i] = pack(r, side ? -12 - (i32)(r >> 16 & 15) : -127);
  }
}

#define PLACED 3u
#define PLACED_PAGES 9u
typedef struct places { /* positions of a step's tokens, each just before or after the end of a page */
  u32 count, position[6], seq[6];
} places;

static const places few_places = {PLACED, {63, 130, 64}, {2, 0, 2}};
/* Every row at the end of a page follows a row of another sequence. */
static const places mixed_places = {6, {130, 63, 127, 64, 128, 63}, {0, 2, 1, 2, 1, 0}};

/* Block table rows of three pages for three sequences. */
static inline void take_places(self_check_image *image, const places *p, const u32 **position, const u32 **seq, const u32 **block_table) {
  u32 *out[] = {take(image, (p->count + 1) * 4), take(image, (p->count + 1) * 4), take(image, PLACED_PAGES * 4)};
  memcpy(out[0], p->position, p->count * sizeof *p->position);
  memcpy(out[1], p->seq, p->count * sizeof *p->seq);
  for (u32 i = 0; i < PLACED_PAGES; i++) out[2][i] = (i * 5 + 2) % PLACED_PAGES;
  *position = out[0];
  *seq = out[1];
  *block_table = out[2];
}

/* === Of several ops ========================================================================================================= */

static inline const f32 *take_layer_scale(self_check_image *image) {
  f32 *scale = take(image, sizeof *scale);
  *scale = 0x1.9p-10f;
  return scale;
}

/* quick: only kinds that a fast path of the CPU backend also computes, for larger shapes. */
static inline u32 kind_of(u32 row, bool quick) { return quick ? (row % 2 ? PRODUCT_CANCELLING : PRODUCT_PLAIN) : row % PRODUCT_KINDS; }

/* Three contexts on scattered pages, five pages in all, at most two each: the last page of each context is not full. */
#define CONTEXTS 3u
#define CONTEXT_STRIDE 2u
#define CONTEXT_PAGES 7u

static inline const step_in *take_contexts(self_check_image *image, const step_context **contexts, const u32 **block_table) {
  static const step_context all[CONTEXTS] = {{0, 100, 2, 0}, {2, 50, 0, 0}, {3, 129 - PAGE_TOKENS, 1, 0}};
  step_context *out = take(image, sizeof all);
  u32 *table = take(image, CONTEXTS * CONTEXT_STRIDE * 4);
  memcpy(out, all, sizeof all);
  for (u32 i = 0; i < CONTEXTS * CONTEXT_STRIDE; i++) table[i] = (i * 3 + 2) % CONTEXT_PAGES;
  *contexts = out;
  *block_table = table;
  step_in *step = take(image, sizeof *step);
  *step = (step_in){.token_count = 1, .tile_count = 1, .seq_count = CONTEXTS};
  image->launch->rows = 1;
  return step;
}

static const sample_param PLAIN = {.top_p_fixed = 1ull << 32, .repetition = 1, .min_p_bound = -INFINITY, .target = -1, .prompt_count = 1};

#endif

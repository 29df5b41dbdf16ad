/* cli/probe.c - `verbatim probe`: which cuBLASLt algorithms give our bits on this machine, and their speed and our kernel's.
 *
 * For every GEMM shape of some plans and every range of row counts, it searches in four steps. It estimates the library's configurations at
 * a few row counts: first every tile, then all configurations around the fast ones. It estimates those again at both ends of the range. It
 * compares the fastest with our kernel bit for bit on random inputs, twice, and times them. The fastest that agrees goes into a profile for
 * `verbatim plan --profile`, together with the fastest that does not agree, marked, to measure what agreement costs. A profile can only
 * change speed, because the engine compares again at every start. Read next: bench/probe_gpu.h, planner/profile.h. */
#include "cli/cli.h"
#include "common/files.h"
#include "bench/probe_gpu.h"
#include "base/clock.h"
#include "base/whole_file.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLANS_MAX 16u
#define POOL_MAX 8192u       /* configurations of one shape */
#define IDS_MAX 8u           /* algorithms that the library offers */
#define NEAR_MAX 16u         /* tiles around which all configurations are tried */
#define GUESSED_MAX 1024u    /* configurations estimated for one range */
#define FINALISTS_MAX 16u    /* configurations timed */
#define FAST_PLAIN 24u       /* fastest configurations without split-K kept per row count, where all are estimated */
#define FAST_SPLIT 12u       /* the same with split-K */
#define CERTIFIED 3u         /* finalists with our bits, at each end of a range */
#define OTHERS 2u            /* finalists with other bits */
#define TRIES_MAX 32u        /* comparisons at each end */
#define INNER 3u             /* row counts tried between the ends of a range that is divided */
#define PART_ROWS_MIN 31u    /* shorter ranges are not divided */
#define LOSS 1.06            /* nor ranges in which one algorithm loses less than this at both ends together */
#define NOISE 0.98           /* an algorithm less than 2 % faster than ours is not used */
#define BETWEEN_US 4.0       /* nor one that saves less than this: its kernels do not overlap with ours. 108 such products in a step of 64
                              * sequences of V2-Lite on an H200 took 9,800 us, ours 9,377, though each of them alone is a little faster */

typedef struct candidate {
  gemm_lt_op op;
  bool plain;                /* no split-K */
  double guess[2], us[2];    /* at both ends of the range */
  bool certified;
} candidate;

typedef struct pool_entry {
  gemm_lt_algo algo;
  gemm_lt_config config;
  double guess;              /* at the current row count; NAN: not estimated yet, INFINITY: does not run there */
  bool is_kept;
} pool_entry;

static bool is_plain(gemm_lt_config config) { return config.split_k <= 1 && config.reduction == 0; }

typedef struct range {
  uint32_t rows[2];
  double own_us[2];
} range;

typedef struct probe {
  bench_probe_gpu *gpu;
  gemm_lt *library;
  const bench_probe_product *product;
  pool_entry *pool;          /* [POOL_MAX] */
  uint32_t pool_count, guesses;
  gemm_lt_algo *offered;     /* [POOL_MAX], scratch */
  candidate *guessed;        /* [GUESSED_MAX] */
  candidate *finalists;      /* [FINALISTS_MAX] */
  uint32_t guessed_count, finalist_count, rows_max;
  json_t *entries, *points;
  double logs[2][2];         /* sums of log(ours / the library's best): [best with our bits, best of all][rows up to 32, more rows] */
  uint32_t log_counts[2];
  const char *plans[PLANS_MAX], *output_path, *json_path, *cache_dir;
  uint32_t plan_count, device_index;
  bool offered_only;
} probe;

/* === The pool of a shape =================================================================================================== */

static void add_to_pool(probe *self, const gemm_lt_algo *algos, uint32_t count) {
  for (uint32_t i = 0; i < count && self->pool_count < POOL_MAX; i++) {
    uint32_t at = 0;
    while (at < self->pool_count && memcmp(self->pool[at].algo.words, algos[i].words, sizeof algos[i].words) != 0) at++;
    if (at < self->pool_count) continue;
    const gemm_lt_config config = gemm_lt_config_of(self->library, &algos[i]);
    self->pool[self->pool_count++] = (pool_entry){.algo = algos[i], .config = config, .guess = NAN};
  }
}

/* Adds every tile of the algorithms that the library offers for some row count. It knows other, older kernels, but never offers them on
 * this GPU: cuBLASLt 13.1 has 17 of them, and the fastest took 1.5 times as long (11.8 us instead of 7.0 us: n 3648, k 2048, 16 rows). */
static status add_tiles(probe *self, uint32_t rows) {
  const gemm_lt_shape *lt = &self->product->lt;
  uint32_t ids[IDS_MAX], id_count = 0, count = 0;
  for (uint32_t i = 0; i < self->pool_count && id_count < IDS_MAX; i++) {
    const pool_entry like = self->pool[i];
    uint32_t at = 0;
    while (at < id_count && ids[at] != like.config.id) at++;
    if (at < id_count) continue;
    ids[id_count++] = like.config.id;
    const status listed =
        gemm_lt_list(self->library, lt, rows, BENCH_PROBE_WORKSPACE_BYTES, GEMM_LT_TILES, &like.algo, self->offered, POOL_MAX, &count);
    if (listed == OK) add_to_pool(self, self->offered, count);
  }
  fail_clear();
  return OK;
}

static int compare_guesses(const void *a, const void *b) {
  const double x = ((const pool_entry *)a)->guess, y = ((const pool_entry *)b)->guess;
  return (x > y) - (x < y);
}

/* Estimates the entries not yet estimated at this row count, and sorts all. */
static void guess_pool(probe *self, uint32_t rows) {
  for (uint32_t i = 0; i < self->pool_count; i++) {
    pool_entry *entry = &self->pool[i];
    gemm_lt_op op;
    uint64_t bytes = 0;
    double us = INFINITY;
    if (!isnan(entry->guess)) continue;
    entry->guess = INFINITY;
    if (gemm_lt_prepare(self->library, &self->product->lt, &entry->algo, &op) != OK) continue;
    if (gemm_lt_check(self->library, &op, rows, &bytes) != OK || bytes > BENCH_PROBE_WORKSPACE_BYTES) continue;
    op.algo.workspace_bytes = bytes;
    if (bench_probe_gpu_guess(self->gpu, &op, &us) == OK) entry->guess = us;
    self->guesses++;
  }
  fail_clear();
  qsort(self->pool, self->pool_count, sizeof *self->pool, compare_guesses);
}

/* Adds configurations near the fastest so far, each tile and number of stages once; or split-K variants of the fastest without split-K. */
static void extend_pool(probe *self, uint32_t rows, gemm_lt_list_kind kind) {
  gemm_lt_algo fast[NEAR_MAX];
  gemm_lt_config configs[NEAR_MAX];
  uint32_t kept = 0, count = 0;
  for (uint32_t i = 0; i < self->pool_count && kept < NEAR_MAX && self->pool[i].guess < INFINITY; i++) {
    const gemm_lt_config c = self->pool[i].config;
    bool is_new = is_plain(c);
    for (uint32_t k = 0; k < kept && is_new; k++)
      is_new = configs[k].id != c.id || configs[k].tile != c.tile || configs[k].stages != c.stages;
    if (!is_new) continue;
    configs[kept] = c;
    fast[kept++] = self->pool[i].algo;
  }
  for (uint32_t k = 0; k < kept; k++)
    if (gemm_lt_list(self->library, &self->product->lt, rows, BENCH_PROBE_WORKSPACE_BYTES, kind, &fast[k], self->offered, POOL_MAX,
                     &count) == OK)
      add_to_pool(self, self->offered, count);
  fail_clear();
}

/* Estimates at a few row counts and keeps the fast ones of each. */
static status search_pool(probe *self) {
  static const uint32_t anchors[] = {16, 128, 1024};
  self->pool_count = self->guesses = 0;
  for (uint32_t rows = 1; rows <= 4096; rows *= 2) {
    uint32_t count = 0;
    if (gemm_lt_offered(self->library, &self->product->lt, rows, BENCH_PROBE_WORKSPACE_BYTES, self->offered, POOL_MAX, &count) == OK)
      add_to_pool(self, self->offered, count);
  }
  for (size_t a = 0; a < ARRAY_LEN(anchors) && (a == 0 || anchors[a] <= self->product->rows_max); a++) {
    const uint32_t rows = min_u32(anchors[a], self->product->rows_max);
    TRY(bench_probe_gpu_begin(self->gpu, self->product, rows));
    for (uint32_t i = 0; i < self->pool_count; i++) self->pool[i].guess = NAN;
    if (!self->offered_only) {
      TRY(add_tiles(self, rows));
      guess_pool(self, rows);
      extend_pool(self, rows, GEMM_LT_NEAR);
      guess_pool(self, rows);
      extend_pool(self, rows, GEMM_LT_SPLITS);
    }
    guess_pool(self, rows);
    uint32_t plain = 0, split = 0;
    for (uint32_t i = 0; i < self->pool_count && self->pool[i].guess < INFINITY; i++)
      if (is_plain(self->pool[i].config) ? plain++ < FAST_PLAIN : split++ < FAST_SPLIT) self->pool[i].is_kept = true;
  }
  return OK;
}

/* === The finalists of a range ============================================================================================== */

static void add_guessed(probe *self, const gemm_lt_algo *algo) {
  uint32_t at = 0;
  while (at < self->guessed_count && memcmp(self->guessed[at].op.algo.words, algo->words, sizeof algo->words) != 0) at++;
  if (at < self->guessed_count || at == GUESSED_MAX) return;
  candidate *c = &self->guessed[at];
  *c = (candidate){0};
  if (gemm_lt_prepare(self->library, &self->product->lt, algo, &c->op) != OK) return;
  c->plain = is_plain(gemm_lt_config_of(self->library, algo));
  self->guessed_count++;
}

static void collect_guessed(probe *self, const range *r) {
  self->guessed_count = 0;
  for (uint32_t i = 0; i < self->pool_count; i++)
    if (self->pool[i].is_kept) add_guessed(self, &self->pool[i].algo);
  for (int end = 0; end < 2; end++) {
    uint32_t count = 0;
    const status asked = gemm_lt_offered(self->library, &self->product->lt, r->rows[end], BENCH_PROBE_WORKSPACE_BYTES, self->offered,
                                         POOL_MAX, &count);
    for (uint32_t i = 0; asked == OK && i < count; i++) add_guessed(self, &self->offered[i]);
  }
  fail_clear(); /* a shape that the library does not know is not an error here */
}

/* Whether the algorithm runs within the workspace at every step-th row count of the range, both ends included. Its workspace size becomes
 * the largest needed. */
static bool serves(probe *self, gemm_lt_op *op, uint32_t first, uint32_t last, uint32_t step) {
  uint64_t most = 0;
  for (uint32_t rows = first;; rows = last - rows < step ? last : rows + step) {
    uint64_t bytes = 0;
    if (gemm_lt_check(self->library, op, rows, &bytes) != OK || bytes > BENCH_PROBE_WORKSPACE_BYTES) {
      fail_clear();
      return false;
    }
    if (bytes > most) most = bytes;
    if (rows == last) break;
  }
  op->algo.workspace_bytes = most;
  return true;
}

static int at_first(const void *a, const void *b) {
  const double x = ((const candidate *)a)->guess[0], y = ((const candidate *)b)->guess[0];
  return (x > y) - (x < y);
}

static int at_last(const void *a, const void *b) {
  const double x = ((const candidate *)a)->guess[1], y = ((const candidate *)b)->guess[1];
  return (x > y) - (x < y);
}

static candidate *find_finalist(probe *self, const candidate *c) {
  for (uint32_t i = 0; i < self->finalist_count; i++)
    if (memcmp(self->finalists[i].op.algo.words, c->op.algo.words, sizeof c->op.algo.words) == 0) return &self->finalists[i];
  return NULL;
}

static status guess_end(probe *self, const range *r, int end) {
  TRY(bench_probe_gpu_begin(self->gpu, self->product, r->rows[end]));
  for (uint32_t i = 0; i < self->guessed_count; i++) {
    candidate *c = &self->guessed[i];
    double us = INFINITY;
    if (end == 0 && !serves(self, &c->op, r->rows[0], r->rows[1], r->rows[1])) c->guess[1] = INFINITY;
    else if (c->guess[1] < INFINITY && bench_probe_gpu_guess(self->gpu, &c->op, &us) != OK) us = INFINITY;
    c->guess[end] = us;
  }
  fail_clear();
  return OK;
}

/* Chooses the estimated fastest with our bits at this end, and the fastest with other bits; the device holds our result for comparison. */
static void choose_finalists(probe *self, int end) {
  uint32_t certified = 0, others = 0, tries = 0;
  for (uint32_t i = 0; i < self->guessed_count && certified < CERTIFIED && tries < TRIES_MAX; i++) {
    candidate *c = &self->guessed[i];
    if (c->guess[end] == INFINITY || self->finalist_count == FINALISTS_MAX) break;
    if (!c->plain && others >= OTHERS) continue;
    const candidate *known = find_finalist(self, c);
    const bool good = known && !known->certified ? false : bench_probe_gpu_agrees(self->gpu, &c->op);
    tries++;
    if (good) certified++;
    else if (++others > OTHERS) continue;
    if (known) continue;
    self->finalists[self->finalist_count] = *c;
    self->finalists[self->finalist_count++].certified = true; /* until a comparison fails */
  }
}

static status find_finalists(probe *self, range *r) {
  self->finalist_count = 0;
  collect_guessed(self, r);
  const int ends = r->rows[0] == r->rows[1] ? 1 : 2;
  for (int end = 0; end < ends; end++) {
    TRY(guess_end(self, r, end));
    qsort(self->guessed, self->guessed_count, sizeof *self->guessed, end ? at_last : at_first);
    choose_finalists(self, end);
  }
  for (int end = 0; end < ends; end++) {
    TRY(bench_probe_gpu_begin(self->gpu, self->product, r->rows[end]));
    TRY(bench_probe_gpu_time(self->gpu, NULL, &r->own_us[end]));
    for (uint32_t i = 0; i < self->finalist_count; i++) {
      candidate *c = &self->finalists[i];
      c->certified = c->certified && bench_probe_gpu_agrees(self->gpu, &c->op);
      if (bench_probe_gpu_time(self->gpu, &c->op, &c->us[end]) != OK) c->us[end] = INFINITY;
    }
  }
  fail_clear(); /* an algorithm that does not run is not an error here */
  if (ends == 2) return OK;
  r->own_us[1] = r->own_us[0];
  for (uint32_t i = 0; i < self->finalist_count; i++) self->finalists[i].us[1] = self->finalists[i].us[0];
  return OK;
}

/* === The result of a range ================================================================================================= */

static double mean(const double us[2]) { return sqrt(us[0] * us[1]); }

/* The fastest over the range, with our bits or with others, that runs every row count in it; or NULL. */
static candidate *fastest(probe *self, const range *r, bool certified) {
  for (;;) {
    candidate *best = NULL;
    for (uint32_t i = 0; i < self->finalist_count; i++) {
      candidate *c = &self->finalists[i];
      if (c->certified == certified && mean(c->us) < INFINITY && (!best || mean(c->us) < mean(best->us))) best = c;
    }
    if (!best || serves(self, &best->op, r->rows[0], r->rows[1], 1)) return best;
    best->us[0] = INFINITY;
  }
}

static status add_entry(probe *self, const range *r, const candidate *c, bool use) {
  const gemm_lt_shape *lt = &self->product->lt;
  json_t *words = json_array();
  for (int i = 0; i < 8; i++) {
    char digits[17];
    snprintf(digits, sizeof digits, "%llx", (unsigned long long)c->op.algo.words[i]);
    json_array_append_new(words, json_string(digits));
  }
  json_t *entry = json_pack("{s:i, s:i, s:s, s:i, s:i, s:o, s:I, s:f, s:f, s:b, s:b}", "n", (int)lt->n, "k", (int)lt->k, "out",
                            lt->y_f32 ? "f32" : "bf16", "rows_min", (int)r->rows[0], "rows_max", (int)r->rows[1], "algo", words,
                            "workspace_bytes", (json_int_t)c->op.algo.workspace_bytes, "us", mean(c->us), "own_us", mean(r->own_us),
                            "certified", c->certified, "use", use);
  if (!entry || json_array_append_new(self->entries, entry) != 0) return FAIL(ERR_LIMIT, "no memory for a profile entry");
  return OK;
}

static double least(const probe *self, int end, bool certified_only) {
  double best = INFINITY;
  for (uint32_t i = 0; i < self->finalist_count; i++) {
    const candidate *c = &self->finalists[i];
    if ((c->certified || !certified_only) && c->us[end] < best) best = c->us[end];
  }
  return best;
}

/* Writes one line of the table, and its figures to the file. */
static status report_point(probe *self, const range *r, int end, const candidate *used) {
  const gemm_lt_shape *lt = &self->product->lt;
  const double own = r->own_us[end], class_us = least(self, end, true), all_us = least(self, end, false);
  const double ours = used ? used->us[end] : own;
  const double bytes = 2.0 * lt->n * lt->k + 2.0 * r->rows[end] * lt->k + (lt->y_f32 ? 4.0 : 2.0) * r->rows[end] * lt->n;
  const double flops = 2.0 * lt->n * lt->k * r->rows[end];
  printf("%7u %6u %-4s %5u %9.2f %9.2f %9.2f %6.2f %6.2f %6.2f %7.0f %7.1f %s\n", lt->n, lt->k, lt->y_f32 ? "f32" : "bf16", r->rows[end],
         own, class_us, all_us, own / class_us, own / all_us, ours / all_us, bytes / ours / 1e3, flops / ours / 1e6,
         used ? "library" : "ours");
  fflush(stdout);
  const int large = r->rows[end] > 32;
  self->logs[large][0] += log(own / all_us);
  self->logs[large][1] += log(ours / all_us);
  self->log_counts[large]++;
  json_t *point = json_pack("{s:i, s:i, s:s, s:i, s:f, s:f, s:b}", "n", (int)lt->n, "k", (int)lt->k, "out", lt->y_f32 ? "f32" : "bf16",
                            "rows", (int)r->rows[end], "own_us", own, "used_us", ours, "library", used != NULL);
  if (point && class_us < INFINITY) json_object_set_new(point, "class_us", json_real(class_us));
  if (point && all_us < INFINITY) json_object_set_new(point, "all_us", json_real(all_us));
  if (!point || json_array_append_new(self->points, point) != 0) return FAIL(ERR_LIMIT, "no memory for a figure");
  return OK;
}

static candidate *fastest_at(probe *self, int end) {
  candidate *best = NULL;
  for (uint32_t i = 0; i < self->finalist_count; i++) {
    candidate *c = &self->finalists[i];
    if (c->certified && mean(c->us) < INFINITY && (!best || c->us[end] < best->us[end])) best = c;
  }
  return best;
}

/* A tile that fills the GPU exactly once at the end of a range may waste half of it at the beginning. If the fastest algorithms of both
 * ends lose much at the other end, each gets a part of the range: both are timed at inner points, and the border is where the sum of
 * logarithms is smallest. False: one algorithm for the whole range. */
static bool divide(probe *self, const range *r, const candidate *whole, range parts[2], candidate chosen[2]) {
  const candidate *const ends[] = {fastest_at(self, 0), fastest_at(self, 1)};
  uint32_t rows[INNER];
  double us[2][INNER] = {{0}};
  if (!whole || r->rows[1] - r->rows[0] < PART_ROWS_MIN) return false;
  if (whole->us[0] * whole->us[1] < LOSS * ends[0]->us[0] * ends[1]->us[1]) return false;
  for (uint32_t i = 0; i < INNER; i++) {
    rows[i] = r->rows[0] + (r->rows[1] - r->rows[0]) * (i + 1) / (INNER + 1);
    if (bench_probe_gpu_begin(self->gpu, self->product, rows[i]) != OK) return false;
    for (int e = 0; e < 2; e++) {
      gemm_lt_op op = ends[e]->op;
      if (!bench_probe_gpu_agrees(self->gpu, &op) || bench_probe_gpu_time(self->gpu, &op, &us[e][i]) != OK) return false;
    }
  }
  uint32_t border = 0; /* number of inner points in the first part */
  double least_sum = INFINITY;
  for (uint32_t b = 0; b <= INNER; b++) {
    double sum = 0;
    for (uint32_t i = 0; i < INNER; i++) sum += log(us[i < b ? 0 : 1][i]);
    if (sum < least_sum) least_sum = sum, border = b;
  }
  if (border == 0) return false;
  const uint32_t last = rows[border - 1];
  for (int e = 0; e < 2; e++) chosen[e] = *ends[e], parts[e] = *r;
  parts[0].rows[1] = last;
  parts[1].rows[0] = last + 1;
  chosen[0].us[1] = us[0][border - 1];
  chosen[1].us[0] = border < INNER ? us[1][border] : ends[1]->us[1];
  return serves(self, &chosen[0].op, r->rows[0], last, 1) && serves(self, &chosen[1].op, last + 1, r->rows[1], 1);
}

static status probe_range(probe *self, range *r) {
  TRY(find_finalists(self, r));
  candidate *certified = fastest(self, r, true), *other = fastest(self, r, false), chosen[2];
  range parts[2];
  const bool is_divided = divide(self, r, certified, parts, chosen);
  fail_clear();
  const double theirs = is_divided ? sqrt(chosen[0].us[0] * chosen[1].us[1]) : certified ? mean(certified->us) : INFINITY;
  const bool use = theirs + BETWEEN_US < NOISE * mean(r->own_us);
  if (is_divided)
    for (int e = 0; e < 2; e++) TRY(add_entry(self, &parts[e], &chosen[e], use));
  else if (certified) TRY(add_entry(self, r, certified, use));
  if (other && mean(other->us) < NOISE * (use ? theirs : mean(r->own_us))) TRY(add_entry(self, r, other, true));
  const candidate *const used[] = {is_divided ? &chosen[0] : certified, is_divided ? &chosen[1] : certified};
  TRY(report_point(self, r, 0, use ? used[0] : NULL));
  return r->rows[0] == r->rows[1] ? OK : report_point(self, r, 1, use ? used[1] : NULL);
}

static status probe_product(probe *self) {
  static const uint32_t lasts[] = {1, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096};
  const double begin = clock_seconds();
  TRY(search_pool(self));
  const double guessed = clock_seconds();
  uint32_t first = 1;
  for (size_t i = 0; i < ARRAY_LEN(lasts) && first <= self->product->rows_max; i++) {
    range r = {.rows = {first, min_u32(lasts[i], self->product->rows_max)}};
    first = lasts[i] + 1;
    if (!bench_probe_gpu_has(self->gpu, self->product, r.rows[0]) || !bench_probe_gpu_has(self->gpu, self->product, r.rows[1])) continue;
    TRY(probe_range(self, &r));
  }
  fprintf(stderr, "n %u k %u: %u configurations, %u guesses in %.1f s, the fast ones measured in %.1f s\n", self->product->lt.n,
          self->product->lt.k, self->pool_count, self->guesses, guessed - begin, clock_seconds() - guessed);
  return OK;
}

/* === Command =============================================================================================================== */

/* list: "entries" of a profile, or "points", all figures; one per line. */
static void write_lines(probe *self, FILE *file, const char *name, const json_t *list) {
  const gpu_info *info = bench_probe_gpu_info(self->gpu);
  size_t index;
  json_t *item;
  fprintf(file, "{\"device\": \"%s\", \"driver\": \"CUDA %u.%u\", \"library_version\": %llu, \"%s\": [", info->name,
          info->driver_version / 1000, info->driver_version % 1000 / 10, (unsigned long long)gemm_lt_version(self->library), name);
  json_array_foreach((json_t *)(uintptr_t)list, index, item) {
    fputs(index ? ",\n" : "\n", file);
    json_dumpf(item, file, JSON_REAL_PRECISION(6));
  }
  fputs("\n]}\n", file);
}

static status write_list(probe *self, const char *path, const char *name, const json_t *list) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&text, &bytes);
  if (!file) return FAIL(ERR_LIMIT, "no memory for %s", path);
  write_lines(self, file, name, list);
  const status result = fclose(file) == 0 ? whole_file_write(path, text, bytes) : FAIL(ERR_LIMIT, "no memory for %s", path);
  free(text);
  return result;
}

static const char help[] =
  "usage: verbatim probe PLAN... -o PROFILE.json [--json FIGURES.json] [--offered] [--device N]\n"
  "                      [--cache-dir DIR]\n"
  "       verbatim probe --copy MODEL_DIR [--threads N] [--device N] [--json]\n\n"
  "Measures which cuBLASLt algorithms give the bits of our gemm kernel for the shapes of the plans, and\n"
  "how fast they are. The profile is for `verbatim plan --profile`.\n"
  "--offered tries only what the library's heuristic offers: fewer algorithms, less time.\n"
  "--copy measures how fast the model's files can reach the GPU; compare with `verbatim run --stats`.\n\n"
  "Examples:\n"
  "  verbatim probe my.plan -o my.profile\n"
  "  verbatim plan MODEL_DIR -o my.plan --profile my.profile\n"
  "  verbatim probe --copy MODEL_DIR --threads 8\n";

static status read_device(probe *self, const char *value) {
  char *end = NULL;
  const char *digits = strncmp(value, "gpu:", 4) == 0 ? value + 4 : value;
  const unsigned long index = strtoul(digits, &end, 10);
  if (*digits < '0' || *digits > '9' || *end || index > 1023)
    return FAIL(ERR_USAGE, "probe: --device: expected a GPU's number, found \"%.40s\"", value);
  self->device_index = (uint32_t)index;
  return OK;
}

static status read_arguments(probe *self, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    const bool takes_value = !strcmp(word, "-o") || !strcmp(word, "--device") || !strcmp(word, "--cache-dir") || !strcmp(word, "--json");
    if (takes_value && !value) return FAIL(ERR_USAGE, "probe: %s: expected a value; hint: verbatim probe --help", word);
    if (!strcmp(word, "-o")) self->output_path = value;
    else if (!strcmp(word, "--json")) self->json_path = value;
    else if (!strcmp(word, "--cache-dir")) self->cache_dir = value;
    else if (!strcmp(word, "--offered")) self->offered_only = true;
    else if (!strcmp(word, "--device")) TRY(read_device(self, value));
    else if (word[0] == '-') return FAIL(ERR_USAGE, "probe: unexpected argument \"%.80s\"; hint: verbatim probe --help", word);
    else if (self->plan_count == PLANS_MAX) return FAIL(ERR_USAGE, "probe: more than %u plans", PLANS_MAX);
    else self->plans[self->plan_count++] = word;
    if (takes_value) i++;
  }
  if (!self->plan_count || !self->output_path)
    return FAIL(ERR_USAGE, "probe: expected a plan and -o PROFILE.json; hint: verbatim probe --help");
  return OK;
}

static status check_outputs(const probe *self) {
  cli_files_row files[2 + PLANS_MAX] = {{CLI_FILES_WRITTEN, self->output_path, "the profile"},
                                        {CLI_FILES_WRITTEN, self->json_path, "the measurements"}};
  for (uint32_t i = 0; i < self->plan_count; i++) files[2 + i] = (cli_files_row){CLI_FILES_READ, self->plans[i], "the plan"};
  TRY(cli_files_check_output(self->output_path)); /* the file is written completely or not at all */
  return cli_files_check(files, 2 + self->plan_count);
}

static void print_means(const probe *self) {
  static const char *const names[] = {"up to 32", "more than 32"};
  for (int large = 0; large < 2; large++)
    if (self->log_counts[large])
      printf("%s rows: ours / all %.3f, used / all %.3f (geometric means of %u)\n", names[large],
             exp(self->logs[large][0] / self->log_counts[large]), exp(self->logs[large][1] / self->log_counts[large]),
             self->log_counts[large]);
}

static status run(probe *self) {
  uint32_t count = 0;
  TRY(check_outputs(self));
  self->pool = calloc(POOL_MAX, sizeof *self->pool);
  self->offered = calloc(POOL_MAX, sizeof *self->offered);
  self->guessed = calloc(GUESSED_MAX, sizeof *self->guessed);
  self->finalists = calloc(FINALISTS_MAX, sizeof *self->finalists);
  self->entries = json_array();
  self->points = json_array();
  if (!self->pool || !self->offered || !self->guessed || !self->finalists || !self->entries || !self->points)
    return FAIL(ERR_LIMIT, "no memory for the probe");
  const dynlib_search libraries = {.folders = getenv("VERBATIM_LIBRARY_PATH"), .program_path = getenv("PATH")};
  TRY(bench_probe_gpu_open(self->plans, self->plan_count, self->device_index, &libraries, self->cache_dir, &self->gpu));
  self->library = bench_probe_gpu_library(self->gpu);
  const bench_probe_product *products = bench_probe_gpu_products(self->gpu, &count);
  printf("us: our kernel, cuBLASLt's fastest with our bits, its fastest of all; used: the faster of the first two\n"
         "      n      k out   rows      ours     class       all  o/cls  o/all  u/all    GB/s TFLOP/s used\n");
  for (uint32_t i = 0; i < count; i++) {
    self->product = &products[i];
    TRY(probe_product(self));
  }
  print_means(self);
  if (self->json_path) TRY(write_list(self, self->json_path, "points", self->points));
  return write_list(self, self->output_path, "entries", self->entries);
}

static void close_all(probe *self) {
  bench_probe_gpu_close(self->gpu);
  json_decref(self->entries);
  json_decref(self->points);
  free(self->pool);
  free(self->offered);
  free(self->guessed);
  free(self->finalists);
}

int cli_probe(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
    fputs(help, stdout);
    return 0;
  }
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--copy") == 0) return cli_copy(argc, argv);
  probe self = {0};
  status result = read_arguments(&self, argc, argv);
  if (result == OK) result = run(&self);
  close_all(&self);
  if (result != OK) fprintf(stderr, "verbatim: %s\n", fail_text());
  return fail_exit_code(result);
}

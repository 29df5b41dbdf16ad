/* eval/report/figure.c - see eval/report/figure.h. Positions are sums, products and quotients of binary64 printed with two decimals. The
 * only function of libm is sqrt, which is correctly rounded, so a page has the same bytes everywhere. */
#include "eval/report/figure.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Pixels. */
#define CURVES_HEIGHT 340.0
#define CURVES_FLOOR 300.0
#define CURVES_TOP 24.0
#define MOVED_HEIGHT 330.0
#define BARS_TOP 30.0
#define BARS_FLOOR 130.0
#define LANE_FLIPPED 180.0
#define LANE_KEPT 250.0
#define MOVED_FLOOR 290.0
#define DOT 3.0           /* radius of a dot for one item, if that makes no dot larger than DOT_MOST */
#define DOT_MOST 11.0
#define DOT_LEAST 1.2

#define TIES 0.035        /* position of margins of 0, as a share of the width */
#define INNER 1000.0      /* side of the inner picture of curves */

void eval_report_figure_patterns(FILE *to) {
  fputs("<svg class=\"defs\" aria-hidden=\"true\"><defs>", to);
  for (int i = 0; i < 2; i++)
    fprintf(to, "<pattern id=\"%s\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
                "<rect width=\"5\" height=\"5\" class=\"%s\" opacity=\"0.25\"/><rect width=\"2.2\" height=\"5\" class=\"%s\"/></pattern>",
            i ? "gain" : "lose", i ? "wrong" : "right", i ? "wrong" : "right");
  fputs("</defs></svg>\n", to);
}

static double inside(double share) { return share > 0 ? share < 1 ? share : 1 : 0; }

/* === Strips ================================================================================================================= */

static void begin_strip(FILE *to, int height) {
  fprintf(to, "<svg class=\"strip\" width=\"100%%\" height=\"%d\" role=\"img\"><title>", height);
}

static void put_bar(FILE *to, double from, double upto, double y, double height, const char *attributes) {
  if (upto > from)
    fprintf(to, "<rect x=\"%.2f%%\" y=\"%.1f\" width=\"%.2f%%\" height=\"%.1f\" %s/>", 100 * from, y, 100 * (upto - from), height,
            attributes);
}

static void put_mark(FILE *to, double x, double y1, double y2, const char *class) {
  fprintf(to, "<line x1=\"%.2f%%\" y1=\"%.1f\" x2=\"%.2f%%\" y2=\"%.1f\" class=\"%s\"/>", 100 * x, y1, 100 * x, y2, class);
}

void eval_report_figure_interval(FILE *to, double value, double low, double high) {
  begin_strip(to, 22);
  fprintf(to, "%.1f %%", 100 * value);
  if (isfinite(low) && isfinite(high)) fprintf(to, ", between %.1f and %.1f %%", 100 * low, 100 * high);
  fputs("</title>", to);
  for (int quarter = 0; quarter <= 4; quarter++) put_mark(to, quarter / 4.0, 2, 20, "grid");
  put_bar(to, 0, 1, 10.5, 1, "class=\"track\"");
  if (isfinite(low) && isfinite(high)) put_bar(to, inside(low), inside(high), 7.5, 7, "rx=\"3.5\" class=\"right\" opacity=\"0.38\"");
  fprintf(to, "<circle cx=\"%.2f%%\" cy=\"11\" r=\"5\" class=\"right ring\"/></svg>", 100 * inside(value));
}

void eval_report_figure_range(FILE *to, const eval_margin_risk *risk) {
  double low = eval_margin_lowest(risk), high = eval_margin_highest(risk);
  double score = risk->items ? (double)risk->right / (double)risk->items : 0;
  begin_strip(to, 22);
  fprintf(to, "%.1f %%; with every fragile answer against it %.1f %%, for it %.1f %%</title>", 100 * score, 100 * low, 100 * high);
  put_bar(to, 0, 1, 5, 12, "rx=\"2\" class=\"panel\"");
  put_bar(to, 0, low, 5, 12, "class=\"right\"");
  put_bar(to, low, score, 5, 12, "fill=\"url(#lose)\"");
  put_bar(to, score, high, 5, 12, "fill=\"url(#gain)\"");
  put_mark(to, score, 2, 20, "needle");
  fputs("</svg>", to);
}

void eval_report_figure_bins(FILE *to, const eval_margin_risk *risk) {
  const double height = 30, width = 1.0 / EVAL_MARGIN_BINS;
  uint64_t most = 1;
  for (uint32_t i = 0; i < EVAL_MARGIN_BINS; i++) {
    uint64_t sum = risk->bins[0][i] + risk->bins[1][i];
    most = sum > most ? sum : most;
  }
  begin_strip(to, 32);
  fprintf(to, "Margins of %" PRIu64 " items in powers of two, from a tie to 4096 ulps and more</title>", risk->known);
  for (uint32_t i = 0; i < EVAL_MARGIN_BINS; i++) {
    double right = height * (double)risk->bins[1][i] / (double)most, wrong = height * (double)risk->bins[0][i] / (double)most;
    if (wrong > 0 && wrong < 1.5) wrong = 1.5; /* keeps one item out of very many visible */
    if (right > 0) put_bar(to, i * width, (i + 0.86) * width, 31 - wrong - right, right, "class=\"right\"");
    if (wrong > 0) put_bar(to, i * width, (i + 0.86) * width, 31 - wrong, wrong, "class=\"wrong\"");
  }
  put_bar(to, 0, 1, 31, 1, "class=\"track\"");
  put_mark(to, (eval_margin_bin(EVAL_MARGIN_FRAGILE) - 0.07) * width, 0, 32, "limit");
  fputs("</svg>", to);
}

void eval_report_figure_seal(FILE *to, const char *digest) {
  if (!digest || strlen(digest) != 32 || strspn(digest, "0123456789abcdef") != 32) return;
  fputs("<svg class=\"seal\" viewBox=\"0 0 8 8\" role=\"img\"><title>Pattern of the manifest's digest</title>", to);
  for (int y = 0; y < 8; y++)
    for (int x = 0; x < 4; x++) {
      const char *digits = "0123456789abcdef";
      int digit = (int)(strchr(digits, digest[4 * y + x]) - digits);
      if (digit < 7) continue;
      const char *class = digit < 11 ? "seal1" : digit < 14 ? "seal2" : "seal3";
      fprintf(to, "<rect x=\"%d\" y=\"%d\" width=\"1\" height=\"1\" class=\"%s\"/>", x, y, class);
      fprintf(to, "<rect x=\"%d\" y=\"%d\" width=\"1\" height=\"1\" class=\"%s\"/>", 7 - x, y, class);
    }
  fputs("</svg>\n", to);
}

/* === An axis of ulps ======================================================================================================== */

typedef struct axis { /* range of exponents of 2; ties are drawn to its left */
  double least, most;
} axis;

/* Covers all margins, and the limit with some space on both sides. */
static axis axis_of(const eval_report_steps *steps) {
  axis a = {0, 4};
  for (uint32_t i = 1; i < EVAL_REPORT_DATA_FINE; i++) {
    if (steps->counts[0][i] + steps->counts[1][i] == 0) continue;
    double position = eval_report_data_position(i);
    if (floor(position) < a.least) a.least = floor(position);
    if (floor(position) + 1 > a.most) a.most = floor(position) + 1;
  }
  return a;
}

/* 0 .. 1, with space for ties at the left. */
static double place_of(const axis *a, double position) { return 0.11 + 0.86 * (position - a->least) / (a->most - a->least); }
static double place_of_step(const axis *a, uint32_t step) { return step == 0 ? TIES : place_of(a, eval_report_data_position(step)); }

static void put_label(FILE *to, double x, double y, const char *attributes, const char *text) {
  fprintf(to, "<text x=\"%.2f%%\" y=\"%.1f\" %s>%s</text>", 100 * x, y, attributes, text);
}

/* Shades everything below the limit, then draws lines at powers of two, some with labels. */
static void put_axis(FILE *to, const axis *a, double top, double floor_y) {
  double limit = place_of(a, 1);
  int every = a->most - a->least > 8 ? 2 : 1;
  char text[32];
  put_bar(to, 0, limit, top, floor_y - top, "class=\"fragile\" opacity=\"0.13\"");
  for (int e = (int)a->least; e <= (int)a->most; e++) {
    double x = place_of(a, e);
    put_mark(to, x, top, floor_y, "grid");
    if ((e - 1) % every != 0) continue;
    if (e < 0) snprintf(text, sizeof text, "1/%d", 1 << -e);
    else snprintf(text, sizeof text, "%d", 1 << e);
    put_label(to, x, floor_y + 17, "text-anchor=\"middle\" class=\"tick\"", text);
  }
  put_label(to, TIES, floor_y + 17, "text-anchor=\"middle\" class=\"tick\"", "0");
  put_label(to, 0.5, floor_y + 36, "text-anchor=\"middle\" class=\"tick\"", "margin in ulps of bf16");
  put_mark(to, limit, top - 8, floor_y, "limit");
  put_label(to, limit, top - 12, "text-anchor=\"middle\" class=\"limitname\"", "2 ulps");
}

/* === Curves ================================================================================================================= */

static uint64_t total_of(const uint64_t *counts) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < EVAL_REPORT_DATA_FINE; i++) total += counts[i];
  return total;
}

/* A step counts in full at its upper end. */
static void put_curve(FILE *to, const axis *a, const uint64_t *counts, const char *class) {
  uint64_t total = total_of(counts), sum = counts[0];
  if (total == 0) return;
  fprintf(to, "<path class=\"%s\" vector-effect=\"non-scaling-stroke\" d=\"M0 %.1f", class, INNER * (1 - (double)sum / (double)total));
  for (uint32_t i = 1; i < EVAL_REPORT_DATA_FINE; i++) {
    if (counts[i] == 0) continue;
    double upper = i + 1 < EVAL_REPORT_DATA_FINE ? eval_report_data_position(i + 1) : EVAL_MARGIN_MOST;
    double before = INNER * (1 - (double)sum / (double)total);
    if (i > 1) fprintf(to, "L%.1f %.1f", INNER * place_of(a, eval_report_data_position(i)), before);
    sum += counts[i];
    fprintf(to, "L%.1f %.1f", INNER * place_of(a, upper > a->most ? a->most : upper), INNER * (1 - (double)sum / (double)total));
  }
  fputs("H1000\"/>", to);
}

static double share_below(const uint64_t *counts) {
  uint64_t total = total_of(counts), sum = 0;
  for (uint32_t i = 0; i < eval_report_data_step(EVAL_MARGIN_FRAGILE); i++) sum += counts[i];
  return total ? (double)sum / (double)total : 0;
}

void eval_report_figure_curves(FILE *to, const eval_report_steps *margins) {
  axis a = axis_of(margins);
  char text[32];
  fprintf(to, "<svg class=\"chart\" width=\"100%%\" height=\"%.0f\" role=\"img\"><title>Share of items with a smaller margin. "
              "Below 2 ulps: %.1f %% of %" PRIu64 " right items, %.1f %% of %" PRIu64 " wrong ones</title>\n",
          CURVES_HEIGHT, 100 * share_below(margins->counts[1]), total_of(margins->counts[1]), 100 * share_below(margins->counts[0]),
          total_of(margins->counts[0]));
  put_axis(to, &a, CURVES_TOP, CURVES_FLOOR);
  for (int quarter = 0; quarter <= 4; quarter++) {
    double y = CURVES_FLOOR - (CURVES_FLOOR - CURVES_TOP) * quarter / 4;
    fprintf(to, "<line x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>", y, y, quarter ? "grid" : "axis");
    snprintf(text, sizeof text, "%d %%", 25 * quarter);
    if (quarter) put_label(to, 1, y - 4, "text-anchor=\"end\" class=\"tick\"", text);
  }
  fprintf(to, "\n<svg x=\"0\" y=\"%.0f\" width=\"100%%\" height=\"%.0f\" viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" "
              "overflow=\"visible\">", CURVES_TOP, CURVES_FLOOR - CURVES_TOP);
  put_curve(to, &a, margins->counts[1], "curve rightline");
  put_curve(to, &a, margins->counts[0], "curve wrongline");
  fputs("</svg></svg>\n", to);
}

/* === Flipped answers ======================================================================================================== */

/* Radius of a dot for one item; areas are proportional to counts. */
static double dot_of(const eval_report_steps *moved) {
  uint64_t most = 1;
  for (uint32_t i = 0; i < EVAL_REPORT_DATA_FINE; i++)
    for (uint32_t k = 0; k < 2; k++) most = moved->counts[k][i] > most ? moved->counts[k][i] : most;
  double fitting = DOT_MOST / sqrt((double)most);
  return fitting < DOT ? fitting : DOT;
}

static void put_dots(FILE *to, const axis *a, const uint64_t *counts, double one, double y, const char *class) {
  for (uint32_t i = 0; i < EVAL_REPORT_DATA_FINE; i++) {
    double radius = one * sqrt((double)counts[i]);
    if (counts[i])
      fprintf(to, "<circle cx=\"%.2f%%\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\" opacity=\"0.6\"><title>%" PRIu64 "</title></circle>",
              100 * place_of_step(a, i), y, radius > DOT_LEAST ? radius : DOT_LEAST, class, counts[i]);
  }
}

/* One bar for all ties and one per power of two: how many of its items flipped. */
static void put_flip_bar(FILE *to, const axis *a, const eval_report_steps *moved, uint32_t first, uint32_t upto) {
  uint64_t kept = 0, flipped = 0;
  char text[32];
  for (uint32_t i = first; i < upto; i++) kept += moved->counts[0][i], flipped += moved->counts[1][i];
  if (flipped == 0) return; /* the dots below show that there are items */
  double share = (double)flipped / (double)(kept + flipped), height = (BARS_FLOOR - BARS_TOP) * share;
  double x = first == 0 ? TIES - 0.02 : place_of(a, eval_report_data_position(first));
  double width = first == 0 ? 0.04 : place_of(a, a->least + 1) - place_of(a, a->least);
  put_bar(to, x + 0.08 * width, x + 0.92 * width, BARS_FLOOR - height, height, "class=\"wrong\"");
  snprintf(text, sizeof text, "%.0f%%", 100 * share);
  put_label(to, x + 0.5 * width, BARS_FLOOR - height - 4, "text-anchor=\"middle\" class=\"tick\"", text);
}

void eval_report_figure_moved(FILE *to, const eval_report_steps *moved) {
  axis a = axis_of(moved);
  fprintf(to, "<svg class=\"chart\" width=\"100%%\" height=\"%.0f\" role=\"img\"><title>Margins of %" PRIu64 " items that flipped and %"
              PRIu64 " that did not</title>\n", MOVED_HEIGHT, total_of(moved->counts[1]), total_of(moved->counts[0]));
  put_axis(to, &a, BARS_TOP - 6, MOVED_FLOOR);
  put_flip_bar(to, &a, moved, 0, 1);
  put_flip_bar(to, &a, moved, 1, 2 + EVAL_REPORT_DATA_STEPS);
  for (uint32_t first = 2 + EVAL_REPORT_DATA_STEPS; first < EVAL_REPORT_DATA_FINE; first += EVAL_REPORT_DATA_STEPS)
    put_flip_bar(to, &a, moved, first, min_u32(first + EVAL_REPORT_DATA_STEPS, EVAL_REPORT_DATA_FINE));
  fprintf(to, "<line x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\" class=\"axis\"/>\n", BARS_FLOOR, BARS_FLOOR);
  put_dots(to, &a, moved->counts[0], dot_of(moved), LANE_KEPT, "right");
  put_dots(to, &a, moved->counts[1], dot_of(moved), LANE_FLIPPED, "wrong");
  put_label(to, 1, LANE_FLIPPED - 20, "text-anchor=\"end\" class=\"tick\"", "flipped");
  put_label(to, 1, LANE_KEPT - 20, "text-anchor=\"end\" class=\"tick\"", "kept");
  put_label(to, 1, BARS_TOP + 6, "text-anchor=\"end\" class=\"tick\"", "share that flipped");
  fputs("</svg>\n", to);
}

/* bench/roofline.c - see bench/roofline.h. A label is put at the first free position around its point, on rings of growing width, where it
 * covers neither a point nor another label. A line connects it to its point if it is far away. */
#include "bench/roofline.h"
#include "base/whole_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pixels. */
#define WIDTH 1600.0
#define HEIGHT 1100.0
#define LEFT 80.0
#define RIGHT 30.0
#define TOP 60.0
#define BOTTOM 100.0
#define RADIUS 3.5
#define FONT 10.0
#define LETTER 6.2        /* width of a character, a little above the average */
#define RINGS 40
#define RING_STEP 9.0
#define TIE_FROM 22.0     /* from this distance on, a line connects a label to its point */

#define TURNS 16

typedef struct box {
  double left, top, right, bottom;
} box;

typedef struct picture {
  const bench_roofline *from;
  FILE *file;
  double x_least, x_most, y_least, y_most; /* exponents of 10 */
  box *taken;          /* [2 * point_count] points, then labels */
  uint32_t taken_count;
} picture;

static const char *const COLOURS[CLI_ROOFLINE_FAMILIES] = {"#1d4ed8", "#15803d", "#c2410c", "#7c3aed", "#52606d"};

/* === Scales ================================================================================================================= */

static double x_of(const picture *p, double flops_per_byte) {
  return LEFT + (WIDTH - LEFT - RIGHT) * (log10(flops_per_byte) - p->x_least) / (p->x_most - p->x_least);
}

static double y_of(const picture *p, double flops_per_s) {
  return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(flops_per_s) - p->y_least) / (p->y_most - p->y_least);
}

static void widen(double *least, double *most, double value) {
  double exponent = log10(value);
  if (floor(exponent) < *least) *least = floor(exponent);
  if (ceil(exponent) > *most) *most = ceil(exponent);
}

/* Whole decades that contain all points and the limits; at least one. */
static void choose_scales(picture *p) {
  const bench_roofline *from = p->from;
  bool is_limited = from->bytes_per_s > 0 && from->flops_per_s > 0;
  p->x_least = p->y_least = INFINITY;
  p->x_most = p->y_most = -INFINITY;
  for (uint32_t i = 0; i < from->point_count; i++) {
    widen(&p->x_least, &p->x_most, from->points[i].flops_per_byte);
    widen(&p->y_least, &p->y_most, from->points[i].flops_per_s);
  }
  const double limit = fmax(from->flops_per_s, from->e4m3_flops_per_s);
  if (is_limited) widen(&p->x_least, &p->x_most, 2 * limit / from->bytes_per_s);
  if (limit > 0) widen(&p->y_least, &p->y_most, 1.5 * limit);
  if (!(p->x_least < INFINITY)) p->x_least = 0;
  if (!(p->y_least < INFINITY)) p->y_least = 9;
  if (p->x_most <= p->x_least) p->x_most = p->x_least + 1;
  if (p->y_most <= p->y_least) p->y_most = p->y_least + 1;
}

/* === Parts ================================================================================================================== */

static void put_text(FILE *file, const char *text) {
  for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
    if (*at == '&') fputs("&amp;", file);
    else if (*at == '<') fputs("&lt;", file);
    else if (*at == '>') fputs("&gt;", file);
    else fputc(*at < 32 || *at > 126 ? '?' : *at, file);
  }
}

static void put_words(FILE *file, double x, double y, const char *attributes, const char *text) {
  fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
  put_text(file, text);
  fputs("</text>\n", file);
}

static void put_line(FILE *file, double x1, double y1, double x2, double y2, const char *attributes) {
  fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, attributes);
}

/* Rates in TFLOP/s, since powers of ten from 1000 on would be hard to read. */
static void put_axes(const picture *p) {
  char text[48];
  for (double e = p->x_least; e <= p->x_most; e++) {
    double x = x_of(p, pow(10, e));
    put_line(p->file, x, TOP, x, HEIGHT - BOTTOM, "stroke=\"#e3e7ec\"");
    snprintf(text, sizeof text, "%g", pow(10, e));
    put_words(p->file, x, HEIGHT - BOTTOM + 20, "text-anchor=\"middle\" font-size=\"13\"", text);
  }
  for (double e = p->y_least; e <= p->y_most; e++) {
    double y = y_of(p, pow(10, e));
    put_line(p->file, LEFT, y, WIDTH - RIGHT, y, "stroke=\"#e3e7ec\"");
    snprintf(text, sizeof text, "%g", pow(10, e - 12));
    put_words(p->file, LEFT - 8, y + 4, "text-anchor=\"end\" font-size=\"13\"", text);
  }
  put_words(p->file, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 44, "text-anchor=\"middle\" font-size=\"14\"",
            "FLOP for each byte that must be moved");
  fprintf(p->file, "<g transform=\"translate(22 %.1f) rotate(-90)\">", (TOP + HEIGHT - BOTTOM) / 2);
  put_words(p->file, 0, 0, "text-anchor=\"middle\" font-size=\"14\"", "TFLOP/s");
  fputs("</g>\n", p->file);
}

/* The line of a FLOP rate, from the intensity at which the byte rate allows it. */
static void put_flop_limit(const picture *p, double flops_per_s, const char *of, const char *style) {
  const double least = pow(10, p->x_least), ridge = p->from->bytes_per_s > 0 ? flops_per_s / p->from->bytes_per_s : least;
  char text[64];
  if (flops_per_s <= 0) return;
  put_line(p->file, x_of(p, ridge), y_of(p, flops_per_s), WIDTH - RIGHT, y_of(p, flops_per_s), style);
  snprintf(text, sizeof text, "%s%.4g TFLOP/s", of, 1e-12 * flops_per_s);
  put_words(p->file, WIDTH - RIGHT - 4, y_of(p, flops_per_s) - 6, "text-anchor=\"end\" font-size=\"13\"", text);
}

static void put_limits(const picture *p) {
  const bench_roofline *from = p->from;
  const char *style = "stroke=\"#111827\" stroke-width=\"1.6\"";
  double most = pow(10, p->x_most), least = pow(10, p->x_least), ridge = most;
  char text[64];
  if (from->bytes_per_s > 0 && from->flops_per_s > 0) ridge = fmax(from->flops_per_s, from->e4m3_flops_per_s) / from->bytes_per_s;
  if (from->bytes_per_s > 0) {
    double floor_of_y = pow(10, p->y_least) / from->bytes_per_s, first = least > floor_of_y ? least : floor_of_y;
    double top = ridge < most ? ridge : most;
    put_line(p->file, x_of(p, first), y_of(p, first * from->bytes_per_s), x_of(p, top), y_of(p, top * from->bytes_per_s), style);
    snprintf(text, sizeof text, "%.4g TB/s", 1e-12 * from->bytes_per_s);
    put_words(p->file, x_of(p, top) - 70, y_of(p, top * from->bytes_per_s) + 12, "text-anchor=\"end\" font-size=\"13\"", text);
  }
  put_flop_limit(p, from->flops_per_s, "", style);
  put_flop_limit(p, from->e4m3_flops_per_s, "e4m3 ", "stroke=\"#111827\" stroke-width=\"1.6\" stroke-dasharray=\"6 4\"");
}

static void put_legend(const picture *p) {
  double x = LEFT, y = HEIGHT - 28;
  for (uint32_t i = 0; i < CLI_ROOFLINE_FAMILIES; i++) {
    fprintf(p->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"/>\n", x, y - 4, COLOURS[i]);
    put_words(p->file, x + 10, y, "font-size=\"13\"", p->from->families[i]);
    x += 40 + 7.5 * (double)strlen(p->from->families[i]);
  }
  put_words(p->file, LEFT, HEIGHT - 8, "font-size=\"12\" fill=\"#52606d\"", p->from->remark);
}

/* === Points and labels ====================================================================================================== */

static bool is_free(const picture *p, const box *b) {
  if (b->left < LEFT || b->right > WIDTH - 2 || b->top < TOP - FONT || b->bottom > HEIGHT - BOTTOM) return false;
  for (uint32_t i = 0; i < p->taken_count; i++) {
    const box *t = &p->taken[i];
    if (b->left < t->right && t->left < b->right && b->top < t->bottom && t->top < b->bottom) return false;
  }
  return true;
}

/* The label's rectangle at an angle of a ring: the side that faces the point lies on the ring. */
static box place_at(double x, double y, double width, int ring, int turn) {
  double angle = 6.283185307179586 * turn / TURNS, reach = RADIUS + 2 + RING_STEP * ring;
  double at_x = x + reach * cos(angle), at_y = y - reach * sin(angle);
  double left = cos(angle) > 0.3 ? at_x : cos(angle) < -0.3 ? at_x - width : at_x - width / 2;
  return (box){left, at_y - FONT / 2, left + width, at_y + FONT / 2};
}

static bool find_place(const picture *p, double x, double y, double width, box *found) {
  for (int ring = 0; ring < RINGS; ring++)
    for (int turn = 0; turn < TURNS; turn++) {
      box b = place_at(x, y, width, ring, turn);
      if (!is_free(p, &b)) continue;
      *found = b;
      return true;
    }
  return false;
}

static void put_label(picture *p, const bench_roofline_point *point) {
  double x = x_of(p, point->flops_per_byte), y = y_of(p, point->flops_per_s), width = LETTER * (double)strlen(point->label);
  char attributes[64];
  box b;
  if (!find_place(p, x, y, width, &b)) return; /* shown as the point's tooltip instead */
  p->taken[p->taken_count++] = b;
  double end_x = b.left > x ? b.left : b.right < x ? b.right : x, middle = (b.top + b.bottom) / 2;
  if (hypot(end_x - x, middle - y) > TIE_FROM) {
    snprintf(attributes, sizeof attributes, "stroke=\"%s\" stroke-width=\"0.4\"", COLOURS[point->family]);
    put_line(p->file, x, y, end_x, middle, attributes);
  }
  snprintf(attributes, sizeof attributes, "font-size=\"%g\" fill=\"%s\"", FONT, COLOURS[point->family]);
  put_words(p->file, b.left, b.bottom - 1.5, attributes, point->label);
}

static void put_points(picture *p) {
  const bench_roofline *from = p->from;
  for (uint32_t i = 0; i < from->point_count; i++) {
    double x = x_of(p, from->points[i].flops_per_byte), y = y_of(p, from->points[i].flops_per_s);
    p->taken[p->taken_count++] = (box){x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS};
  }
  for (uint32_t i = 0; i < from->point_count; i++) put_label(p, &from->points[i]);
  for (uint32_t i = 0; i < from->point_count; i++) {
    const bench_roofline_point *point = &from->points[i];
    fprintf(p->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\" fill-opacity=\"0.85\"><title>", x_of(p, point->flops_per_byte),
            y_of(p, point->flops_per_s), RADIUS, COLOURS[point->family]);
    put_text(p->file, point->label);
    fputs(": ", p->file);
    put_text(p->file, point->detail);
    fputs("</title></circle>\n", p->file);
  }
}

static void put_picture(picture *p) {
  choose_scales(p);
  fprintf(p->file,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" "
          "height=\"%g\" font-family=\"Helvetica, Arial, sans-serif\" fill=\"#1f2933\">\n<rect width=\"100%%\" height=\"100%%\" "
          "fill=\"#ffffff\"/>\n", WIDTH, HEIGHT, WIDTH, HEIGHT);
  put_words(p->file, LEFT, 32, "font-size=\"18\"", p->from->title);
  put_axes(p);
  put_limits(p);
  put_points(p);
  put_legend(p);
  fputs("</svg>\n", p->file);
}

status bench_roofline_write(const bench_roofline *self, const char *path) {
  picture p = {.from = self, .taken = malloc((2ull * self->point_count + 1) * sizeof *p.taken)};
  char *text = NULL;
  size_t bytes = 0;
  bool good = p.taken && (p.file = open_memstream(&text, &bytes)) != NULL;
  if (good) put_picture(&p);
  good = good && fclose(p.file) == 0;
  status result = good ? whole_file_write(path, text, bytes) : FAIL(ERR_LIMIT, "%s: no memory for the picture", path);
  free(text);
  free(p.taken);
  return result;
}

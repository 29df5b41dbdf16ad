/* bench/roofline.h - a roofline picture: points below the hardware's two limits, FLOPs per byte moved against FLOPs per second.
 *
 * One self-contained SVG, both axes logarithmic, a label at every point. Knows nothing of what the points stand for. */
#ifndef VERBATIM_BENCH_ROOFLINE_H
#define VERBATIM_BENCH_ROOFLINE_H
#include "base/base.h"

#define CLI_ROOFLINE_LABEL_BYTES 96u
#define CLI_ROOFLINE_FAMILIES 5u

typedef struct bench_roofline_point {
  char label[CLI_ROOFLINE_LABEL_BYTES]; /* any text */
  char detail[CLI_ROOFLINE_LABEL_BYTES]; /* tooltip */
  uint32_t family;           /* its colour, 0 .. CLI_ROOFLINE_FAMILIES - 1 */
  double flops_per_byte, flops_per_s; /* above 0    */
} bench_roofline_point;

typedef struct bench_roofline {
  const char *title, *remark; /* one line each; remark is printed below the picture */
  const char *families[CLI_ROOFLINE_FAMILIES];
  double bytes_per_s, flops_per_s; /* the limits, 0: unknown */
  double e4m3_flops_per_s;         /* a higher limit, for ops that multiply e4m3 numbers; 0: no such ops */
  const bench_roofline_point *points;
  uint32_t point_count;
} bench_roofline;

/* ERR_IO: the file cannot be written. ERR_LIMIT: no memory. */
status bench_roofline_write(const bench_roofline *self, const char *path);

#endif

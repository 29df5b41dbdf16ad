/* test_roofline.c - the picture is well-formed XML whatever the labels are, with one point for each op and labels that do not overlap.
 * Python's parser reads it; the control is a truncated picture. */
#include "tests/unit/unit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/bench/roofline.h"

#define POINTS 200u

static char path[] = "/tmp/verbatim-roofline-XXXXXX";
static bench_roofline_point points[POINTS];

/* Parses the picture and prints the counts of points, labels, overlapping pairs of labels and points outside the axes. The title is the one
 * given. */
static const char CHECK[] =
  "import sys, xml.dom.minidom as m\n"
  "d = m.parse(sys.argv[1])\n"
  "n = lambda e, a: float(e.getAttribute(a))\n"
  "c = [e for e in d.getElementsByTagName('circle') if e.getElementsByTagName('title')]\n"
  "t = [e for e in d.getElementsByTagName('text') if e.getAttribute('font-size') == '10']\n"
  "b = [(n(e, 'x'), n(e, 'y'), n(e, 'x') + 5 * len(e.firstChild.data), n(e, 'y') + 9) for e in t]\n"
  "o = sum(p[0] < q[2] and q[0] < p[2] and p[1] < q[3] and q[1] < p[3] for i, p in enumerate(b) for q in b[:i])\n"
  "out = sum(not (0 < n(e, 'cx') < 1600 and 0 < n(e, 'cy') < 1100) for e in c)\n"
  "assert [e for e in d.getElementsByTagName('text') if e.firstChild.data == sys.argv[2]], 'no title'\n"
  "print(len(c), len(t), o, out)\n";

static void parse(const char *title, const char *wanted) {
  char command[4096], found[256] = "";
  snprintf(command, sizeof command, "python3 - %s '%s' 2>&1 <<'END' | tail -1\n%sEND\n", path, title, CHECK);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  if (!fgets(found, sizeof found, pipe)) found[0] = 0;
  pclose(pipe);
  if (!strstr(found, wanted)) fail_msg("expected \"%s\", found \"%s\"", wanted, found);
}

static bench_roofline picture(const char *title, uint32_t count) {
  return (bench_roofline){.title = title, .remark = "a < b & c", .families = {"one", "two", "three & more", "<four>", "five"},
                        .bytes_per_s = 4.3e12, .flops_per_s = 790e12, .points = points, .point_count = count};
}

static void write_it(const bench_roofline *p) {
  if (bench_roofline_write(p, path) != OK) fail_msg("%s", fail_text());
}

static void many_points_are_legible(void **state) {
  (void)state;
  for (uint32_t i = 0; i < POINTS; i++) {
    uint32_t x = (i + 1) * 2654435761u >> 16, y = (i + 1) * 2246822519u >> 16; /* random, and some with crowded labels */
    points[i] = (bench_roofline_point){.family = i % CLI_ROOFLINE_FAMILIES, .flops_per_byte = pow(10, x / 25000.0 - 1),
                                     .flops_per_s = pow(10, 9 + y / 15000.0), .detail = "1 us"};
    snprintf(points[i].label, sizeof points[i].label, "experts gate_up %u", i);
  }
  bench_roofline p = picture("Ops", POINTS);
  write_it(&p);
  parse("Ops", "200 200 0 0");
}

static void any_text_is_escaped(void **state) {
  (void)state;
  points[0] = (bench_roofline_point){.label = "<script>&\"'\x01\x7f\xc3\xa9]]>", .detail = "</title>", .flops_per_byte = 1,
                                   .flops_per_s = 1e9};
  bench_roofline p = picture("a <b> & c", 1);
  write_it(&p);
  parse("a <b> & c", "1 1 0 0");
}

/* All points in one place: a label without room is left out, and the picture is still well-formed. Without limits and points only axes
 * remain. */
static void crowds_and_nothing(void **state) {
  (void)state;
  for (uint32_t i = 0; i < POINTS; i++) {
    points[i] = (bench_roofline_point){.flops_per_byte = 1e-3, .flops_per_s = 1e6};
    memset(points[i].label, 'w', sizeof points[i].label - 1);
  }
  bench_roofline p = picture("Ops", POINTS);
  write_it(&p);
  parse("Ops", "200 ");
  p.bytes_per_s = p.flops_per_s = 0;
  write_it(&p);
  parse("Ops", "200 ");
  p.point_count = 0;
  write_it(&p);
  parse("Ops", "0 0 0 0");
}

static void the_check_finds_a_broken_picture(void **state) {
  (void)state;
  bench_roofline p = picture("Ops", 1);
  write_it(&p);
  assert_int_equal(truncate(path, 2000), 0);
  parse("Ops", "Expat");
  write_it(&p);
  parse("Another", "no title");
}

static void a_place_that_cannot_be_written_is_told(void **state) {
  (void)state;
  bench_roofline p = picture("Ops", 1);
  fail_clear();
  assert_int_equal(bench_roofline_write(&p, "/no/such/folder/x.svg"), ERR_IO);
  fail_clear();
  assert_int_equal(bench_roofline_write(&p, "/dev/full"), ERR_IO);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(many_points_are_legible), cmocka_unit_test(any_text_is_escaped),
                                     cmocka_unit_test(crowds_and_nothing), cmocka_unit_test(the_check_finds_a_broken_picture),
                                     cmocka_unit_test(a_place_that_cannot_be_written_is_told)};
  int file = mkstemp(path);
  if (file < 0) return 1;
  close(file);
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(path);
  return result;
}

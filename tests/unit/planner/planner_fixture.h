/* planner_fixture.h - shared by the planner's tests: files, plans of them, expected failures. The test frees the results. */
#ifndef VERBATIM_PLANNER_FIXTURE_H
#define VERBATIM_PLANNER_FIXTURE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/unit/unit.h"
#include "engine/base/base.h"
#include "engine/plan/format.h"
#include "planner/planner.h"

typedef struct fixture_bytes {
  char *bytes;
  size_t count;
} fixture_bytes;

static inline fixture_bytes fixture_read(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("%s cannot be opened; tests run in the repository's root", path);
  char *bytes = malloc(1u << 20);
  assert_non_null(bytes);
  size_t count = fread(bytes, 1, 1u << 20, file);
  fclose(file);
  return (fixture_bytes){bytes, count};
}

static inline status fixture_try_plan(const char *config_path, const char *deploy, const char *device, fixture_bytes *out) {
  fixture_bytes config = fixture_read(config_path);
  planner_input input = {.config = {config.bytes, config.count}};
  void *bytes = NULL;
  if (deploy) input.deploy = (planner_text){deploy, strlen(deploy)};
  if (device) input.profile = (planner_text){device, strlen(device)};
  fail_clear();
  status result = planner_make(&input, &bytes, &out->count);
  out->bytes = bytes;
  free(config.bytes);
  return result;
}

static inline fixture_bytes fixture_plan(const char *config_path, const char *deploy, const char *device) {
  fixture_bytes made = {0};
  status result = fixture_try_plan(config_path, deploy, device, &made);
  if (result != OK) fail_msg("%s: %s", config_path, fail_text());
  return made;
}

/* The last call must have returned `code`, and the recorded text must contain `words`. */
static inline void fixture_expect(status found, status code, const char *words) {
  if (found != code || (words && !strstr(fail_text(), words)))
    fail_msg("expected code %d and \"%s\", found %d and \"%s\"", code, words ? words : "", found, fail_text());
}

#endif

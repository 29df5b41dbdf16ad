/* changed.c - see changed.h. */
#include "tests/unit/unit.h"
#include "tests/e2e/changed.h"
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

void changed_make_model(e2e_model *model, const char *config, const char *changes, const char *deploy) {
  char path[E2E_PATH_MAX], changed[] = "/tmp/verbatim-changed-XXXXXX";
  json_error_t error;
  snprintf(path, sizeof path, "tests/oracle/%s", config);
  json_t *values = json_load_file(path, 0, &error), *more = json_loads(changes, 0, &error);
  assert_non_null(values);
  assert_non_null(more);
  json_t *text = json_object_get(values, "text_config");
  assert_int_equal(json_object_update(text ? text : values, more), 0);
  const int file = mkstemp(changed);
  assert_true(file >= 0);
  assert_int_equal(json_dumpfd(values, file, 0), 0);
  e2e_make_model(model, changed, deploy);
  close(file);
  remove(changed);
  json_decref(values);
  json_decref(more);
}

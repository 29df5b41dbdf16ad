/* plan_faults.h - a list of faults planted in a plan, each of which the verifier must find. Read next: plan_edit.h. */
#ifndef VERBATIM_PLAN_FAULTS_H
#define VERBATIM_PLAN_FAULTS_H
#include "tests/unit/plan/plan_edit.h"

typedef struct plan_fault {
  const char *name;
  void (*plant)(editable *e);
  const char *words; /* of the report; null: any */
} plan_fault;

#define FAULT(plant, words) {#plant, plant, words}

/* Plants each fault in the sound plan e, and expects a report with its words. Restores the plan after each, and frees it. */
static inline void check_faults(editable e, const plan_fault *faults, size_t count) {
  uint32_t missed = 0;
  char *sound = malloc(e.file.count);
  assert_non_null(sound);
  memcpy(sound, e.file.bytes, e.file.count);
  assert_int_equal(check_plan(e.file.bytes, e.file.count), OK);
  for (size_t i = 0; i < count; i++) {
    faults[i].plant(&e);
    const status result = check_plan(e.file.bytes, e.file.count);
    if (result != ERR_FORMAT || (faults[i].words && !strstr(fail_text(), faults[i].words))) {
      print_error("%s: code %d, \"%s\"\n", faults[i].name, result, result == OK ? "" : fail_text());
      missed++;
    }
    fail_clear();
    memcpy(e.file.bytes, sound, e.file.count);
  }
  free(sound);
  free(e.file.bytes);
  assert_int_equal(missed, 0);
}

#endif

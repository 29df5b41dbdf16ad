/* fuzz_profile.c - device profiles. An accepted profile has valid entries that survive being written out and read again, and the planner
 * makes a plan with them that the engine accepts. */
#include "fuzz.h"
#include "make_plan.h"
#include "planner/profile.h"

#define DEPLOY "{max-num-seqs: 2, max-num-batched-tokens: 256, max-model-len: 64}"
#define ENTRY_BYTES 512u

static void check_entries(const plan_product *entries, uint32_t count) {
  ASSERT(count <= PROFILE_ENTRIES_MAX);
  for (uint32_t i = 0; i < count; i++) {
    const plan_product *a = &entries[i];
    ASSERT(a->n && a->k && a->y_f32 <= 1);
    ASSERT(a->gemm.rows_min >= 1 && a->gemm.rows_min <= a->gemm.rows_max && a->gemm.rows_max <= BATCH_TOKENS_MAX);
    ASSERT(a->gemm.workspace_bytes <= PROFILE_WORKSPACE_BYTES_MAX);
    for (uint32_t j = 0; j < i; j++) {
      const plan_product *b = &entries[j];
      bool is_one_shape = a->n == b->n && a->k == b->k && a->y_f32 == b->y_f32;
      ASSERT(!is_one_shape || a->gemm.rows_max < b->gemm.rows_min || b->gemm.rows_max < a->gemm.rows_min);
    }
  }
}

/* The used entries as a profile, which the caller frees. */
static char *write_profile(const profile *p) {
  char *text = malloc(128 + (size_t)ENTRY_BYTES * p->count);
  ASSERT(text != NULL);
  unsigned long long version = p->count ? (unsigned long long)p->entries[0].gemm.library_version : 1;
  size_t used = (size_t)sprintf(text, "{\"library_version\":%llu,\"entries\":[", version);
  for (uint32_t i = 0; i < p->count; i++) {
    const plan_product *e = &p->entries[i];
    used += (size_t)sprintf(text + used, "%s{\"n\":%u,\"k\":%u,\"out\":\"%s\",\"rows_min\":%u,\"rows_max\":%u,"
                            "\"certified\":true,\"use\":true,"
                            "\"workspace_bytes\":%llu,\"algo\":[", i ? "," : "", e->n, e->k, e->y_f32 ? "f32" : "bf16",
                            e->gemm.rows_min, e->gemm.rows_max, (unsigned long long)e->gemm.workspace_bytes);
    for (int w = 0; w < 8; w++) used += (size_t)sprintf(text + used, "%s\"%llx\"", w ? "," : "", (unsigned long long)e->gemm.algo[w]);
    used += (size_t)sprintf(text + used, "]}");
  }
  sprintf(text + used, "]}");
  return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const char *text = (const char *)data;
  profile p = {0}, again = {0};
  fail_clear();
  if (!fuzz_is_ok(profile_parse(text, bytes, &p))) {
    ASSERT(!p.entries && !p.others && p.count == 0 && p.other_count == 0);
    return 0;
  }
  check_entries(p.entries, p.count);
  check_entries(p.others, p.other_count);
  char *written = write_profile(&p);
  ASSERT(profile_parse(written, strlen(written), &again) == OK);
  ASSERT(again.count == p.count);
  ASSERT(p.count == 0 || memcmp(p.entries, again.entries, p.count * sizeof *p.entries) == 0);
  ASSERT(make_plan((planner_text){DEPLOY, sizeof DEPLOY - 1}, (planner_text){text, bytes}) == OK);
  free(written);
  profile_free(&again);
  profile_free(&p);
  return 0;
}

/* fuzz_json_schema.c - a JSON schema or a list of parts, a NUL, and choices. Of what is accepted no state is a dead end, and the text that
 * the choices lead to is JSON for jansson if it is a schema's. */
#include <jansson.h>
#include "engine/constrain/constraint.h"
#include "fuzz.h"

#define TEXT_BYTES_MAX 4096u

/* Goes where the choices lead, then straight to an end if one is near. Returns the text's bytes, 0: no end was near. */
static size_t walk(const automaton *a, const uint8_t *choices, size_t count, char *text) {
  uint32_t state = AUTOMATON_START;
  for (size_t used = 0; used < TEXT_BYTES_MAX; used++) {
    uint32_t ways = 0, chosen = 0;
    for (uint32_t byte = 0; byte < 256; byte++) ways += automaton_next(a, state, (uint8_t)byte) != AUTOMATON_DEAD;
    ASSERT(ways > 0 || a->is_accepting[state]);
    if (a->is_accepting[state] && (ways == 0 || used >= count)) return used;
    uint32_t nth = used < count ? choices[used] % ways : 0;
    while (automaton_next(a, state, (uint8_t)chosen) == AUTOMATON_DEAD || nth-- > 0) chosen++;
    text[used] = (char)chosen;
    state = automaton_next(a, state, (uint8_t)chosen);
  }
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static char text[TEXT_BYTES_MAX];
  const char *schema = (const char *)data, *end = memchr(data, 0, bytes);
  const size_t schema_bytes = end ? (size_t)(end - schema) : bytes, count = end ? bytes - schema_bytes - 1 : 0;
  verbatim_constraint *c = NULL;
  json_error_t error;
  const bool are_parts = bytes > 0 && *schema == '[';
  fail_clear();
  if (!fuzz_is_ok(constraint_open(&c, are_parts ? VERBATIM_PARTS : VERBATIM_JSON_SCHEMA, schema, schema_bytes))) return 0;
  const size_t used = walk(&c->automaton, data + bytes - count, count, text);
  if (used && !are_parts) {
    json_t *value = json_loadb(text, used, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    ASSERT(value || json_error_code(&error) == json_error_null_byte_in_key);
    json_decref(value);
  }
  constraint_close(c);
  return 0;
}

/* jinja/jinja.c - see jinja/jinja.h. */
#include "jinja/jinja.h"
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "jinja/lex.h"
#include "jinja/parse.h"
#include "jinja/run.h"

struct jinja_template {
  jinja_tree tree;
  char *text;
};

static status open_text(jinja_template *self, const char *text, size_t bytes) {
  if (bytes > JINJA_TEMPLATE_BYTES_MAX) return FAIL(ERR_LIMIT, "chat template: more than %u bytes", JINJA_TEMPLATE_BYTES_MAX);
  if (utf8_valid_bytes((const uint8_t *)text, bytes) != bytes) return FAIL(ERR_FORMAT, "chat template: not UTF-8");
  self->text = malloc(bytes + 1);
  if (!self->text) return FAIL(ERR_LIMIT, "chat template: no memory");
  if (bytes) memcpy(self->text, text, bytes);
  return jinja_parse(&self->tree, self->text, jinja_lex_newlines(self->text, bytes, self->tree.is_plain));
}

static status open_kind(jinja_template **out, const char *text, size_t bytes, bool is_plain) {
  jinja_template *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "chat template: no memory");
  self->tree.is_plain = is_plain;
  status result = open_text(self, text, bytes);
  if (result == OK) *out = self;
  else jinja_close(self);
  return result;
}

status jinja_open(jinja_template **out, const char *text, size_t bytes) { return open_kind(out, text, bytes, false); }
status jinja_open_plain(jinja_template **out, const char *text, size_t bytes) { return open_kind(out, text, bytes, true); }

void jinja_close(jinja_template *self) {
  if (!self) return;
  jinja_memory_close(&self->tree.memory);
  free(self->text);
  free(self);
}

/* === Words =================================================================================================== */

/* Whether any node of the list, or below it, has the word: as a variable only, or anywhere. */
static bool has_word(const jinja_node *node, const char *word, bool only_variables) {
  for (; node; node = node->next) {
    bool is_named = node->name && jinja_value_is(node->name->text, word);
    if (is_named && (!only_variables || node->kind == JINJA_VARIABLE)) return true;
    bool is_constant = node->kind == JINJA_CONSTANT && node->value.kind == JINJA_TEXT;
    if (!only_variables && is_constant && jinja_value_is(node->value.text, word)) return true;
    const jinja_node *below[] = {node->a, node->b, node->c, node->d, node->e};
    for (size_t i = 0; i < ARRAY_LEN(below); i++)
      if (has_word(below[i], word, only_variables)) return true;
  }
  return false;
}

bool jinja_mentions(const jinja_template *self, const char *word) { return has_word(self->tree.body, word, false); }
bool jinja_reads(const jinja_template *self, const char *name) { return has_word(self->tree.body, name, true); }

/* === Rendering =============================================================================================== */

status jinja_render(const jinja_template *self, jinja_memory *memory, const jinja_variable *variables, size_t count, const char *today,
                    char **text, size_t *bytes) {
  strbuf out = {0};
  jinja_state state = {.memory = memory, .tree = &self->tree, .out = &out, .today = today};
  TRY(jinja_eval_scope(&state, NULL));
  for (size_t i = 0; i < count; i++) {
    const jinja_name *name = jinja_eval_name(&self->tree, variables[i].name);
    if (name) TRY(jinja_eval_bind(&state, name, variables[i].value));
  }
  status result = jinja_run_body(&state, self->tree.body);
  if (result == OK) result = strbuf_take(&out, text, bytes);
  strbuf_close(&out);
  return result;
}

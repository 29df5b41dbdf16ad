/* test_conversation.c - conversations from the command line: `verbatim chat` through a pipe, `run --chat`, and the library's own chat
 * functions. The shipped model's template writes BOS and the contents of all messages, so a turn's prompt can be written by hand. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shell.h"

/* O are the options of every engine; `chat` is verbatim chat with them. */
static const char SETUP[] =
  "O='--device cpu --threads 1 --quiet --max-tokens 12' && chat() { $V chat plan $TINY $O \"$@\"; } && ";

static e2e_model tiny;

static int make_plan(void **state) {
  (void)state;
  expect(0, "", "$V plan $TINY -o plan --quiet --max-model-len 128 --max-num-seqs 4 --max-num-batched-tokens 64");
  return 0;
}

/* The answers are those of `run` with the whole conversation as its prompt, to the bit. */
static void turns_are_requests(void **state) {
  (void)state;
  expect(0, "", "printf 'add: 820+9918=\\n\\nroman: 3264 =\\n' | chat --receipt r > out && head -n 1 out | grep -qx 10738 && "
                "{ printf '{\"prompt\": \"add: 820+9918=\"}\\n'; "
                "printf '{\"prompt\": \"add: 820+9918=10738roman: 3264 =\"}\\n'; } > j && "
                "$V run plan $TINY --jsonl j $O --receipt r2 > all && sed 's/^\\[[0-9]*\\] //' all | cmp - out && "
                "grep -o '\"chain\":\"[0-9a-f]*\"' r > a && grep -o '\"chain\":\"[0-9a-f]*\"' r2 | cmp - a && test $(wc -l < a) = 2");
  expect(0, "2 requests verified, 0 differ", "$V verify r plan $TINY --device cpu --threads 1");
  expect(0, "", "$V run plan $TINY 'add: 820+9918=' --chat $O | grep -qx 10738");
}

static void words_of_a_conversation(void **state) {
  (void)state;
  expect(0, "", "printf 'add: 820+9918=\\n/reset\\nadd: 820+9918=\\n/exit\\nadd: 1+1=\\n' | chat > out && "
                "printf '10738\\n10738\\n' | cmp - out");
  expect(0, "", "printf 'add: 820+9918=\\nadd: 820+9918=\\n' | chat > two && ! cmp -s two out"); /* without /reset */
  expect(0, "", "printf '820+9918=\\r\\n/reset\\n820+9918=' | chat --system 'add: ' > two && cmp two out"); /* which /reset keeps */
  expect(0, "/reset forgets the conversation, /exit ends", "$V chat plan $TINY --device cpu --threads 1 < /dev/null");
  expect(0, "", "printf '{{ bos_token }}add: {%%%% for m in messages %%%%}{{ m.content }}{%%%% endfor %%%%}' > t && sed -i s/%%/%/g t && "
                "echo '820+9918=' | chat --chat-template t | grep -qx 10738 && "
                "$V run plan $TINY '820+9918=' --chat --chat-template t $O | grep -qx 10738");
  expect(0, "its limit", "echo 'copy: N51IPB0RURIX1QXL7KP8I6TZTYULQ =' | chat");
}

/* What cannot be answered is said, and the conversation goes on without it; the exit code tells. */
static void refusals(void **state) {
  (void)state;
  static const char then[] = "test $(cat code) = %d && grep -qx 10738 out && cat err";
  static const struct { int code; const char *word, *input; } cases[] = {
      {6, "hint: /reset forgets it", "head -c 300 /dev/zero | tr '\\\\0' x; printf '\\nadd: 820+9918=\\n'"},
      {4, "expected UTF-8", "printf 'a\\377\\nadd: 820+9918=\\n'"}, {4, "expected UTF-8", "printf 'add: 820+9918=\\n/reset\\na\\377\\n'"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    char command[1024], end[128];
    snprintf(end, sizeof end, then, cases[i].code);
    snprintf(command, sizeof command, "{ %s; } > in; { chat < in; echo $? > code; } > out 2> err; %s", cases[i].input, end);
    expect(0, cases[i].word, command);
  }
  expect(2, "expected one answer to a message", "chat --n 2 < /dev/null");
  expect(2, "expected [PLAN] MODEL_DIR, found 3 words", "chat hello < /dev/null");
  expect(2, "--chat: expected messages as text, found --ids", "$V run plan $TINY 1 --ids --chat $O");
  expect(2, "expected --chat with it", "$V run plan $TINY 1 --chat-template t $O");
  expect(3, "nothing of that name", "chat --chat-template none < /dev/null");
  expect(5, "chat template", "rm -rf bare && cp -r $TINY bare && sed -i '/chat_template/d' bare/tokenizer_config.json && "
                             "$V chat plan bare $O < /dev/null");
  expect(5, "chat template", "$V run plan bare x --chat $O");
}

/* === The library ============================================================================================================ */

static void templates_of_the_library(void **state) {
  (void)state;
  static const char LIST[] = "[{\"role\": \"user\", \"content\": \"a\"}]";
  static const char BOS[] = "<\xef\xbd\x9c" "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
  static const struct { const char *json, *word; int code; } wrong[] = {
      {"", "expected JSON", VERBATIM_ERR_FORMAT}, {"7", "expected JSON", VERBATIM_ERR_FORMAT},
      {"{}", "messages", VERBATIM_ERR_FORMAT}, {"[{\"role\": \"user\"}]", "messages[0]", VERBATIM_ERR_FORMAT},
      {"[{\"role\": \"user\", \"content\": \"a\", \"weight\": 2}]", "messages[0].weight", VERBATIM_ERR_USAGE},
      {"[{\"role\": \"user\", \"role\": \"system\", \"content\": \"a\"}]", "expected JSON", VERBATIM_ERR_FORMAT}};
  verbatim_chat *chat = NULL;
  char text[64] = "";
  size_t bytes = 0;
  assert_int_equal(verbatim_chat_open(&chat, "tests/none", NULL), VERBATIM_ERR_IO);
  assert_int_equal(verbatim_chat_open(&chat, "tests/tiny", "tests/none"), VERBATIM_ERR_IO);
  assert_int_equal(verbatim_chat_open(&chat, "tests/oracle", NULL), VERBATIM_ERR_UNSUPPORTED); /* a folder without a template */
  assert_int_equal(verbatim_chat_open(NULL, "tests/tiny", NULL), VERBATIM_ERR_USAGE);
  assert_null(chat);
  assert_int_equal(verbatim_chat_open(&chat, "tests/tiny", NULL), 0);
  assert_int_equal(verbatim_chat_render(chat, LIST, sizeof LIST - 1, text, sizeof text, &bytes), 0);
  assert_int_equal(bytes, sizeof BOS);
  assert_memory_equal(text, BOS, sizeof BOS - 1);
  assert_int_equal(text[bytes - 1], 'a');
  memset(text, 'x', sizeof text);
  assert_int_equal(verbatim_chat_render(chat, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", 48, text, 3, &bytes), 0);
  assert_int_equal(bytes, sizeof BOS);
  assert_memory_equal(text, "<\xef\xbdx", 4); /* no more than there is room for */
  assert_int_equal(verbatim_chat_render(chat, LIST, sizeof LIST - 1, NULL, 0, &bytes), 0);
  for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
    const int code = verbatim_chat_render(chat, wrong[i].json, strlen(wrong[i].json), text, sizeof text, &bytes);
    if (code == wrong[i].code && strstr(verbatim_error(), wrong[i].word)) continue;
    fail_msg("%s: %d, \"%s\"", wrong[i].json, code, verbatim_error());
  }
  assert_int_equal(verbatim_chat_render(NULL, LIST, 1, text, sizeof text, &bytes), VERBATIM_ERR_USAGE);
  verbatim_chat_close(chat);
  verbatim_chat_close(NULL);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(turns_are_requests), cmocka_unit_test(words_of_a_conversation),
                                     cmocka_unit_test(refusals), cmocka_unit_test(templates_of_the_library)};
  e2e_begin(argc, argv);
  shell_begin(&tiny, SETUP);
  snprintf(tiny.folder, sizeof tiny.folder, "/tmp/verbatim-chat-XXXXXX");
  if (!mkdtemp(tiny.folder)) return 1;
  const int failed = cmocka_run_group_tests(tests, make_plan, NULL);
  char text[256];
  e2e_shell(&tiny, "", "rm -rf \"$PWD\"", text, sizeof text);
  return failed;
}

/* embed.c - a C program that embeds Verbatim: three prompts at once. One is cancelled while it runs, one is a message to a chat model.
 *
 * Needs only verbatim.h and libverbatim.so: cc embed.c -lverbatim. Arguments: PLAN MODEL_DIR [cpu]. `verbatim plan` makes the plan.
 * tests/unit/test_libverbatim.py runs this program. Read next: engine/verbatim.h. */
#include <stdio.h>
#include <string.h>
#include <verbatim.h>

enum { PROMPT_MAX = 256, TOKENS_MAX = 96, TEXT_MAX = 1024, CANCEL_AFTER = 5 };

typedef struct job { /* the caller owns all memory of a request, which must not move until the request is finished */
  const char *text;
  const char *messages; /* of a conversation, as JSON: the prompt is what the chat template makes of them; null: the text */
  verbatim_request request;
  int32_t prompt[PROMPT_MAX];
  verbatim_token tokens[TOKENS_MAX];
} job;

static job jobs[] = {
  {.text = "add: 820+9918="}, {.text = "copy: N51IPB0RURIX1QXL7KP8I6TZTYULQMT0YFOJYXLAJIIX3G506 ="}, {.text = "roman: 3264 =",
   .messages = "[{\"role\": \"user\", \"content\": \"roman: 3264 =\"}]"}};
enum { JOBS = sizeof jobs / sizeof jobs[0], CANCELLED = 1 };

static int stop(const char *what, const char *why) {
  fprintf(stderr, "embed: %s: %s\n", what, why);
  return 1;
}

/* The template writes BOS and other special tokens as text, so the prompt is encoded in another way than plain text. */
static int encode(verbatim *engine, const verbatim_chat *chat, job *j, size_t *count) {
  char prompt[TEXT_MAX];
  size_t bytes = 0;
  if (!j->messages) return verbatim_encode(engine, j->text, strlen(j->text), true, false, j->prompt, PROMPT_MAX, count);
  const int code = verbatim_chat_render(chat, j->messages, strlen(j->messages), prompt, sizeof prompt, &bytes);
  if (code != 0) return code;
  if (bytes > sizeof prompt) return stop(j->text, "the prompt is too long");
  return verbatim_encode(engine, prompt, bytes, false, true, j->prompt, PROMPT_MAX, count);
}

static int submit(verbatim *engine, const verbatim_chat *chat, job *j) {
  size_t count = 0;
  j->request = VERBATIM_REQUEST_DEFAULTS;
  if (encode(engine, chat, j, &count) != 0) return stop(j->text, verbatim_error());
  j->request.prompt = j->prompt;
  j->request.prompt_count = (uint32_t)count;
  j->request.max_tokens = TOKENS_MAX;
  j->request.tokens = j->tokens;
  return verbatim_submit(engine, &j->request) == 0 ? 0 : stop(j->text, verbatim_error());
}

/* verbatim_poll does the work on this thread; between two calls the program does its other work. */
static int run(verbatim *engine) {
  for (bool busy = true; busy;) {
    if (verbatim_poll(engine, &busy) != 0) return stop("poll", verbatim_error());
    verbatim_request *slow = &jobs[CANCELLED].request;
    if (slow->finish == VERBATIM_RUNNING && slow->token_count >= CANCEL_AFTER && verbatim_cancel(engine, slow) != 0)
      return stop("cancel", verbatim_error());
  }
  return 0;
}

static int print(verbatim *engine, const job *j) {
  static const char *const finishes[] = {"running", "stop", "length", "nonfinite", "stop text", "cancelled"};
  int32_t ids[TOKENS_MAX];
  char text[TEXT_MAX];
  size_t bytes = 0;
  for (uint32_t i = 0; i < j->request.token_count; i++) ids[i] = j->tokens[i].id;
  if (verbatim_decode(engine, ids, j->request.token_count, text, sizeof text, &bytes) != 0) return stop(j->text, verbatim_error());
  printf("%s %.*s (%s, %u tokens)\n", j->text, (int)bytes, text, finishes[j->request.finish], j->request.token_count);
  for (uint32_t i = 0; i < j->request.token_count; i++) printf("%s%d", i ? " " : "  ", ids[i]);
  printf("\n");
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 3) return stop("usage", "embed PLAN MODEL_DIR [cpu]");
  verbatim_config config = {.plan_path = argv[1], .model_dir = argv[2], .device = argc > 3 ? VERBATIM_DEVICE_CPU : VERBATIM_DEVICE_AUTO,
                            .text = true};
  verbatim *engine = NULL;
  if (verbatim_open(&engine, &config) != 0) return stop("open", verbatim_error());
  verbatim_chat *chat = NULL;
  int failed = verbatim_chat_open(&chat, config.model_dir, NULL) == 0 ? 0 : stop("chat template", verbatim_error());
  for (int i = 0; i < JOBS && !failed; i++) failed = submit(engine, chat, &jobs[i]);
  if (!failed) failed = run(engine);
  for (int i = 0; i < JOBS && !failed; i++) failed = print(engine, &jobs[i]);
  verbatim_chat_close(chat);
  verbatim_close(engine);
  return failed;
}

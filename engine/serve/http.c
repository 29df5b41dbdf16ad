/* serve/http.c - see serve/http.h.
 *
 * All of an exchange (a request and its reply) belongs to the thread of libmicrohttpd, but for what wakes it: the queue's thread and the
 * watching one set flags under the mutex and resume the connection. An ask's exchange has two holders, the connection and the queue.
 * A body is judged, and a large reply written, on the thread of serve_work; until it is done the connection sleeps. The tokenizer turns
 * text into ids on that thread only. */
#define _DEFAULT_SOURCE /* NI_MAXHOST */
#include "serve/http.h"
#include "base/clock.h"
#include "serve/info.h"
#include "serve/links.h"
#include "serve/reply.h"
#include "serve/work.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MEMORY_BYTES (48u << 10) /* of a connection: beyond it libmicrohttpd refuses by itself */
#define BLOCK_BYTES (16u << 10)
#define BODY_ROOM_MIN 4096u
#define BACKLOG 1024
#define ID_BYTES 40u
#define AT_ONCE_BYTES (32u << 10) /* of a body or a reply: a few milliseconds */

typedef struct exchange exchange;
struct exchange {
  serve_task task;      /* stands first */
  void (*work)(exchange *x);
  enum MHD_Result (*go_on)(exchange *x); /* when there is news; null: the body is not there yet */
  serve_http *server;
  struct MHD_Connection *connection;
  serve_link *link;
  const serve_route *route;
  double began;
  char id[ID_BYTES], method[16], path[SERVE_ROUTER_URL_BYTES_MAX + 1];
  serve_fault fault;    /* with is_refused: the reply, once the body has been thrown away */
  bool is_refused;
  char *body;
  uint64_t body_bytes, body_room, arrived_bytes;
  bool is_good;         /* what work has made of it; else fault says why */
  serve_ask *judged;    /* before it is in the queue */
  serve_ask *ask;       /* null: there is none, or not yet */
  serve_ticket ticket;
  serve_text out;       /* of a stream: events, sent up to .. */
  size_t sent;
  bool has_ended;       /* of a stream: out holds its end */
  unsigned http_status; /* of the reply; 0: none yet */
  uint64_t reply_bytes;
  /* Under the server's mutex. */
  bool is_suspended, has_news, is_gone, has_left, is_working;
  uint32_t holders;
};

struct serve_http {
  serve_http_config config;
  struct MHD_Daemon *daemon;
  serve_links *links;
  serve_work *work;
  uint64_t boot, serial; /* of ids */
  int listener;          /* once drained; else the daemon's */
  serve_text tokenizer_info;
  serve_fault tokenizer_fault; /* with a status: why there is none */
  pthread_mutex_t mutex; /* of all below it */
  uint32_t exchanges;
  bool is_draining;
};

/* === Exchanges ============================================================================================================== */

static void drop_body(exchange *x) {
  free(x->body);
  x->body = NULL;
  serve_queue_give_bytes(x->server->config.queue, x->body_room);
  x->body_bytes = x->body_room = 0;
}

/* The memory of an ask is there until the client has its reply: only then is the budget free of it. */
static void let_go(exchange *x) {
  serve_http *self = x->server;
  pthread_mutex_lock(&self->mutex);
  bool last = --x->holders == 0;
  pthread_mutex_unlock(&self->mutex);
  if (!last) return;
  serve_ask_close(x->judged);
  serve_ask_close(x->ask);
  serve_queue_give_bytes(self->config.queue, x->ticket.bytes);
  serve_text_close(&x->out);
  free(x);
}

/* Under the mutex. While the other thread works on it the connection sleeps on: libmicrohttpd could end it by itself. */
static void resume(exchange *x) {
  if (!x->is_suspended || x->is_working) return;
  x->is_suspended = false;
  MHD_resume_connection(x->connection);
}

/* Under the mutex. */
static void wake(exchange *x) {
  x->has_news = true;
  resume(x);
}

/* Suspends the connection unless there is news; returns whether it did. */
static bool sleep_without_news(exchange *x) {
  pthread_mutex_lock(&x->server->mutex);
  bool sleeps = !x->has_news;
  if (sleeps) {
    x->is_suspended = true;
    MHD_suspend_connection(x->connection);
  }
  pthread_mutex_unlock(&x->server->mutex);
  return sleeps;
}

static void on_progress(serve_ticket *ticket) {
  exchange *x = ticket->owner;
  pthread_mutex_lock(&x->server->mutex);
  wake(x);
  pthread_mutex_unlock(&x->server->mutex);
}

static void on_left(serve_ticket *ticket) {
  exchange *x = ticket->owner;
  pthread_mutex_lock(&x->server->mutex);
  x->has_left = true;
  wake(x);
  pthread_mutex_unlock(&x->server->mutex);
  let_go(x);
}

static void on_gone(void *guest) {
  exchange *x = guest;
  pthread_mutex_lock(&x->server->mutex);
  x->is_gone = true;
  wake(x);
  pthread_mutex_unlock(&x->server->mutex);
}

/* What the other threads have said; it is no news any more. */
static void take_news(exchange *x, bool *gone, bool *left) {
  pthread_mutex_lock(&x->server->mutex);
  *gone = x->is_gone;
  *left = x->has_left;
  x->has_news = false;
  pthread_mutex_unlock(&x->server->mutex);
}

static void put_tokens(const serve_ask *ask, serve_text *line) {
  uint64_t prompt = 0, made = 0;
  for (uint32_t i = 0; i < ask->choice_count; i++) {
    prompt += ask->choices[i].request.prompt_count;
    made += ask->choices[i].request.token_count;
  }
  serve_text_put(line, ",\"requests\":%u,\"prompt_tokens\":%" PRIu64 ",\"made_tokens\":%" PRIu64, ask->choice_count, prompt, made);
}

/* Whatever bytes a client sends, its line is there and is JSON. */
static void log_reply(const exchange *x, bool has_left, bool completed) {
  FILE *to = x->server->config.access_log;
  serve_text line = {0};
  struct timespec now;
  if (!to) return;
  clock_gettime(CLOCK_REALTIME, &now);
  serve_text_put(&line, "{\"time\":%.6f,\"id\":\"%s\",\"method\":", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, x->id);
  serve_text_string(&line, x->method, strlen(x->method));
  serve_text_put(&line, ",\"path\":");
  serve_text_string(&line, x->path, strlen(x->path));
  serve_text_put(&line, ",\"status\":%u,\"seconds\":%.6f,\"body_bytes\":%" PRIu64 ",\"reply_bytes\":%" PRIu64 ",\"whole\":%s",
                 x->http_status, clock_seconds() - x->began, x->arrived_bytes, x->reply_bytes, completed ? "true" : "false");
  if (x->ask && has_left) put_tokens(x->ask, &line);
  serve_text_put(&line, "}\n");
  if (!line.failed) fwrite(line.bytes, 1, line.count, to), fflush(to);
  serve_text_close(&line);
}

/* The last that libmicrohttpd says of a request, however it ended. */
static void on_completed(void *context, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode why) {
  serve_http *self = context;
  exchange *x = *state;
  (void)connection;
  if (!x) return;
  *state = NULL;
  serve_links_end(x->link);
  pthread_mutex_lock(&self->mutex);
  bool abandoned = x->ask && !x->has_left;
  self->exchanges--;
  pthread_mutex_unlock(&self->mutex);
  if (abandoned) {
    serve_queue_cancel(self->config.queue, &x->ticket);
    serve_metrics_add(self->config.metrics, SERVE_COUNT_DISCONNECTED, 1);
  }
  if (x->http_status) serve_metrics_reply(self->config.metrics, x->http_status);
  log_reply(x, !abandoned, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
  drop_body(x);
  let_go(x);
}

/* === What takes long ======================================================================================================== */

static void run_task(serve_task *task) {
  exchange *x = (exchange *)task;
  serve_http *self = x->server;
  x->work(x);
  pthread_mutex_lock(&self->mutex);
  x->is_working = false;
  resume(x); /* no news: the queue has nothing to say yet */
  pthread_mutex_unlock(&self->mutex);
}

/* While the other thread has the exchange nothing here may touch it: also a client that is gone is found to be so afterwards. */
static bool sleep_while_working(exchange *x) {
  pthread_mutex_lock(&x->server->mutex);
  bool sleeps = x->is_working;
  if (sleeps) {
    x->is_suspended = true;
    MHD_suspend_connection(x->connection);
  }
  pthread_mutex_unlock(&x->server->mutex);
  return sleeps;
}

/* Work on the other thread, then go_on. */
static enum MHD_Result do_work(exchange *x, void (*work)(exchange *x), enum MHD_Result (*then)(exchange *x), bool is_long) {
  x->task.run = run_task;
  x->work = work;
  x->go_on = then;
  x->is_working = true; /* nobody else has the exchange yet */
  if (serve_work_add(x->server->work, &x->task, is_long)) return sleep_while_working(x) ? MHD_YES : then(x);
  x->is_working = false;
  return MHD_NO; /* all connections are being ended */
}

/* === Replies ================================================================================================================ */

static enum MHD_Result send_response(exchange *x, unsigned http_status, struct MHD_Response *response, const char *type) {
  if (!response) return MHD_NO;
  pthread_mutex_lock(&x->server->mutex);
  bool draining = x->server->is_draining;
  pthread_mutex_unlock(&x->server->mutex);
  if (type) MHD_add_response_header(response, "Content-Type", type);
  MHD_add_response_header(response, "X-Request-Id", x->id);
  if (draining) MHD_add_response_header(response, "Connection", "close");
  if (http_status == 405 && x->route) MHD_add_response_header(response, "Allow", serve_router_allow(x->route));
  if (http_status == 429 || http_status == 503) MHD_add_response_header(response, "Retry-After", "1");
  if (http_status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
  x->http_status = http_status;
  enum MHD_Result result = MHD_queue_response(x->connection, http_status, response);
  MHD_destroy_response(response);
  return result;
}

/* Takes the text's memory over. */
static enum MHD_Result send_text(exchange *x, unsigned http_status, serve_text *text, const char *type) {
  if (text->failed) {
    serve_text_close(text);
    return MHD_NO;
  }
  x->reply_bytes = text->count;
  struct MHD_Response *response = MHD_create_response_from_buffer(text->count, text->bytes ? text->bytes : (char[]){0},
                                                                  text->bytes ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_MUST_COPY);
  if (!response) free(text->bytes);
  return send_response(x, http_status, response, type);
}

static enum MHD_Result send_fault(exchange *x, const serve_fault *fault) {
  serve_text text = {0};
  serve_reply_fault(fault, &text);
  return send_text(x, fault->http_status, &text, "application/json");
}

/* A body that serve_info has written, or the fault it found. */
static enum MHD_Result send_info(exchange *x, bool good, serve_text *text, const serve_fault *fault) {
  if (good) return send_text(x, 200, text, "application/json");
  serve_text_close(text);
  return send_fault(x, fault);
}

/* What the model's folder held when the server started. */
static enum MHD_Result send_tokenizer(exchange *x) {
  const serve_http *self = x->server;
  serve_text text = {0};
  if (self->tokenizer_fault.http_status) return send_fault(x, &self->tokenizer_fault);
  serve_text_add(&text, self->tokenizer_info.bytes, self->tokenizer_info.count);
  return send_info(x, true, &text, NULL);
}

static enum MHD_Result send_metrics(exchange *x) {
  serve_http *self = x->server;
  serve_text text = {0};
  serve_metrics_set(self->config.metrics, SERVE_GAUGE_CONNECTIONS, serve_links_count(self->links));
  fail_clear();
  status result = serve_metrics_text(self->config.metrics, &self->config.labels, &text.bytes, &text.count);
  if (result == OK) return send_text(x, 200, &text, "text/plain; version=0.0.4; charset=utf-8");
  const serve_fault fault = serve_router_fault(500, "no_memory", "%.400s", fail_text());
  return send_fault(x, &fault);
}

static enum MHD_Result send_health(exchange *x) {
  serve_text none = {0};
  pthread_mutex_lock(&x->server->mutex);
  bool draining = x->server->is_draining;
  pthread_mutex_unlock(&x->server->mutex);
  fail_clear();
  bool good = !draining && serve_queue_failure(x->server->config.queue) == OK;
  return send_text(x, good ? 200 : 503, &none, NULL);
}

/* === Asks =================================================================================================================== */

static serve_model model_now(const serve_http *self) {
  serve_model model = self->config.model;
  model.created = (uint64_t)time(NULL);
  return model;
}

static bool refill(exchange *x) {
  const serve_model model = model_now(x->server);
  x->out.count = x->sent = 0;
  serve_reply_stream(&model, x->ask, &x->out, &x->has_ended);
  return !x->out.failed;
}

/* More of the stream, or the connection sleeps until there is. Its end waits until the queue has written the requests down. */
static ssize_t read_stream(void *context, uint64_t position, char *room, size_t room_bytes) {
  exchange *x = context;
  (void)position;
  for (bool gone, has_left;;) {
    take_news(x, &gone, &has_left);
    if (gone) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (x->sent == x->out.count && !x->has_ended && !refill(x)) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (has_left && x->has_ended && x->sent == x->out.count) return MHD_CONTENT_READER_END_OF_STREAM;
    if (x->sent < x->out.count && (has_left || !x->has_ended)) break;
    if (sleep_without_news(x)) return 0;
  }
  size_t left = x->out.count - x->sent, bytes = left < room_bytes ? left : room_bytes;
  memcpy(room, x->out.bytes + x->sent, bytes);
  x->sent += bytes;
  x->reply_bytes += bytes;
  return (ssize_t)bytes;
}

static enum MHD_Result send_stream(exchange *x) {
  struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, x, NULL);
  if (response) MHD_add_response_header(response, "Cache-Control", "no-cache");
  return send_response(x, 200, response, "text/event-stream; charset=utf-8");
}

/* The fault does not change any more. */
static bool has_failed(serve_ask *ask) {
  pthread_mutex_lock(&ask->mutex);
  bool failed = ask->failed;
  pthread_mutex_unlock(&ask->mutex);
  return failed;
}

static void write_whole(exchange *x) {
  const serve_model model = model_now(x->server);
  x->is_good = serve_reply_whole(&model, x->ask, &x->out, &x->fault);
}

/* What was written, or the fault that was found. */
static enum MHD_Result send_out(exchange *x) {
  serve_text text = x->out;
  x->out = (serve_text){0};
  return send_info(x, x->is_good, &text, &x->fault);
}

/* A stream that the engine has taken or refused; else the ask is over, or its client gone. */
static enum MHD_Result answer(exchange *x) {
  bool gone, has_left;
  take_news(x, &gone, &has_left);
  if (gone) return MHD_NO;
  if (!has_left && !x->ask->stream) return sleep_without_news(x) ? MHD_YES : answer(x);
  if (has_failed(x->ask)) return send_fault(x, &x->ask->fault);
  if (x->ask->stream) return send_stream(x);
  if (x->ask->reply_bytes > AT_ONCE_BYTES) return do_work(x, write_whole, send_out, true);
  write_whole(x);
  return send_out(x);
}

static enum MHD_Result send_refusal(exchange *x, enum serve_admission why) {
  const serve_fault full = serve_router_fault(429, "too_many_requests", "too many requests are waiting; hint: ask again later, or raise "
                                              "the server's --max-waiting");
  const serve_fault memory = serve_router_fault(429, "out_of_request_memory", "the memory for requests is taken; hint: ask again later, or "
                                              "raise the server's --request-memory-bytes");
  const serve_fault large = serve_router_fault(400, "request_too_large", "the request needs more memory or places than the server gives to "
                                             "all; hint: fewer prompts or samples at once, or a smaller max_tokens");
  const serve_fault closing = serve_router_fault(503, "shutting_down", "the server is shutting down");
  return send_fault(x, why == SERVE_FULL ? &full : why == SERVE_NO_MEMORY ? &memory : why == SERVE_TOO_LARGE ? &large : &closing);
}

static enum MHD_Result begin_ask(exchange *x) {
  x->ask = x->judged;
  x->judged = NULL;
  x->ticket = (serve_ticket){.ask = x->ask, .on_progress = on_progress, .on_left = on_left, .owner = x};
  x->holders = 2; /* nobody else has the exchange yet */
  enum serve_admission admission = serve_queue_add(x->server->config.queue, &x->ticket);
  if (admission != SERVE_ADMITTED) {
    x->holders = 1;
    serve_ask_close(x->ask);
    x->ask = NULL;
    return send_refusal(x, admission);
  }
  x->go_on = answer;
  if (serve_links_is_gone(x->link)) on_gone(x);
  return sleep_without_news(x) ? MHD_YES : answer(x);
}

/* What the body says: an ask, or what serve_info answers at once. */
static void judge_body(exchange *x) {
  const serve_model model = model_now(x->server);
  const char *body = x->body ? x->body : "";
  size_t bytes = (size_t)x->body_bytes;
  enum serve_endpoint endpoint = x->route->endpoint;
  if (endpoint == SERVE_TOKENIZE) x->is_good = serve_info_tokenize(&model, body, bytes, &x->out, &x->fault);
  else if (endpoint == SERVE_DETOKENIZE) x->is_good = serve_info_detokenize(&model, body, bytes, &x->out, &x->fault);
  else x->is_good = serve_ask_parse(&model, endpoint == SERVE_CHAT_COMPLETIONS ? SERVE_CHAT : SERVE_COMPLETION, body, bytes, x->id,
                                    &x->judged, &x->fault);
}

static enum MHD_Result answer_body(exchange *x) {
  drop_body(x);
  return x->is_good && x->judged ? begin_ask(x) : send_out(x);
}

/* === Bodies ================================================================================================================= */

static void refuse(exchange *x, serve_fault fault) {
  if (!x->is_refused) x->fault = fault;
  x->is_refused = true;
  drop_body(x);
}

/* Room grows as bytes come, out of the memory for requests: who only promises a body takes none of it. */
static bool make_room(exchange *x, uint64_t bytes) {
  uint64_t most = x->server->config.router.body_bytes_max, room = x->body_room;
  while (room < bytes) room = room ? 2 * room : BODY_ROOM_MIN;
  if (room > most) room = most;
  if (room == x->body_room) return true;
  if (!serve_queue_take_bytes(x->server->config.queue, room - x->body_room)) return false;
  char *grown = realloc(x->body, room);
  if (!grown) {
    serve_queue_give_bytes(x->server->config.queue, room - x->body_room);
    return false;
  }
  x->body = grown;
  x->body_room = room;
  return true;
}

/* A body that is refused is thrown away as it comes, so that its client reads the reply; of one that goes on and on the connection ends. */
static enum MHD_Result take_body(exchange *x, const char *part, size_t bytes) {
  uint64_t most = x->server->config.router.body_bytes_max;
  x->arrived_bytes += bytes;
  if (x->arrived_bytes > 2 * most) return MHD_NO;
  if (!x->is_refused && x->arrived_bytes > most)
    refuse(x, serve_router_fault(413, "body_too_large", "expected a body of at most %" PRIu64 " bytes; hint: the server's --max-body-bytes",
                               most));
  if (!x->is_refused && !make_room(x, x->body_bytes + bytes))
    refuse(x, serve_router_fault(429, "out_of_request_memory", "the memory for requests is taken; hint: ask again later"));
  if (x->is_refused) return MHD_YES;
  memcpy(x->body + x->body_bytes, part, bytes);
  x->body_bytes += bytes;
  return MHD_YES;
}

/* === The way of a request =================================================================================================== */

static enum MHD_Result serve(exchange *x) {
  const serve_model model = model_now(x->server);
  serve_text text = {0};
  serve_fault fault = {0};
  serve_links_read(x->link);
  if (x->is_refused) return send_fault(x, &x->fault);
  switch (x->route->endpoint) {
    case SERVE_COMPLETIONS:
    case SERVE_CHAT_COMPLETIONS:
    case SERVE_TOKENIZE:
    case SERVE_DETOKENIZE: return do_work(x, judge_body, answer_body, x->body_bytes > AT_ONCE_BYTES);
    case SERVE_MODELS: serve_info_models(&model, &text); return send_info(x, true, &text, NULL);
    case SERVE_MODEL: return send_info(x, serve_info_model(&model, x->path + strlen(x->route->path), &text, &fault), &text, &fault);
    case SERVE_HEALTH: return send_health(x);
    case SERVE_VERSION: serve_info_version(&model, &text); return send_info(x, true, &text, NULL);
    case SERVE_METRICS: return send_metrics(x);
    case SERVE_TOKENIZER_INFO: return send_tokenizer(x);
  }
  return MHD_NO;
}

static enum MHD_Result add_header(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
  serve_head *head = context;
  head->bytes += strlen(name) + (value ? strlen(value) : 0);
  head->length_count += strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0;
  head->has_wrong_name |= kind == MHD_HEADER_KIND && strpbrk(name, " \t");
  return MHD_YES;
}

static serve_head read_head(struct MHD_Connection *connection, const char *url, const char *method) {
  serve_head head = {.method = method, .url = url,
                     .authorization = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization"),
                     .content_type = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Type"),
                     .content_length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length"),
                     .transfer_encoding = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Transfer-Encoding")};
  MHD_get_connection_values(connection, MHD_HEADER_KIND, add_header, &head);
  MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, add_header, &head);
  return head;
}

/* A client's own id, of the characters that cannot be taken for anything else; or a new one. */
static void name_exchange(exchange *x) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  const char *given = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "X-Request-Id");
  size_t bytes = given ? strlen(given) : 0;
  if (bytes > 0 && bytes < sizeof x->id && strspn(given, allowed) == bytes) memcpy(x->id, given, bytes + 1);
  else snprintf(x->id, sizeof x->id, "%016" PRIx64 "%08" PRIx64, x->server->boot, ++x->server->serial);
}

static exchange *new_exchange(serve_http *self, struct MHD_Connection *connection, const char *url, const char *method) {
  const union MHD_ConnectionInfo *own = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  if (!own || !own->socket_context) return NULL;
  exchange *x = calloc(1, sizeof *x);
  if (!x) return NULL;
  *x = (exchange){.server = self, .connection = connection, .link = own->socket_context, .began = clock_seconds(), .holders = 1};
  snprintf(x->method, sizeof x->method, "%s", method);
  snprintf(x->path, sizeof x->path, "%s", url);
  name_exchange(x);
  pthread_mutex_lock(&self->mutex);
  self->exchanges++;
  pthread_mutex_unlock(&self->mutex);
  serve_links_begin(x->link, x);
  return x;
}

/* A refusal that comes before the body spares a client that asked first the sending; one that did not ask could miss it. Of a body whose
 * length is not certain nothing is read. */
static enum MHD_Result begin(serve_http *self, struct MHD_Connection *connection, const char *url, const char *method, void **state) {
  exchange *x = new_exchange(self, connection, url, method);
  if (!x) return MHD_NO;
  *state = x;
  const serve_head head = read_head(connection, url, method);
  serve_fault fault;
  if (serve_router_judge(&self->config.router, &head, &x->route, &fault)) return MHD_YES;
  refuse(x, fault);
  uint64_t bytes = head.content_length ? strtoull(head.content_length, NULL, 10) : 0;
  bool asks = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Expect") != NULL;
  return asks || !serve_router_is_framed(&head) || bytes > 2 * self->config.router.body_bytes_max ? serve(x) : MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
                              const char *part, size_t *part_bytes, void **state) {
  exchange *x = *state;
  (void)version;
  if (!x) return begin(context, connection, url, method, state);
  if (*part_bytes == 0) return x->go_on ? x->go_on(x) : serve(x);
  enum MHD_Result result = take_body(x, part, *part_bytes);
  *part_bytes = 0;
  return result;
}

/* A path with a NUL is left as it was written, and is none of ours: it would be another one up to there. */
static size_t unescape(void *context, struct MHD_Connection *connection, char *text) {
  (void)context;
  (void)connection;
  return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **state, enum MHD_ConnectionNotificationCode what) {
  serve_http *self = context;
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *state = info ? serve_links_add(self->links, info->connect_fd) : NULL; /* null: its requests are refused */
  } else if (*state) {
    serve_links_remove(*state);
    *state = NULL;
  }
}

/* === Start and end ========================================================================================================== */

static status listen_on(const struct addrinfo *at, int *out) {
  static const int on = 1;
  int listener = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return FAIL(ERR_IO, "no socket: %s", strerror(errno));
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, at->ai_addr, at->ai_addrlen) != 0 || listen(listener, BACKLOG) != 0) {
    int cause = errno;
    close(listener);
    return FAIL(ERR_IO, "cannot listen: %s", strerror(cause));
  }
  *out = listener;
  return OK;
}

/* The first address that the host has. */
static status open_listener(const serve_http_config *config, int *out, char *url, size_t url_bytes) {
  char port[16], name[NI_MAXHOST], service[NI_MAXSERV];
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  struct sockaddr_storage address;
  socklen_t address_bytes = sizeof address;
  snprintf(port, sizeof port, "%u", config->port);
  int failure = getaddrinfo(config->host, port, &hints, &found);
  if (failure != 0) return FAIL(ERR_USAGE, "--host %s: %s", config->host, gai_strerror(failure));
  status result = listen_on(found, out);
  freeaddrinfo(found);
  if (result != OK) {
    fail_prefix(config->host);
    return result;
  }
  if (getsockname(*out, (struct sockaddr *)&address, &address_bytes) != 0 ||
      getnameinfo((struct sockaddr *)&address, address_bytes, name, sizeof name, service, sizeof service,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    close(*out);
    return FAIL(ERR_IO, "--host %s: the address of the socket cannot be read", config->host);
  }
  bool is_v6 = strchr(name, ':') != NULL;
  snprintf(url, url_bytes, "http://%s%s%s:%s", is_v6 ? "[" : "", name, is_v6 ? "]" : "", service);
  return OK;
}

static status start_daemon(serve_http *self, int listener) {
  const serve_http_config *c = &self->config;
  self->daemon = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, self, MHD_OPTION_LISTEN_SOCKET, listener,
      MHD_OPTION_CONNECTION_LIMIT, c->connections_max, MHD_OPTION_CONNECTION_TIMEOUT, c->client_seconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      (size_t)HEAD_MEMORY_BYTES, MHD_OPTION_NOTIFY_COMPLETED, on_completed, self, MHD_OPTION_NOTIFY_CONNECTION, on_connection, self,
      MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
  if (self->daemon) return OK;
  close(listener);
  return FAIL(ERR_IO, "server: libmicrohttpd cannot be started: %s", strerror(errno));
}

status serve_http_open(serve_http **out, const serve_http_config *config, char *url, size_t url_bytes) {
  int listener = -1;
  serve_http *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "server: no memory");
  self->config = *config;
  ASSERT(pthread_mutex_init(&self->mutex, NULL) == 0);
  if (getrandom(&self->boot, sizeof self->boot, 0) != sizeof self->boot) self->boot = (uint64_t)time(NULL);
  fail_clear();
  if (serve_info_tokenizer(&config->model, config->model_dir, &self->tokenizer_info) != OK)
    self->tokenizer_fault = serve_router_fault(500, "no_tokenizer_info", "%.480s", fail_text());
  fail_clear();
  status result = serve_links_open(&self->links, config->client_seconds, on_gone);
  if (result == OK) result = serve_work_open(&self->work);
  if (result == OK) result = open_listener(config, &listener, url, url_bytes);
  if (result == OK) result = start_daemon(self, listener);
  if (result == OK) *out = self;
  else serve_http_close(self);
  return result;
}

int serve_http_descriptor(const serve_http *self) { return serve_links_descriptor(self->links); }

void serve_http_look(serve_http *self) { serve_links_look(self->links); }

void serve_http_tick(serve_http *self) { serve_links_sweep(self->links); }

void serve_http_drain(serve_http *self) {
  pthread_mutex_lock(&self->mutex);
  bool first = !self->is_draining;
  self->is_draining = true;
  pthread_mutex_unlock(&self->mutex);
  if (!first) return;
  self->listener = MHD_quiesce_daemon(self->daemon);
  if (self->listener != MHD_INVALID_SOCKET) shutdown(self->listener, SHUT_RDWR); /* the daemon may be about to name it: closed after it */
}

bool serve_http_idle(serve_http *self) {
  pthread_mutex_lock(&self->mutex);
  bool idle = self->exchanges == 0;
  pthread_mutex_unlock(&self->mutex);
  return idle;
}

void serve_http_close(serve_http *self) {
  if (!self) return;
  if (self->links) serve_links_shut(self->links);
  if (self->work) serve_work_end(self->work); /* no connection sleeps any more */
  if (self->daemon) MHD_stop_daemon(self->daemon);
  if (self->listener > 0) close(self->listener);
  serve_links_close(self->links);
  serve_work_close(self->work);
  serve_text_close(&self->tokenizer_info);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

/* serve/http.c - see serve/http.h.
 *
 * Only serve_work's thread tokenizes. Other threads post news: bits in the exchange and a list of the exchanges that have some, under one
 * mutex. Threads share nothing else here. */
#define _DEFAULT_SOURCE /* getentropy */
#include "serve/http.h"
#include "base/clock.h"
#include "serve/connections.h"
#include "serve/info.h"
#include "serve/reply.h"
#include "serve/request_log.h"
#include "serve/work.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define BODY_ROOM_MIN 4096u
#define ID_BYTES 40u
#define HEADERS_BYTES 1280u
#define ACCESS_BYTES 768u /* of them: Access-Control-... */
#define SHORT_BYTES (32u << 10) /* a body or a reply up to this size takes a few milliseconds */

/* An exchange is a request and its reply. States follow each other as
 *
 *   READING -> JUDGING -> QUEUED -> STREAMING -> ENDING -> REPLIED
 *   QUEUED -> WRITING -> REPLIED; and READING, JUDGING or QUEUED -> REPLIED
 *
 * The connection may end in any state. The exchange is freed once it has no connection, serve_work does not hold it (JUDGING, WRITING) and
 * the queue does not hold it (is_in_queue). */
enum exchange_state {
  READING,   /* the body arrives; of a request that was refused it is discarded, and the refusal sent after it */
  JUDGING,   /* serve_work parses the body                                                                     */
  QUEUED,    /* the engine's queue has the request; nothing has been sent                                      */
  STREAMING, /* events are sent as the engine generates tokens                                                 */
  ENDING,    /* the last events are ready and wait until the queue has written the receipt                     */
  WRITING,   /* serve_work writes a large reply                                                                */
  REPLIED    /* the connection has the whole reply                                                             */
};
enum { PROGRESS = 1, LEFT = 2, WORKED = 4 }; /* news: the queue has something new, has finished; serve_work has finished */

typedef struct exchange exchange;
struct exchange {
  serve_task task;              /* must be the first member */
  serve_http *server;
  serve_connection *connection; /* null after it has ended */
  const serve_route *route;
  const char *origin;           /* of the web page that may read the reply; null: none */
  bool is_preflight;
  enum exchange_state state;
  bool is_in_queue;             /* the queue holds the ticket */
  double began;
  char id[ID_BYTES], method[16], path[SERVE_ROUTER_URL_BYTES_MAX + 1];
  serve_fault fault;            /* if its status is set: the reply */
  char *body;
  uint64_t body_bytes, body_room, arrived_bytes;
  serve_request *request;       /* null until the body has been parsed, and without a request for tokens */
  serve_ticket ticket;
  serve_text out;               /* a reply, or events of a stream, not yet sent */
  unsigned http_status;         /* of the reply; 0: none yet */
  uint64_t reply_bytes;
  unsigned news;                /* these two are under the server's mutex */
  exchange *next_news;
  unsigned taken_news;          /* these two are what take_news found */
  exchange *next_taken;
};

struct serve_http {
  serve_http_config config;
  serve_connections *connections;
  serve_work *work;
  uint64_t boot, serial; /* of ids */
  serve_text tokenizer_info;
  serve_fault tokenizer_fault; /* if its status is set: why there is none */
  uint32_t exchanges;          /* those with a connection */
  bool is_draining;
  pthread_mutex_t mutex; /* protects all members below */
  exchange *first_news, *last_news;
};

/* === News =================================================================================================================== */

/* Called on the threads of the queue and of serve_work. After LEFT or WORKED they do not touch the exchange again. */
static void post(exchange *x, unsigned news) {
  serve_http *self = x->server;
  pthread_mutex_lock(&self->mutex);
  bool is_first = !self->first_news;
  if (!x->news) {
    x->next_news = NULL;
    *(self->last_news ? &self->last_news->next_news : &self->first_news) = x;
    self->last_news = x;
  }
  x->news |= news;
  pthread_mutex_unlock(&self->mutex);
  if (is_first) serve_connections_wake(self->connections);
}

/* Takes everything that has been posted. What is posted meanwhile waits for the next iteration of the loop, after the sockets. */
static exchange *take_news(serve_http *self) {
  pthread_mutex_lock(&self->mutex);
  exchange *first = self->first_news;
  for (exchange *x = first; x; x = x->next_news) {
    x->taken_news = x->news;
    x->next_taken = x->next_news;
    x->news = 0;
  }
  self->first_news = self->last_news = NULL;
  pthread_mutex_unlock(&self->mutex);
  return first;
}

static void on_progress(serve_ticket *ticket) { post(ticket->owner, PROGRESS); }
static void on_left(serve_ticket *ticket) { post(ticket->owner, LEFT); }

/* === Exchanges ============================================================================================================== */

static void drop_body(exchange *x) {
  free(x->body);
  x->body = NULL;
  serve_queue_give_bytes(x->server->config.queue, x->body_room);
  x->body_bytes = x->body_room = 0;
}

/* Frees an exchange that nobody holds. Only now does its memory count as free: the client has the reply. */
static void release(exchange *x) {
  if (x->connection || x->is_in_queue || x->state == JUDGING || x->state == WRITING) return;
  drop_body(x);
  serve_request_close(x->request);
  serve_queue_give_bytes(x->server->config.queue, x->ticket.bytes);
  strbuf_close(&x->out);
  free(x);
}

static void put_tokens(const serve_request *request, serve_text *line) {
  uint64_t prompt = 0, made = 0;
  for (uint32_t i = 0; i < request->choice_count; i++) {
    prompt += request->choices[i].engine_request.prompt_count;
    made += request->choices[i].engine_request.token_count;
  }
  strbuf_addf(line, ",\"requests\":%u,\"prompt_tokens\":%" PRIu64 ",\"made_tokens\":%" PRIu64, request->choice_count, prompt, made);
}

/* Writes one line of JSON, whatever bytes the client has sent. */
static void log_reply(const exchange *x, bool whole) {
  serve_journal *to = x->server->config.journal;
  serve_text line = {0};
  struct timespec now;
  if (!serve_journal_has(to, SERVE_JOURNAL_LOG)) return;
  clock_gettime(CLOCK_REALTIME, &now);
  strbuf_addf(&line, "{\"time\":%.6f,\"id\":\"%s\",\"method\":", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, x->id);
  serve_text_string(&line, x->method, strlen(x->method));
  strbuf_addf(&line, ",\"path\":");
  serve_text_string(&line, x->path, strlen(x->path));
  strbuf_addf(&line, ",\"status\":%u,\"seconds\":%.6f,\"body_bytes\":%" PRIu64 ",\"reply_bytes\":%" PRIu64 ",\"whole\":%s",
                 x->http_status, clock_seconds() - x->began, x->arrived_bytes, x->reply_bytes, whole ? "true" : "false");
  if (x->state >= QUEUED && x->request && !x->is_in_queue) put_tokens(x->request, &line);
  strbuf_addf(&line, "}\n");
  if (!line.failed) serve_journal_log(to, SERVE_JOURNAL_LOG, line.bytes, line.count);
  strbuf_close(&line);
}

/* Requests for tokens whose bodies arrived: they can be asked again. */
static bool is_recorded(const exchange *x) {
  bool asks = x->route && (x->route->endpoint == SERVE_COMPLETIONS || x->route->endpoint == SERVE_CHAT_COMPLETIONS);
  return asks && x->body && serve_journal_has(x->server->config.journal, SERVE_JOURNAL_REQUESTS);
}

static void log_request(const exchange *x) {
  serve_journal *to = x->server->config.journal;
  serve_text line = {0};
  struct timespec now;
  if (!is_recorded(x) || !x->http_status) return;
  clock_gettime(CLOCK_REALTIME, &now);
  bool has_results = x->state >= QUEUED && x->request && !x->is_in_queue;
  for (uint32_t i = 0; has_results && i < x->request->choice_count; i++)
    has_results = x->request->choices[i].engine_request.finish != VERBATIM_RUNNING; /* else the engine has refused it */
  const serve_request_log_entry entry = {
    .time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, .id = x->id, .path = x->route->path, .http_status = x->http_status,
    .model = &x->server->config.model, .body = x->body, .body_bytes = x->body_bytes, .request = has_results ? x->request : NULL};
  serve_request_log_write(&entry, &line);
  if (!line.failed) serve_journal_log(to, SERVE_JOURNAL_REQUESTS, line.bytes, line.count);
  strbuf_close(&line);
}

static void on_end(void *argument, bool whole) {
  exchange *x = argument;
  serve_http *self = x->server;
  x->connection = NULL;
  self->exchanges--;
  if (x->is_in_queue) {
    serve_queue_cancel(self->config.queue, &x->ticket);
    if (!whole) serve_metrics_add(self->config.metrics, SERVE_COUNT_DISCONNECTED, 1);
  }
  if (x->http_status) serve_metrics_reply(self->config.metrics, x->http_status);
  log_reply(x, whole);
  log_request(x);
  release(x);
}

/* === serve_work ============================================================================================================= */

static serve_model model_now(const serve_http *self) {
  serve_model model = self->config.model;
  model.created = (uint64_t)time(NULL);
  return model;
}

/* Parses a request for tokens, or writes the reply of serve_info. */
static void judge_body(exchange *x) {
  const serve_model model = model_now(x->server);
  const char *body = x->body ? x->body : "";
  size_t bytes = (size_t)x->body_bytes;
  enum serve_endpoint endpoint = x->route->endpoint;
  if (endpoint == SERVE_TOKENIZE) (void)serve_info_tokenize(&model, body, bytes, &x->out, &x->fault);
  else if (endpoint == SERVE_DETOKENIZE) (void)serve_info_detokenize(&model, body, bytes, &x->out, &x->fault);
  else (void)serve_request_parse(&model, endpoint == SERVE_CHAT_COMPLETIONS ? SERVE_CHAT : SERVE_COMPLETION, body, bytes, x->id,
                             &x->request, &x->fault);
}

static void write_whole(exchange *x) {
  const serve_model model = model_now(x->server);
  (void)serve_reply_whole(&model, x->request, &x->out, &x->fault);
}

static void run_task(serve_task *task) {
  exchange *x = (exchange *)task;
  if (x->state == JUDGING) judge_body(x);
  else write_whole(x);
  post(x, WORKED);
}

/* The exchange belongs to serve_work until WORKED is posted. */
static void hand_over(exchange *x, enum exchange_state state, bool is_long) {
  enum exchange_state before = x->state;
  x->task.run = run_task;
  x->state = state;
  if (serve_work_add(x->server->work, &x->task, is_long)) return;
  x->state = before;
  serve_connections_abort(x->connection); /* the server ends */
}

/* === Replies ================================================================================================================ */

/* type null: the reply has no body. */
static void put_headers(exchange *x, unsigned http_status, const char *type, char headers[HEADERS_BYTES]) {
  char content[128] = "", allow[64] = "", access[ACCESS_BYTES];
  if (type) snprintf(content, sizeof content, "Content-Type: %s\r\n", type);
  if (http_status == 405 && x->route) snprintf(allow, sizeof allow, "Allow: %s\r\n", serve_router_allow(x->route));
  const char *retry = http_status == 429 || http_status == 503 ? "Retry-After: 1\r\n" : "";
  const char *authenticate = http_status == 401 ? "WWW-Authenticate: Bearer\r\n" : "";
  serve_access_headers(x->origin, x->is_preflight, access, sizeof access);
  snprintf(headers, HEADERS_BYTES, "%sX-Request-Id: %s\r\n%s%s%s%s", content, x->id, allow, retry, authenticate, access);
  x->http_status = http_status;
}

/* Takes ownership of the text. */
static void send_text(exchange *x, unsigned http_status, serve_text *text, const char *type) {
  char headers[HEADERS_BYTES];
  x->state = REPLIED;
  if (text->failed) {
    strbuf_close(text);
    serve_connections_abort(x->connection);
    return;
  }
  put_headers(x, http_status, type, headers);
  x->reply_bytes = text->count;
  serve_connections_reply(x->connection, http_status, headers, text);
}

static void send_fault(exchange *x, const serve_fault *fault) {
  serve_text text = {0};
  serve_reply_fault(fault, &text);
  send_text(x, fault->http_status, &text, "application/json");
}

/* Sends the fault, or what was written to out. */
static void send_out(exchange *x) {
  if (x->fault.http_status) send_fault(x, &x->fault);
  else send_text(x, 200, &x->out, "application/json");
}

/* Sends what the model's folder contained when the server started. */
static void send_tokenizer(exchange *x) {
  const serve_http *self = x->server;
  x->fault = self->tokenizer_fault;
  strbuf_add(&x->out, self->tokenizer_info.bytes, self->tokenizer_info.count);
  send_out(x);
}

static void send_metrics(exchange *x) {
  serve_http *self = x->server;
  serve_text text = {0};
  serve_metrics_set(self->config.metrics, SERVE_GAUGE_CONNECTIONS, serve_connections_count(self->connections));
  fail_clear();
  if (serve_metrics_text(self->config.metrics, &self->config.labels, &text.bytes, &text.count) == OK) {
    send_text(x, 200, &text, "text/plain; version=0.0.4; charset=utf-8");
    return;
  }
  const serve_fault fault = serve_router_fault(500, "no_memory", "%.400s", fail_text());
  send_fault(x, &fault);
}

static void send_empty(exchange *x, unsigned http_status) {
  serve_text none = {0};
  send_text(x, http_status, &none, NULL);
}

static void send_health(exchange *x) {
  fail_clear();
  bool good = !x->server->is_draining && serve_queue_failure(x->server->config.queue) == OK &&
              serve_journal_is_good(x->server->config.journal);
  send_empty(x, good ? 200 : 503);
}

/* Requests of the engine that run or wait. */
static void put_load(exchange *x) {
  serve_metrics *m = x->server->config.metrics;
  strbuf_addf(&x->out, "{\"server_load\":%.0f}", serve_metrics_get(m, SERVE_GAUGE_RUNNING) + serve_metrics_get(m, SERVE_GAUGE_WAITING));
}

/* Has nothing to read; some clients send an empty object with every POST. */
static void reset_cache(exchange *x) {
  if (x->body_bytes && (x->body_bytes != 2 || memcmp(x->body, "{}", 2) != 0)) {
    const serve_fault fault = serve_router_fault(400, "invalid_value", "expected no body, found one of %" PRIu64 " bytes",
                                                 x->body_bytes);
    send_fault(x, &fault);
    return;
  }
  serve_queue_reset_cache(x->server->config.queue);
  send_empty(x, 200);
}

/* === Requests for the engine ================================================================================================ */

/* Sends new events once the kernel has taken all earlier ones, so that a client that does not read delays only its own stream. The last
 * events wait for the queue to finish, which writes the receipt before. */
static void stream(exchange *x) {
  const serve_model model = model_now(x->server);
  bool ended = false;
  if (!serve_connections_has_room(x->connection)) return;
  if (x->state == STREAMING) serve_reply_stream(&model, x->request, &x->out, &ended);
  if (x->out.failed) {
    serve_connections_abort(x->connection);
    return;
  }
  if (ended) x->state = ENDING;
  if (x->state == ENDING && x->is_in_queue) return;
  x->reply_bytes += x->out.count;
  if (x->out.count) serve_connections_add(x->connection, &x->out);
  if (x->state != ENDING) return;
  x->state = REPLIED;
  serve_connections_finish(x->connection);
}

static void begin_stream(exchange *x) {
  static const char no_cache[] = "Cache-Control: no-cache\r\n";
  char headers[sizeof no_cache + HEADERS_BYTES];
  memcpy(headers, no_cache, sizeof no_cache);
  put_headers(x, 200, "text/event-stream; charset=utf-8", headers + sizeof no_cache - 1);
  x->state = STREAMING;
  serve_connections_begin(x->connection, 200, headers);
  stream(x);
}

/* Once this is true, the fault no longer changes. */
static bool has_failed(serve_request *request) {
  pthread_mutex_lock(&request->mutex);
  bool failed = request->failed;
  pthread_mutex_unlock(&request->mutex);
  return failed;
}

/* Replies when the engine has accepted or refused a stream, or has finished any other request. */
static void answer(exchange *x) {
  if (x->is_in_queue && !x->request->stream) return;
  if (has_failed(x->request)) {
    send_fault(x, &x->request->fault);
  } else if (x->request->stream) {
    begin_stream(x);
  } else if (x->request->reply_bytes > SHORT_BYTES) {
    hand_over(x, WRITING, true);
  } else {
    write_whole(x);
    send_out(x);
  }
}

static void send_refusal(exchange *x, enum serve_admission why) {
  const serve_fault full = serve_router_fault(
      429, "too_many_requests", "too many requests are waiting; hint: try again later, or raise the server's --max-waiting");
  const serve_fault memory = serve_router_fault(
      429, "out_of_request_memory", "the memory for requests is used up; hint: try again later, or raise the server's "
      "--request-memory-bytes");
  const serve_fault large = serve_router_fault(
      400, "request_too_large", "the request needs more memory or slots than the server has; hint: fewer prompts or samples at "
      "once, or a smaller max_tokens");
  const serve_fault closing = serve_router_fault(503, "shutting_down", "the server is shutting down");
  send_fault(x, why == SERVE_FULL ? &full : why == SERVE_NO_MEMORY ? &memory : why == SERVE_TOO_LARGE ? &large : &closing);
}

static void enqueue(exchange *x) {
  x->ticket = (serve_ticket){.request = x->request, .on_progress = on_progress, .on_left = on_left, .owner = x};
  x->state = QUEUED;
  x->is_in_queue = true; /* the queue may post news before serve_queue_add returns */
  enum serve_admission admission = serve_queue_add(x->server->config.queue, &x->ticket);
  if (admission == SERVE_ADMITTED) return;
  x->is_in_queue = false;
  x->state = JUDGING;
  serve_request_close(x->request);
  x->request = NULL;
  send_refusal(x, admission);
}

/* === News of the other threads ============================================================================================== */

static void after_work(exchange *x) {
  bool was_judged = x->state == JUDGING;
  if (was_judged && !is_recorded(x)) drop_body(x); /* a recorded one counts as memory until its line is written */
  if (!x->connection) {
    x->state = REPLIED;
  } else if (was_judged && x->request && serve_connections_is_gone(x->connection)) {
    serve_request_close(x->request);
    x->request = NULL;
    x->state = REPLIED;
    serve_connections_abort(x->connection);
  } else if (was_judged && x->request) {
    enqueue(x);
  } else {
    send_out(x);
  }
}

static void on_news(void *context) {
  for (exchange *x = take_news(context), *next; x; x = next) {
    next = x->next_taken;
    if (x->taken_news & LEFT) x->is_in_queue = false;
    if (x->taken_news & WORKED) after_work(x);
    else if (x->connection && x->state == QUEUED) answer(x);
    else if (x->connection && (x->state == STREAMING || x->state == ENDING)) stream(x);
    release(x);
  }
}

static void on_room(void *argument) {
  exchange *x = argument;
  if (x->state == STREAMING || x->state == ENDING) stream(x);
}

/* What serve_work is doing is finished first. */
static void on_gone(void *argument) {
  exchange *x = argument;
  if (x->state == QUEUED || x->state == STREAMING || x->state == ENDING) serve_connections_abort(x->connection);
}

/* === Bodies ================================================================================================================= */

/* The first refusal is the reply. */
static void refuse(exchange *x, serve_fault fault) {
  if (x->fault.http_status) return;
  x->fault = fault;
  drop_body(x);
}

/* Reserves memory as the body arrives, not as its length was announced. */
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

/* A refused body is read and discarded, so that its client reads the reply; beyond twice the limit the connection ends. */
static bool on_body(void *argument, const char *bytes, size_t count) {
  exchange *x = argument;
  uint64_t most = x->server->config.router.body_bytes_max;
  x->arrived_bytes += count;
  if (x->arrived_bytes > 2 * most) return false;
  if (x->arrived_bytes > most)
    refuse(x, serve_router_fault(413, "body_too_large", "expected a body of at most %" PRIu64 " bytes; hint: the server's --max-body-bytes",
                               most));
  else if (!x->fault.http_status && !make_room(x, x->body_bytes + count))
    refuse(x, serve_router_fault(429, "out_of_request_memory", "the memory for requests is used up; hint: try again later"));
  if (x->fault.http_status) return true;
  memcpy(x->body + x->body_bytes, bytes, count);
  x->body_bytes += count;
  return true;
}

static void on_bad_body(void *argument, const serve_fault *fault) {
  exchange *x = argument;
  drop_body(x);
  send_fault(x, fault);
}

/* === A request ============================================================================================================== */

static void on_request(void *argument) {
  exchange *x = argument;
  if (x->fault.http_status) {
    send_out(x);
    return;
  }
  if (x->is_preflight) {
    send_empty(x, 200);
    return;
  }
  const serve_model model = model_now(x->server);
  switch (x->route->endpoint) {
    case SERVE_COMPLETIONS:
    case SERVE_CHAT_COMPLETIONS:
    case SERVE_TOKENIZE:
    case SERVE_DETOKENIZE: hand_over(x, JUDGING, x->body_bytes > SHORT_BYTES); return;
    case SERVE_RESET_CACHE: reset_cache(x); return;
    case SERVE_HEALTH: send_health(x); return;
    case SERVE_METRICS: send_metrics(x); return;
    case SERVE_TOKENIZER_INFO: send_tokenizer(x); return;
    case SERVE_MODELS: serve_info_models(&model, &x->out); break;
    case SERVE_MODEL: (void)serve_info_model(&model, x->path + strlen(x->route->path), &x->out, &x->fault); break;
    case SERVE_VERSION: serve_info_version(&model, &x->out); break;
    case SERVE_ROOT: serve_info_root(&model, &x->out); break;
    case SERVE_LOAD: put_load(x); break;
  }
  send_out(x);
}

/* Uses the client's X-Request-Id if it has only these characters, else a new id. */
static void name_exchange(exchange *x, const char *given) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  size_t bytes = given ? strlen(given) : 0;
  if (bytes > 0 && bytes < sizeof x->id && strspn(given, allowed) == bytes) memcpy(x->id, given, bytes + 1);
  else snprintf(x->id, sizeof x->id, "%016" PRIx64 "%08" PRIx64, x->server->boot, ++x->server->serial);
}

/* A client that expects "100 Continue" gets a refusal before it sends the body; others get it after the body, as they might not read it
 * before. A body of ambiguous length, or far too long, is not read. */
static void judge_head(exchange *x, const serve_message *message) {
  const serve_router *router = &x->server->config.router;
  const serve_head *head = &message->head;
  serve_fault fault;
  bool may_ask = serve_access_judge(&x->server->config.access, head, &x->origin, &fault);
  x->is_preflight = may_ask && x->origin && serve_access_is_preflight(head) && serve_router_is_framed(head);
  if (x->is_preflight || (may_ask && serve_router_judge(router, head, &x->route, &fault))) return;
  refuse(x, fault);
  bool is_long = message->body_bytes > 2 * router->body_bytes_max;
  if (message->expects_continue || !serve_router_is_framed(head) || is_long) send_out(x);
}

static void *on_head(void *context, serve_connection *connection, const serve_message *message, const serve_fault *fault) {
  serve_http *self = context;
  exchange *x = calloc(1, sizeof *x);
  if (!x) return NULL;
  *x = (exchange){.server = self, .connection = connection, .began = clock_seconds()};
  self->exchanges++;
  name_exchange(x, message ? message->request_id : NULL);
  if (!message) {
    send_fault(x, fault);
    return x;
  }
  snprintf(x->method, sizeof x->method, "%s", message->head.method);
  snprintf(x->path, sizeof x->path, "%s", message->head.url);
  judge_head(x, message);
  return x;
}

/* === Start and end ========================================================================================================== */

status serve_http_open(serve_http **out, const serve_http_config *config, char *url, size_t url_bytes) {
  serve_http *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "server: no memory");
  self->config = *config;
  ASSERT(pthread_mutex_init(&self->mutex, NULL) == 0);
  if (getentropy(&self->boot, sizeof self->boot) != 0) self->boot = (uint64_t)time(NULL);
  fail_clear();
  if (serve_info_tokenizer(&config->model, config->model_dir, &self->tokenizer_info) != OK)
    self->tokenizer_fault = serve_router_fault(500, "no_tokenizer_info", "%.480s", fail_text());
  fail_clear();
  const serve_connections_config sockets = {
    .host = config->host, .port = config->port, .connections_max = config->connections_max, .seconds = config->client_seconds,
    .callbacks = {.context = self, .on_head = on_head, .on_body = on_body, .on_bad_body = on_bad_body, .on_request = on_request,
                  .on_room = on_room, .on_gone = on_gone, .on_end = on_end, .on_news = on_news}};
  status result = serve_connections_open(&self->connections, &sockets, url, url_bytes);
  if (result == OK) self->config.access.is_loopback = serve_access_is_loopback(url);
  if (result == OK) result = serve_work_open(&self->work);
  if (result == OK) *out = self;
  else serve_http_close(self);
  return result;
}

void serve_http_run(serve_http *self, int descriptor, uint32_t milliseconds) {
  serve_connections_run(self->connections, descriptor, milliseconds);
}

void serve_http_drain(serve_http *self) {
  self->is_draining = true;
  serve_connections_drain(self->connections);
}

bool serve_http_idle(const serve_http *self) { return self->exchanges == 0; }

void serve_http_close(serve_http *self) {
  if (!self) return;
  if (self->work) serve_work_end(self->work);
  if (self->connections) on_news(self); /* no other thread holds an exchange any more */
  serve_connections_close(self->connections);
  serve_work_close(self->work);
  strbuf_close(&self->tokenizer_info);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

/* serve/connections.c - see serve/connections.h.
 *
 * No callback of libevent frees its connection: serve_connections_abort marks it CLOSED and adds it to a list, which an event of its own
 * frees in the same iteration of the loop. Deadlines are checked four times a second. */
#define _DEFAULT_SOURCE /* NI_MAXHOST */
#include "serve/connections.h"
#include "base/clock.h"
#include "base/pipe.h"
#include "base/system.h"
#include <errno.h>
#include <fcntl.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/util.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 1024
#define INPUT_BYTES_MAX SERVE_PARSE_HEAD_BYTES_MAX /* per connection: a head, or requests sent ahead */
#define UNSENT_BYTES (128 << 10) /* send buffer in the kernel, which doubles it */
#define SWEEP_MS 250
#define LINGER_SECONDS 2.0
#define IDLE_SECONDS 60 /* of a connection, until the kernel asks whether the other side is still there */

enum phase { IDLE, HEAD, BODY, WAITING, SENDING, LINGERING, CLOSED };

struct serve_connection {
  serve_connections *owner;
  serve_connection *next, *previous; /* in the list of all */
  serve_connection *next_closed;
  struct bufferevent *stream;
  void *exchange; /* from on_head to on_end */
  enum phase phase;
  double deadline;    /* of the phase; 0: none */
  double heard_at;    /* when its client last sent something */
  size_t scanned;     /* HEAD: bytes already searched for its end */
  uint64_t body_left; /* BODY that is not chunked: bytes to come */
  serve_chunks chunks;
  serve_message message; /* its texts are valid only inside on_head */
  bool is_chunked;  /* of a streamed reply: it is sent in chunks */
  bool is_head;     /* the method is HEAD: the reply has no body */
  bool has_eof;     /* the client has closed its side */
};

struct serve_connections {
  serve_connections_config config;
  struct event_base *base;
  struct event *accepting, *sweeping, *waking, *reaping, *pausing, *interrupting;
  int listener, wake[2]; /* descriptors; wake: a pipe */
  bool is_listening;  /* accepting is pending */
  serve_connection *first, *first_closed;
  uint32_t count;
};

static const struct timeval SWEEP_TIME = {.tv_usec = 1000 * SWEEP_MS};

/* === The end of a connection ================================================================================================ */

static struct evbuffer *input_of(const serve_connection *c) { return bufferevent_get_input(c->stream); }
static struct evbuffer *output_of(const serve_connection *c) { return bufferevent_get_output(c->stream); }

static void end_exchange(serve_connection *c, bool whole) {
  void *exchange = c->exchange;
  c->exchange = NULL;
  if (exchange) c->owner->config.callbacks.on_end(exchange, whole);
}

static bool has_input(const serve_connection *c) {
  return poll(&(struct pollfd){.fd = bufferevent_getfd(c->stream), .events = POLLIN}, 1, 0) > 0;
}

/* The connection whose client has been silent longest, of those that owe the server something: a request, its rest, or the end. Null: none.
 * A client whose bytes have not been read yet is not silent. */
static serve_connection *find_silent(const serve_connections *self) {
  for (double now = clock_seconds();;) {
    serve_connection *longest = NULL;
    for (serve_connection *c = self->first; c; c = c->next) {
      bool owes = c->phase == IDLE || c->phase == HEAD || c->phase == BODY || c->phase == LINGERING;
      if (owes && (!longest || c->heard_at <= longest->heard_at)) longest = c;
    }
    if (!longest || !has_input(longest)) return longest;
    if (longest->heard_at >= now) return NULL;
    longest->heard_at = now;
  }
}

/* Accepts connections as long as there may be more, or one can be given up. */
static void choose_listening(serve_connections *self) {
  bool wanted = self->listener >= 0 && (self->count < self->config.connections_max || find_silent(self));
  if (wanted == self->is_listening) return;
  self->is_listening = wanted;
  if (wanted) event_add(self->accepting, NULL);
  else event_del(self->accepting);
}

static void free_connection(serve_connection *c) {
  serve_connections *self = c->owner;
  end_exchange(c, false);
  *(c->previous ? &c->previous->next : &self->first) = c->next;
  if (c->next) c->next->previous = c->previous;
  self->count--;
  bufferevent_free(c->stream); /* and closes the socket */
  free(c);
}

void serve_connections_abort(serve_connection *c) {
  serve_connections *self = c->owner;
  if (c->phase == CLOSED) return;
  c->phase = CLOSED;
  c->deadline = 0;
  bufferevent_disable(c->stream, EV_READ | EV_WRITE);
  c->next_closed = self->first_closed;
  self->first_closed = c;
  event_active(self->reaping, EV_TIMEOUT, 0);
}

static void on_reap(evutil_socket_t descriptor, short what, void *argument) {
  serve_connections *self = argument;
  (void)descriptor;
  (void)what;
  while (self->first_closed) {
    serve_connection *c = self->first_closed;
    self->first_closed = c->next_closed;
    free_connection(c);
  }
  choose_listening(self);
}

/* close() on a socket with unread input resets the connection, and the client may lose the reply. So only our side is shut. */
static void linger(serve_connection *c) {
  if (c->has_eof || shutdown(bufferevent_getfd(c->stream), SHUT_WR) != 0) {
    serve_connections_abort(c);
    return;
  }
  c->phase = LINGERING;
  c->deadline = clock_seconds() + LINGER_SECONDS;
  evbuffer_drain(input_of(c), evbuffer_get_length(input_of(c)));
}

/* === Requests =============================================================================================================== */

/* Replies to what is not a request; the connection ends after that. */
static void refuse(serve_connection *c, const serve_fault *fault) {
  const serve_callbacks *to = &c->owner->config.callbacks;
  c->message.keeps_open = false;
  c->phase = BODY; /* none of it is read */
  c->body_left = 0;
  if (c->exchange) to->on_bad_body(c->exchange, fault);
  else if (!(c->exchange = to->on_head(to->context, c, NULL, fault))) serve_connections_abort(c);
}

static void refuse_long_head(serve_connection *c, const char *bytes, size_t count) {
  bool has_line = memchr(bytes, '\n', count) != NULL;
  const serve_fault fault = serve_router_fault(has_line ? 431 : 414, has_line ? "headers_too_large" : "url_too_long",
                                               "expected a request's head of at most %u bytes", SERVE_PARSE_HEAD_BYTES_MAX);
  refuse(c, &fault);
}

static void begin_body(serve_connection *c) {
  c->phase = BODY;
  c->deadline = clock_seconds() + c->owner->config.seconds;
  c->body_left = c->message.is_chunked ? 0 : c->message.body_bytes;
  c->chunks = (serve_chunks){0};
}

/* Returns whether the phase has changed. */
static bool read_head(serve_connection *c) {
  const serve_callbacks *to = &c->owner->config.callbacks;
  struct evbuffer *input = input_of(c);
  size_t count = evbuffer_get_length(input), head_bytes = 0;
  char *bytes = (char *)evbuffer_pullup(input, -1);
  serve_fault fault = serve_parse_fault("a line must end in CR LF, and there may be no control characters");
  if (!bytes) {
    serve_connections_abort(c);
    return true;
  }
  enum serve_parse found = serve_parse_find(bytes, count, &c->scanned, &head_bytes);
  if (found == SERVE_PARSE_MORE && count < SERVE_PARSE_HEAD_BYTES_MAX) return false;
  if (found == SERVE_PARSE_MORE) {
    refuse_long_head(c, bytes, count);
    return true;
  }
  if (found == SERVE_PARSE_BAD || !serve_parse_head(bytes, head_bytes, &c->message, &fault)) {
    refuse(c, &fault);
    return true;
  }
  begin_body(c);
  c->is_head = strcmp(c->message.head.method, "HEAD") == 0;
  c->exchange = to->on_head(to->context, c, &c->message, NULL);
  if (!c->exchange) serve_connections_abort(c);
  c->message.head = (serve_head){0};
  c->message.request_id = NULL;
  evbuffer_drain(input, head_bytes);
  if (c->phase == BODY && c->message.expects_continue && (c->message.is_chunked || c->body_left))
    evbuffer_add_printf(output_of(c), "HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

static void end_body(serve_connection *c) {
  c->phase = WAITING;
  c->deadline = 0;
  c->owner->config.callbacks.on_request(c->exchange);
}

/* Reads one contiguous piece of the body. Returns whether there may be more to do. */
static bool read_body(serve_connection *c) {
  struct evbuffer *input = input_of(c);
  struct evbuffer_iovec piece = {0};
  const char *part = NULL;
  size_t used = 0, part_bytes = 0;
  if (!c->message.is_chunked && c->body_left == 0) {
    end_body(c);
    return true;
  }
  if (evbuffer_peek(input, -1, NULL, &piece, 1) < 1 || piece.iov_len == 0) return false;
  enum serve_parse found = SERVE_PARSE_MORE;
  if (c->message.is_chunked) {
    found = serve_parse_chunks(&c->chunks, piece.iov_base, piece.iov_len, &used, &part, &part_bytes);
  } else {
    part = piece.iov_base;
    used = part_bytes = (size_t)min_u64(c->body_left, piece.iov_len);
    c->body_left -= used;
  }
  if (found == SERVE_PARSE_BAD) {
    const serve_fault fault = serve_parse_fault("the chunks of its body are malformed");
    refuse(c, &fault);
    return true;
  }
  if (part_bytes && !c->owner->config.callbacks.on_body(c->exchange, part, part_bytes)) serve_connections_abort(c);
  evbuffer_drain(input, used);
  if (c->phase == BODY && found == SERVE_PARSE_DONE) end_body(c);
  return true;
}

/* Skips empty lines before a request, as RFC 9112 asks. Returns whether a request begins. */
static bool begin_head(serve_connection *c) {
  struct evbuffer *input = input_of(c);
  char start[2];
  ev_ssize_t count = evbuffer_copyout(input, start, 2);
  for (; count == 2 && memcmp(start, "\r\n", 2) == 0; count = evbuffer_copyout(input, start, 2)) evbuffer_drain(input, 2);
  if (count <= 0 || (count == 1 && *start == '\r')) return false;
  c->phase = HEAD;
  c->deadline = clock_seconds() + c->owner->config.seconds;
  c->scanned = 0;
  return true;
}

/* Processes the input until it needs more bytes or the request a reply. */
static void advance(serve_connection *c) {
  for (bool more = true; more;) {
    switch (c->phase) {
      case IDLE: more = begin_head(c); break;
      case HEAD: more = read_head(c); break;
      case BODY: more = read_body(c); break;
      case LINGERING:
        evbuffer_drain(input_of(c), evbuffer_get_length(input_of(c)));
        return;
      default: return;
    }
  }
  if (c->has_eof) serve_connections_abort(c); /* the rest of the request will not come */
}

/* === Replies ================================================================================================================ */

static const char *reason(unsigned http_status) {
  static const struct { unsigned status; const char *text; } reasons[] = {
    {200, "OK"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"}, {404, "Not Found"}, {405, "Method Not Allowed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"}, {415, "Unsupported Media Type"}, {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"}, {503, "Service Unavailable"}, {504, "Gateway Timeout"}, {505, "HTTP Version Not Supported"}};
  for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
    if (reasons[i].status == http_status) return reasons[i].text;
  return "Unknown";
}

static void put(serve_connection *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(serve_connection *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (evbuffer_add_vprintf(output_of(c), format, args) < 0) serve_connections_abort(c); /* no memory */
  va_end(args);
}

static void put_head(serve_connection *c, unsigned http_status, const char *headers) {
  static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  struct tm t;
  const time_t now = time(NULL);
  gmtime_r(&now, &t);
  if (c->phase != WAITING || c->owner->listener < 0) c->message.keeps_open = false;
  const char *connection = !c->message.keeps_open ? "Connection: close\r\n" : c->message.is_http10 ? "Connection: Keep-Alive\r\n" : "";
  put(c, "HTTP/1.1 %u %s\r\nDate: %s, %02d %s %d %02d:%02d:%02d GMT\r\n%s%s", http_status, reason(http_status), days[t.tm_wday],
      t.tm_mday, months[t.tm_mon], 1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec, connection, headers);
}

static void free_part(const void *bytes, size_t count, void *extra) {
  (void)bytes;
  (void)count;
  free(extra);
}

/* Takes ownership of the text. */
static void put_text(serve_connection *c, serve_text *text) {
  if (!text->count || evbuffer_add_reference(output_of(c), text->bytes, text->count, free_part, text->bytes) != 0) {
    if (text->count) serve_connections_abort(c);
    free(text->bytes);
  }
  *text = (serve_text){0};
}

static void set_sending(serve_connection *c) {
  if (c->phase != CLOSED) c->phase = SENDING;
  c->deadline = 0; /* libevent's write timeout takes over */
}

void serve_connections_reply(serve_connection *c, unsigned http_status, const char *headers, serve_text *body) {
  if (c->phase == CLOSED) {
    strbuf_close(body);
    return;
  }
  put_head(c, http_status, headers);
  put(c, "Content-Length: %zu\r\n\r\n", body->count);
  if (c->is_head) strbuf_close(body);
  else put_text(c, body);
  set_sending(c);
}

void serve_connections_begin(serve_connection *c, unsigned http_status, const char *headers) {
  if (c->phase == CLOSED) return;
  c->is_chunked = !c->message.is_http10;
  if (!c->is_chunked) c->message.keeps_open = false; /* the end of the connection is the end of the stream */
  put_head(c, http_status, headers);
  put(c, "%s\r\n", c->is_chunked ? "Transfer-Encoding: chunked\r\n" : "");
}

void serve_connections_add(serve_connection *c, serve_text *part) {
  if (c->phase == CLOSED) {
    strbuf_close(part);
    return;
  }
  if (c->is_chunked) put(c, "%zX\r\n", part->count);
  put_text(c, part);
  if (c->is_chunked) put(c, "\r\n");
}

void serve_connections_finish(serve_connection *c) {
  if (c->phase == CLOSED) return;
  if (c->is_chunked) put(c, "0\r\n\r\n");
  set_sending(c);
  if (evbuffer_get_length(output_of(c)) == 0) bufferevent_trigger(c->stream, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
}

bool serve_connections_has_room(const serve_connection *c) { return c->phase == WAITING && evbuffer_get_length(output_of(c)) == 0; }
bool serve_connections_is_gone(const serve_connection *c) { return c->has_eof || c->phase == CLOSED; }

/* === Events of a connection ================================================================================================= */

static void on_read(struct bufferevent *stream, void *argument) {
  serve_connection *c = argument;
  (void)stream;
  c->heard_at = clock_seconds();
  advance(c);
}

/* The output buffer is empty, unless on_room adds to it. */
static void on_written(struct bufferevent *stream, void *argument) {
  serve_connection *c = argument;
  (void)stream;
  if (c->phase == WAITING) c->owner->config.callbacks.on_room(c->exchange);
  if (c->phase != SENDING || evbuffer_get_length(output_of(c)) > 0) return;
  bool again = c->message.keeps_open;
  end_exchange(c, true);
  if (!again) {
    linger(c);
    return;
  }
  c->phase = IDLE;
  c->deadline = clock_seconds() + c->owner->config.seconds;
  c->message = (serve_message){0};
  c->is_head = false;
  advance(c);
}

static void note_eof(serve_connection *c) {
  if (c->has_eof) return;
  c->has_eof = true;
  if (c->phase == WAITING) c->owner->config.callbacks.on_gone(c->exchange);
  else if (c->phase == LINGERING) serve_connections_abort(c);
  else advance(c);
}

static void on_event(struct bufferevent *stream, short what, void *argument) {
  (void)stream;
  if (what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT)) serve_connections_abort(argument);
  else if (what & BEV_EVENT_EOF) note_eof(argument);
}

/* === Accepting ============================================================================================================== */

/* Neither waits, nor is inherited by programs that are started. */
static void set_nonblocking(int descriptor) {
  evutil_make_socket_nonblocking(descriptor);
  evutil_make_socket_closeonexec(descriptor);
}

static void set_options(int descriptor) {
  static const int on = 1, unsent_bytes = UNSENT_BYTES;
  setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* notices a computer that has vanished */
  system_set_keep_alive(descriptor, IDLE_SECONDS);
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* sends each event of a stream at once */
  setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &unsent_bytes, sizeof unsent_bytes);
}

static void add_connection(serve_connections *self, int descriptor) {
  double seconds = self->config.seconds;
  const struct timeval limit = {.tv_sec = (time_t)seconds};
  serve_connection *c = calloc(1, sizeof *c);
  struct bufferevent *stream = c ? bufferevent_socket_new(self->base, descriptor, BEV_OPT_CLOSE_ON_FREE) : NULL;
  if (!stream) {
    free(c);
    close(descriptor);
    return;
  }
  set_options(descriptor);
  *c = (serve_connection){.owner = self, .next = self->first, .stream = stream, .deadline = clock_seconds() + seconds,
                          .heard_at = clock_seconds()};
  if (c->next) c->next->previous = c;
  self->first = c;
  self->count++;
  bufferevent_setcb(stream, on_read, on_written, on_event, c);
  bufferevent_set_timeouts(stream, NULL, &limit);
  bufferevent_setwatermark(stream, EV_READ, 0, INPUT_BYTES_MAX);
  bufferevent_set_max_single_read(stream, INPUT_BYTES_MAX);
  bufferevent_set_max_single_write(stream, UNSENT_BYTES);
  bufferevent_enable(stream, EV_READ | EV_WRITE);
}

/* Beyond the limit, a new client takes the place of the one that has been silent longest: clients that only hold connections open shut
 * nobody out. Without free descriptors it pauses until a connection ends, or the next sweep. */
static void on_accept(evutil_socket_t listener, short what, void *argument) {
  serve_connections *self = argument;
  (void)what;
  for (;;) {
    bool is_full = self->count >= self->config.connections_max;
    serve_connection *silent = is_full ? find_silent(self) : NULL;
    if (is_full && !silent) break;
    int descriptor = accept(listener, NULL, NULL);
    if (descriptor >= 0) {
      set_nonblocking(descriptor);
      if (silent) free_connection(silent);
      add_connection(self, descriptor);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      event_del(self->accepting);
      self->is_listening = false;
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      break;
    }
  }
  choose_listening(self);
}

/* libevent does not read while the input buffer is full, and so would not see that the client has closed. */
static bool has_ended(const serve_connection *c) {
  if (c->has_eof || evbuffer_get_length(input_of(c)) < INPUT_BYTES_MAX) return false;
  return system_is_hung_up(bufferevent_getfd(c->stream));
}

static void on_sweep(evutil_socket_t descriptor, short what, void *argument) {
  serve_connections *self = argument;
  double now = clock_seconds();
  (void)descriptor;
  (void)what;
  for (serve_connection *c = self->first; c; c = c->next) {
    if (c->deadline != 0 && now >= c->deadline) serve_connections_abort(c);
    else if (c->phase == WAITING && has_ended(c)) note_eof(c);
  }
  choose_listening(self);
}

/* === The loop =============================================================================================================== */

static void on_wake(evutil_socket_t descriptor, short what, void *argument) {
  serve_connections *self = argument;
  char calls[256]; /* more of them call again */
  (void)what;
  if (read(descriptor, calls, sizeof calls) > 0) self->config.callbacks.on_news(self->config.callbacks.context);
}

void serve_connections_wake(serve_connections *self) {
  ssize_t written = write(self->wake[1], "", 1);
  ASSERT(written == 1 || errno == EAGAIN);
}

static void on_pause(evutil_socket_t descriptor, short what, void *argument) {
  serve_connections *self = argument;
  (void)descriptor;
  (void)what;
  event_base_loopbreak(self->base);
}

void serve_connections_run(serve_connections *self, int descriptor, uint32_t milliseconds) {
  const struct timeval limit = {.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
  if (!self->interrupting) {
    self->interrupting = event_new(self->base, descriptor, EV_READ | EV_PERSIST, on_pause, self);
    ASSERT(self->interrupting && event_add(self->interrupting, NULL) == 0);
  }
  event_add(self->pausing, &limit);
  event_base_dispatch(self->base);
  event_del(self->pausing);
}

void serve_connections_drain(serve_connections *self) {
  if (self->listener < 0) return;
  int listener = self->listener;
  self->listener = -1;
  choose_listening(self);
  close(listener);
}

uint32_t serve_connections_count(const serve_connections *self) { return self->count; }

/* === Start and end ========================================================================================================== */

static status listen_on(const struct addrinfo *at, int *out) {
  static const int on = 1;
  int listener = socket(at->ai_family, SOCK_STREAM, 0);
  if (listener < 0) return FAIL(ERR_IO, "no socket: %s", strerror(errno));
  set_nonblocking(listener);
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
static status open_listener(const serve_connections_config *config, int *out, char *url, size_t url_bytes) {
  char port[16], name[NI_MAXHOST], service[NI_MAXSERV];
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  struct sockaddr_storage address;
  socklen_t address_bytes = sizeof address;
  int listener = -1;
  snprintf(port, sizeof port, "%u", config->port);
  int failure = getaddrinfo(config->host, port, &hints, &found);
  if (failure != 0)
    return FAIL(ERR_USAGE, "--host %s: expected a name or an address of this machine: %s; hint: 127.0.0.1, or 0.0.0.0 for all interfaces",
                config->host, gai_strerror(failure));
  status result = listen_on(found, &listener);
  freeaddrinfo(found);
  if (result != OK) {
    fail_prefix(config->host);
    return result;
  }
  if (getsockname(listener, (struct sockaddr *)&address, &address_bytes) != 0 ||
      getnameinfo((struct sockaddr *)&address, address_bytes, name, sizeof name, service, sizeof service,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    close(listener);
    return FAIL(ERR_IO, "--host %s: the address of the socket cannot be read", config->host);
  }
  bool is_v6 = strchr(name, ':') != NULL;
  snprintf(url, url_bytes, "http://%s%s%s:%s", is_v6 ? "[" : "", name, is_v6 ? "]" : "", service);
  *out = listener;
  return OK;
}

/* No locks, as one thread runs the loop; libevent's environment variables are ignored. */
static struct event_base *open_base(void) {
  struct event_config *config = event_config_new();
  if (!config) return NULL;
  event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
  struct event_base *base = event_base_new_with_config(config);
  event_config_free(config);
  return base;
}

static status open_events(serve_connections *self) {
  self->base = open_base();
  if (!self->base) return FAIL(ERR_IO, "server: no event loop: %s", strerror(errno));
  TRY(pipe_open(self->wake, O_NONBLOCK));
  self->accepting = event_new(self->base, self->listener, EV_READ | EV_PERSIST, on_accept, self);
  self->sweeping = event_new(self->base, -1, EV_PERSIST, on_sweep, self);
  self->waking = event_new(self->base, self->wake[0], EV_READ | EV_PERSIST, on_wake, self);
  self->reaping = event_new(self->base, -1, 0, on_reap, self);
  self->pausing = event_new(self->base, -1, 0, on_pause, self);
  bool good = self->accepting && self->sweeping && self->waking && self->reaping && self->pausing &&
              event_add(self->sweeping, &SWEEP_TIME) == 0 && event_add(self->waking, NULL) == 0;
  if (!good) return FAIL(ERR_LIMIT, "server: no memory for its event loop");
  choose_listening(self);
  return OK;
}

status serve_connections_open(serve_connections **out, const serve_connections_config *config, char *url, size_t url_bytes) {
  serve_connections *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "server: no memory");
  self->config = *config;
  self->listener = self->wake[0] = self->wake[1] = -1;
  status result = open_listener(config, &self->listener, url, url_bytes);
  if (result == OK) result = open_events(self);
  if (result == OK) *out = self;
  else serve_connections_close(self);
  return result;
}

void serve_connections_close(serve_connections *self) {
  if (!self) return;
  while (self->first) free_connection(self->first);
  if (self->listener >= 0) close(self->listener);
  struct event *const events[] = {self->accepting, self->sweeping, self->waking, self->reaping, self->pausing, self->interrupting};
  for (size_t i = 0; i < ARRAY_LEN(events); i++)
    if (events[i]) event_free(events[i]);
  for (size_t i = 0; i < ARRAY_LEN(self->wake); i++)
    if (self->wake[i] >= 0) close(self->wake[i]);
  if (self->base) event_base_free(self->base);
  free(self);
}

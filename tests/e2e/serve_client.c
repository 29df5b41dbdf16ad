/* serve_client.c - see serve_client.h. */
#define _DEFAULT_SOURCE
#include "serve_client.h"
#include "tests/unit/unit.h"
#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

_Noreturn static void stop(const char *what) {
  fprintf(stderr, "server test: %s: %s\n", what, strerror(errno));
  abort();
}

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); }

/* === The server ============================================================================================================= */

static void run_server(const e2e_model *model, const char *program, const char *receipt, const char *ready, const char *const *options) {
  const char *argv[SERVE_CLIENT_ARGUMENTS + 22] = {program, "serve", model->plan_path, model->model_dir, "--device", "cpu",
                                                   "--threads", "1", "--quiet", "--port", "0", "--receipt", receipt,
                                                   "--ready-file", ready, "--served-model-name", "tiny", "--allowed-host", "x"};
  size_t at = 0, count = 0;
  while (argv[at]) at++;
  while (options[count] && count < SERVE_CLIENT_ARGUMENTS) argv[at++] = options[count++];
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failing test leaves no server running */
  execv(program, (char *const *)(uintptr_t)argv);
  _exit(127);
}

void served_make_model(e2e_model *model, const char *deploy) {
  e2e_make_model(model, "tests/oracle/small-v3.json", deploy);
  snprintf(model->model_dir, sizeof model->model_dir, "tests/tiny");
  e2e_make_plan(model, "tiny.plan", deploy, model->plan_path);
}

void served_begin(served *self, const e2e_model *model, const char *name, const char *const *options) {
  char program[E2E_PATH_MAX], ready[E2E_PATH_MAX];
  e2e_binary("verbatim", program);
  snprintf(self->receipt, E2E_PATH_MAX, "%.900s/%s", model->folder, name);
  snprintf(ready, E2E_PATH_MAX, "%.900s/ready", model->folder);
  unlink(ready);
  fflush(NULL);
  if ((self->child = fork()) < 0) stop("fork");
  if (self->child == 0) run_server(model, program, self->receipt, ready, options);
  unsigned port = 0;
  for (int i = 0; i < 200 * SERVE_CLIENT_SECONDS && port == 0; i++) {
    FILE *file = fopen(ready, "rb");
    if (file && fscanf(file, "http://127.0.0.1:%u\n", &port) != 1) port = 0;
    if (file) fclose(file);
    if (waitpid(self->child, NULL, WNOHANG) != 0) stop("the server ended");
    if (port == 0) rest();
  }
  if (port == 0) stop("the server is not ready");
  self->port = (uint16_t)port;
}

int served_end(served *self, int signal) {
  int state = 0;
  if (signal) kill(self->child, signal);
  for (int i = 0; i < 200 * SERVE_CLIENT_SECONDS; i++) {
    pid_t ended = waitpid(self->child, &state, WNOHANG);
    if (ended == self->child) return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    if (ended < 0) stop("waitpid");
    rest();
  }
  kill(self->child, SIGKILL);
  waitpid(self->child, &state, 0);
  stop("the server does not end");
}

/* === The client ============================================================================================================= */

int served_connect(const served *self) {
  const struct timeval limit = {.tv_sec = SERVE_CLIENT_SECONDS};
  const int room = 4096; /* a small window, so that unread data soon stays with the server */
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(self->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (to < 0) stop("socket");
  setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(to, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(to, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  if (connect(to, (struct sockaddr *)&address, sizeof address) == 0) return to;
  close(to);
  return -1;
}

static void send_bytes(int to, const char *bytes, size_t count) {
  while (count) {
    ssize_t part = send(to, bytes, count, MSG_NOSIGNAL);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return; /* a later call finds that the other side has ended */
    bytes += part;
    count -= (size_t)part;
  }
}

void served_send(int socket, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int bytes = vsnprintf(NULL, 0, format, args);
  va_end(args);
  char *text = malloc((size_t)bytes + 1);
  if (!text) stop("no memory");
  va_start(args, format);
  vsnprintf(text, (size_t)bytes + 1, format, args);
  va_end(args);
  send_bytes(socket, text, (size_t)bytes);
  free(text);
}

static bool read_exactly(int from, char *room, size_t count) {
  while (count) {
    ssize_t part = recv(from, room, count, 0);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) stop("the server does not answer");
    if (part <= 0) return false;
    room += part;
    count -= (size_t)part;
  }
  return true;
}

/* Reads up to the end of a line, which is left out. */
static bool read_line(int from, char *room, size_t room_bytes) {
  size_t used = 0;
  while (used + 1 < room_bytes) {
    if (!read_exactly(from, room + used, 1)) return false;
    if (room[used++] != '\n') continue;
    room[used] = 0;
    if (used >= 2 && room[used - 2] == '\r') room[used - 2] = 0;
    return true;
  }
  return false;
}

static bool add_bytes(int from, served_reply *reply, size_t count) {
  char *grown = realloc(reply->body, reply->bytes + count + 1);
  if (!grown) stop("no memory");
  reply->body = grown;
  bool good = read_exactly(from, grown + reply->bytes, count);
  if (good) reply->bytes += count;
  grown[reply->bytes] = 0;
  return good;
}

static bool read_chunks(int from, served_reply *reply) {
  char line[64];
  for (;;) {
    if (!read_line(from, line, sizeof line)) return false;
    size_t count = strtoul(line, NULL, 16);
    if (count && !add_bytes(from, reply, count)) return false;
    if (!read_line(from, line, sizeof line) || *line) return false;
    if (count == 0) return true;
  }
}

served_reply served_read(int socket) {
  served_reply reply = {0};
  char value[256];
  size_t used = 0;
  do {
    if (!read_line(socket, reply.head + used, sizeof reply.head - used - 2)) return reply;
    size_t bytes = strlen(reply.head + used);
    if (bytes == 0) break;
    used += bytes;
    reply.head[used++] = '\n';
    reply.head[used] = 0;
  } while (used < sizeof reply.head - 3);
  if (sscanf(reply.head, "HTTP/1.1 %d", &reply.status) != 1) stop(reply.head);
  if (!(reply.body = calloc(1, 1))) stop("no memory");
  if (strcasecmp(served_header(&reply, "Transfer-Encoding", value), "chunked") == 0) reply.whole = read_chunks(socket, &reply);
  else if (reply.status == 100) reply.whole = true;
  else reply.whole = add_bytes(socket, &reply, strtoul(served_header(&reply, "Content-Length", value), NULL, 10));
  return reply;
}

int served_post(const served *self, const char *path, const char *headers, const char *body) {
  int to = served_connect(self);
  if (to < 0) stop("connect");
  served_send(to, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s", path, strlen(body),
              headers, body);
  return to;
}

served_reply served_ask(const served *self, const char *method, const char *path, const char *headers, const char *body) {
  int to = served_connect(self);
  if (to < 0) stop("connect");
  served_send(to, "%s %s HTTP/1.1\r\nHost: x\r\n%s", method, path, headers);
  bool has_type = strstr(headers, "Content-Type:") != NULL, is_post = strcmp(method, "POST") == 0;
  if (is_post && !has_type) served_send(to, "Content-Type: application/json\r\n");
  if (body) served_send(to, "Content-Length: %zu\r\n", strlen(body));
  served_send(to, "\r\n%s", body ? body : "");
  served_reply reply = {0};
  if (strcmp(method, "HEAD") != 0) reply = served_read(to);
  else if (read_exactly(to, reply.head, 12)) reply.status = atoi(reply.head + 9); /* has no body, whatever its length is */
  close(to);
  return reply;
}

const char *served_header(const served_reply *reply, const char *name, char room[256]) {
  size_t bytes = strlen(name);
  *room = 0;
  for (const char *line = strchr(reply->head, '\n'); line; line = strchr(line + 1, '\n')) {
    if (strncasecmp(line + 1, name, bytes) != 0 || line[1 + bytes] != ':') continue;
    snprintf(room, 256, "%.*s", (int)strcspn(line + bytes + 3, "\n"), line + bytes + 3);
  }
  return room;
}

double served_metric(const served *self, const char *sample) {
  served_reply reply = served_ask(self, "GET", "/metrics", "", NULL);
  size_t bytes = strlen(sample);
  double value = -1;
  for (char *line = reply.body; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, sample, bytes) == 0 && line[bytes] == ' ') value = strtod(line + bytes, NULL);
  }
  free(reply.body);
  return value;
}

char *served_timeless(served_reply reply) {
  char *created = strstr(reply.body, "\"created\":");
  assert_true(reply.status == 200 && created);
  for (created += 10; *created >= '0' && *created <= '9'; created++) *created = '0';
  return reply.body;
}

void served_wait(const served *self, const char *sample, double value) {
  double found = -1;
  for (int i = 0; i < 200 * SERVE_CLIENT_SECONDS; i++) {
    if ((found = served_metric(self, sample)) == value) return;
    rest();
  }
  fprintf(stderr, "server test: %s: expected %g, found %g\n", sample, value, found);
  abort();
}

void served_expect_status(served_reply reply, int wanted) {
  if (reply.status != wanted) fail_msg("expected status %d, found %d: %s%s", wanted, reply.status, reply.head,
                                        reply.body ? reply.body : "");
  assert_true(reply.whole || wanted == 0);
  free(reply.body);
}

void served_expect_error(served_reply reply, int wanted, const char *code) {
  json_t *object = json_loads(reply.body ? reply.body : "", 0, NULL), *error = json_object_get(object, "error");
  const char *found = json_string_value(json_object_get(error, "code"));
  if (reply.status != wanted || !found || strcmp(found, code) != 0 || !json_is_string(json_object_get(error, "message")))
    fail_msg("expected status %d and code %s, found %d: %s", wanted, code, reply.status, reply.body ? reply.body : "nothing");
  json_decref(object);
  free(reply.body);
}

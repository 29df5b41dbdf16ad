/* serve/links.c - see serve/links.h. A connection is ended by shutting its socket down: its owner then finds its end and closes it. */
#include "serve/links.h"
#include "base/clock.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 64
#define UNSENT_BYTES (128 << 10) /* in the system's memory, of a client that does not read; twice as much is taken */

struct serve_link {
  serve_links *links;
  serve_link *next, *previous;
  uint64_t serial; /* names it in events: the memory of one that was removed may be another's */
  int descriptor;
  double deadline; /* of what is being sent; 0: none */
  bool is_gone;
  void *guest;
};

struct serve_links {
  double seconds;
  void (*on_gone)(void *guest);
  int watcher; /* an epoll descriptor */
  pthread_mutex_t mutex; /* of all below it, and of the links */
  serve_link *first;
  uint64_t serial;
  uint32_t count;
};

status serve_links_open(serve_links **out, double seconds, void (*on_gone)(void *guest)) {
  serve_links *self = calloc(1, sizeof *self);
  if (!self) return FAIL(ERR_LIMIT, "server: no memory");
  self->seconds = seconds;
  self->on_gone = on_gone;
  self->watcher = epoll_create1(EPOLL_CLOEXEC);
  if (self->watcher < 0) {
    free(self);
    return FAIL(ERR_IO, "server: no file descriptor for watching connections: %s", strerror(errno));
  }
  ASSERT(pthread_mutex_init(&self->mutex, NULL) == 0);
  *out = self;
  return OK;
}

void serve_links_close(serve_links *self) {
  if (!self) return;
  ASSERT(!self->first);
  close(self->watcher);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

/* === By the thread of the connections ======================================================================================= */

serve_link *serve_links_add(serve_links *self, int descriptor) {
  static const int on = 1, idle_seconds = 60, unsent_bytes = UNSENT_BYTES;
  serve_link *link = calloc(1, sizeof *link);
  if (!link) return NULL;
  *link = (serve_link){.links = self, .descriptor = descriptor, .deadline = clock_seconds() + self->seconds};
  setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* a machine that vanished says nothing by itself */
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &unsent_bytes, sizeof unsent_bytes);
  pthread_mutex_lock(&self->mutex);
  link->serial = ++self->serial;
  struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = link->serial};
  bool watched = epoll_ctl(self->watcher, EPOLL_CTL_ADD, descriptor, &event) == 0;
  if (watched) {
    link->next = self->first;
    if (self->first) self->first->previous = link;
    self->first = link;
    self->count++;
  }
  pthread_mutex_unlock(&self->mutex);
  if (watched) return link;
  free(link);
  return NULL;
}

void serve_links_remove(serve_link *link) {
  serve_links *self = link->links;
  pthread_mutex_lock(&self->mutex);
  (void)epoll_ctl(self->watcher, EPOLL_CTL_DEL, link->descriptor, NULL);
  *(link->previous ? &link->previous->next : &self->first) = link->next;
  if (link->next) link->next->previous = link->previous;
  self->count--;
  pthread_mutex_unlock(&self->mutex);
  free(link);
}

static void set(serve_link *link, void *guest, double deadline) {
  pthread_mutex_lock(&link->links->mutex);
  link->guest = guest;
  link->deadline = deadline;
  pthread_mutex_unlock(&link->links->mutex);
}

void serve_links_begin(serve_link *link, void *guest) { set(link, guest, clock_seconds() + link->links->seconds); }

void serve_links_read(serve_link *link) { set(link, link->guest, 0); }

/* libmicrohttpd ends a connection that stays silent for as long as a head may take; the time of the next one begins by then. */
void serve_links_end(serve_link *link) { set(link, NULL, clock_seconds() + 2 * link->links->seconds); }

bool serve_links_is_gone(serve_link *link) {
  pthread_mutex_lock(&link->links->mutex);
  bool gone = link->is_gone;
  pthread_mutex_unlock(&link->links->mutex);
  return gone;
}

/* === By whoever watches ===================================================================================================== */

int serve_links_descriptor(const serve_links *self) { return self->watcher; }

static void note_gone(serve_links *self, uint64_t serial) {
  pthread_mutex_lock(&self->mutex);
  serve_link *link = self->first;
  while (link && link->serial != serial) link = link->next;
  if (link) link->is_gone = true;
  if (link && link->guest) self->on_gone(link->guest);
  pthread_mutex_unlock(&self->mutex);
}

void serve_links_look(serve_links *self) {
  struct epoll_event events[EVENTS];
  int count = epoll_wait(self->watcher, events, EVENTS, 0);
  for (int i = 0; i < count; i++) note_gone(self, events[i].data.u64);
}

void serve_links_sweep(serve_links *self) {
  double now = clock_seconds();
  pthread_mutex_lock(&self->mutex);
  for (serve_link *link = self->first; link; link = link->next) {
    if (link->deadline == 0 || now < link->deadline) continue;
    shutdown(link->descriptor, SHUT_RDWR);
    link->deadline = 0;
  }
  pthread_mutex_unlock(&self->mutex);
}

void serve_links_shut(serve_links *self) {
  pthread_mutex_lock(&self->mutex);
  for (serve_link *link = self->first; link; link = link->next) shutdown(link->descriptor, SHUT_RDWR);
  pthread_mutex_unlock(&self->mutex);
}

uint32_t serve_links_count(serve_links *self) {
  pthread_mutex_lock(&self->mutex);
  uint32_t count = self->count;
  pthread_mutex_unlock(&self->mutex);
  return count;
}

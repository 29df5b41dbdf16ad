/* system.c - see system.h. Linux first, then macOS. */
#define _GNU_SOURCE /* dlinfo, MADV_HUGEPAGE, POLLRDHUP, TCP_KEEPIDLE */
#include "base/system.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#if defined(__linux__)
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/mman.h>

#define HUNG_UP POLLRDHUP
#define KEEP_IDLE TCP_KEEPIDLE

void system_libc_version(char *text, size_t bytes) { snprintf(text, bytes, "%s", gnu_get_libc_version()); }

const char *system_library_path(void *handle) {
  struct link_map *map = NULL;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0] ? map->l_name : NULL;
}

void system_want_huge_pages(void *mapping, size_t bytes) { (void)madvise(mapping, bytes, MADV_HUGEPAGE); }

#else
#include <sys/sysctl.h>

#define HUNG_UP POLLHUP /* of sockets, as soon as the other side has shut its half */
#define KEEP_IDLE TCP_KEEPALIVE

void system_libc_version(char *text, size_t bytes) {
  if (sysctlbyname("kern.osproductversion", text, &bytes, NULL, 0) != 0) *text = 0;
}

const char *system_library_path(void *handle) {
  (void)handle;
  return NULL;
}

void system_want_huge_pages(void *mapping, size_t bytes) {
  (void)mapping;
  (void)bytes;
}

#endif

bool system_is_hung_up(int descriptor) { return poll(&(struct pollfd){.fd = descriptor, .events = HUNG_UP}, 1, 0) > 0; }

void system_set_keep_alive(int descriptor, int idle_seconds) {
  (void)setsockopt(descriptor, IPPROTO_TCP, KEEP_IDLE, &idle_seconds, sizeof idle_seconds);
}

/* system.c - see system.h. Linux first, then macOS. */
#define _GNU_SOURCE /* dlinfo, MADV_HUGEPAGE, POLLRDHUP */
#include "base/system.h"
#include <poll.h>
#include <stdio.h>

#if defined(__linux__)
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/mman.h>

#define HUNG_UP POLLRDHUP

void system_libc_version(char *text, size_t bytes) { snprintf(text, bytes, "%s", gnu_get_libc_version()); }

const char *system_library_path(void *handle) {
  struct link_map *map = NULL;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0] ? map->l_name : NULL;
}

void system_want_huge_pages(void *mapping, size_t bytes) { (void)madvise(mapping, bytes, MADV_HUGEPAGE); }

#else
#include <sys/sysctl.h>

#define HUNG_UP POLLHUP /* of sockets, as soon as the other side has shut its half */

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

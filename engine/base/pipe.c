/* pipe.c - see pipe.h. */
#include "base/pipe.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

status pipe_open(int ends[2], int flags) {
  int made[2];
  if (pipe(made) != 0) return FAIL(ERR_IO, "no file descriptors for a pipe: %s", strerror(errno));
  for (int i = 0; i < 2; i++) {
    (void)fcntl(made[i], F_SETFD, FD_CLOEXEC);
    (void)fcntl(made[i], F_SETFL, flags); /* keeps its direction */
    ends[i] = made[i];
  }
  return OK;
}

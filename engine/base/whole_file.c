/* whole_file.c - see whole_file.h. write(2) without stdio, whose buffer would keep bytes of a failed write for the next one. */
#include "base/whole_file.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0, or the errno of the write that failed. */
static int write_all(int descriptor, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(descriptor, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) { /* a pipe that somebody else has set to O_NONBLOCK */
      struct pollfd room = {.fd = descriptor, .events = POLLOUT};
      (void)poll(&room, 1, -1);
      continue;
    }
    if (written <= 0) return written < 0 ? errno : EIO;
    bytes += written;
    count -= (size_t)written;
  }
  return 0;
}

static status unwritten(const char *path, int error) {
  return FAIL(ERR_IO, "%s: cannot be written: %s%s", path, strerror(error),
              error == ENOSPC || error == EDQUOT ? "; hint: free space on the disk" : error == EFBIG ? "; hint: ulimit -f" : "");
}

/* === A whole file =========================================================================================================== */

static status write_and_close(int descriptor, const char *path, const void *bytes, size_t count, bool synced) {
  int error = write_all(descriptor, bytes, count);
  if (error == 0 && synced && fsync(descriptor) != 0) error = errno;
  if (close(descriptor) != 0 && error == 0) error = errno;
  return error == 0 ? OK : unwritten(path, error);
}

status whole_file_prepare(const char *path, const void *bytes, size_t count, char temporary[WHOLE_FILE_PATH_BYTES_MAX]) {
  int length = snprintf(temporary, WHOLE_FILE_PATH_BYTES_MAX, "%s.tmp.%ld", path, (long)getpid());
  if (length < 0 || (size_t)length >= WHOLE_FILE_PATH_BYTES_MAX) return FAIL(ERR_USAGE, "%.200s...: the path is too long", path);
  int descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return unwritten(path, errno);
  status result = write_and_close(descriptor, path, bytes, count, true);
  if (result != OK) unlink(temporary);
  return result;
}

status whole_file_commit(const char *path, const char *temporary) {
  if (rename(temporary, path) == 0) return OK;
  status result = unwritten(path, errno);
  unlink(temporary);
  return result;
}

status whole_file_write(const char *path, const void *bytes, size_t count) {
  char temporary[WHOLE_FILE_PATH_BYTES_MAX];
  struct stat info;
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    return descriptor < 0 ? unwritten(path, errno) : write_and_close(descriptor, path, bytes, count, false);
  }
  TRY(whole_file_prepare(path, bytes, count, temporary));
  return whole_file_commit(path, temporary);
}

/* === At the end of a file =================================================================================================== */

/* Truncates the file and writes on from there. */
static void cut_off(int descriptor, off_t end) {
  if (end >= 0 && ftruncate(descriptor, end) == 0) (void)lseek(descriptor, end, SEEK_SET);
}

status whole_file_append(int descriptor, const char *path, const void *bytes, size_t count) {
  off_t end = lseek(descriptor, 0, SEEK_END);
  int error = write_all(descriptor, bytes, count);
  if (error == 0) return OK;
  cut_off(descriptor, end);
  return unwritten(path, error);
}

bool whole_file_has_room(int descriptor, size_t count) {
  struct stat info;
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return false;
  char *blanks = malloc(count);
  off_t end = lseek(descriptor, 0, SEEK_END);
  if (!blanks || end < 0) {
    free(blanks);
    return false;
  }
  memset(blanks, ' ', count);
  int error = write_all(descriptor, blanks, count);
  cut_off(descriptor, end);
  free(blanks);
  return error == 0;
}

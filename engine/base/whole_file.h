/* whole_file.h - writes a file, or a line at its end, whole or not at all: a full disk or a file-size limit is an error of the write and
 * leaves nothing half-written.
 *
 * Knows nothing of what files contain. Read next: receipts/receipt.h, serve/journal.h. */
#ifndef VERBATIM_WHOLE_FILE_H
#define VERBATIM_WHOLE_FILE_H
#include <stddef.h>
#include "base/base.h"

#define WHOLE_FILE_PATH_BYTES_MAX 4096u

/* Writes the bytes under a temporary name next to the path, syncs them and renames the file, so that a reader sees the old file or the new
 * one. The temporary file is removed on error. A pipe or device is written directly. ERR_IO, ERR_USAGE: the path is too long. */
status whole_file_write(const char *path, const void *bytes, size_t count);

/* The two halves of whole_file_write for a path that is no pipe or device: the temporary file, its name written to `temporary`, then its
 * renaming. The caller removes a temporary file that it does not commit. */
status whole_file_prepare(const char *path, const void *bytes, size_t count, char temporary[WHOLE_FILE_PATH_BYTES_MAX]);
status whole_file_commit(const char *path, const char *temporary);

/* Writes the bytes at the end of an open file, past any buffer of stdio. On error what was written of them is cut off again, where the
 * file can be truncated. path: for the message. ERR_IO. */
status whole_file_append(int descriptor, const char *path, const void *bytes, size_t count);

/* Whether `count` bytes could be appended: writes blanks and cuts them off. False for what is not a regular file: it cannot be tried. */
bool whole_file_has_room(int descriptor, size_t count);

#endif

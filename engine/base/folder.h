/* folder.h - makes a folder of caches.
 *
 * Knows nothing of what lies in it. */
#ifndef VERBATIM_FOLDER_H
#define VERBATIM_FOLDER_H
#include "base/base.h"

#define FOLDER_PATH_BYTES_MAX 4096u

/* Makes the folder and its parents, or finds it there. ERR_IO: it cannot be made, read or written; ERR_USAGE: the path is too long. */
status folder_make(const char *path);

#endif

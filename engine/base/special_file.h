/* special_file.h - whether opening a path could block or affect a device.
 *
 * Checked before inputs are opened: reading a pipe could wait for ever. Knows nothing of what files contain. Read next: common/files.h. */
#ifndef VERBATIM_SPECIAL_FILE_H
#define VERBATIM_SPECIAL_FILE_H
#include <stdbool.h>

/* True if the path exists and is not a regular file: a folder, a pipe, a device. Follows links. */
bool special_file_at(const char *path);

#endif

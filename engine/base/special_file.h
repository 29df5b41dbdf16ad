/* special_file.h - what lies at a path, before it is opened: whether opening it could block or affect a device, and whether there is
 * anything at all.
 *
 * Reading a pipe could wait for ever, and a link whose target is missing is a damaged folder, not an absent file: taking it for one would
 * silently give another prompt, another template or older weights. Knows nothing of what files contain. Read next: common/files.h. */
#ifndef VERBATIM_SPECIAL_FILE_H
#define VERBATIM_SPECIAL_FILE_H
#include <stdbool.h>

/* True if the path names an entry that is not a regular file: a folder, a pipe, a device, or a link that leads nowhere. Follows links. */
bool special_file_at(const char *path);

/* True unless there is certainly no entry of that name: also for links that lead nowhere and for entries that cannot be looked at. An
 * optional file is opened if this is true, and must then be readable. */
bool special_file_is_there(const char *path);

#endif

/* until.h - any text up to and with the first place of a mark, as blocks of a program. Allocates in the program only. Read next:
 * program.h. */
#ifndef VERBATIM_CONSTRAIN_UNTIL_H
#define VERBATIM_CONSTRAIN_UNTIL_H
#include "constrain/program.h"

#define UNTIL_POINTS_MAX 64u /* of a mark */

/* mark: [bytes] UTF-8. ERR_USAGE: it is empty or has more code points. */
status until_add(program *p, const char *mark, size_t bytes);

#endif

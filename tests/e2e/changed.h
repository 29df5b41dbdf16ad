/* changed.h - a random model of a configuration of tests/oracle/ with some values changed, so that many ranks can divide it.
 *
 * Read next: e2e.h. */
#ifndef VERBATIM_CHANGED_H
#define VERBATIM_CHANGED_H
#include "tests/e2e/e2e.h"

/* config: a file of tests/oracle/; changes: a JSON object, of the configuration or of its text_config. As e2e_make_model otherwise. */
void changed_make_model(e2e_model *model, const char *config, const char *changes, const char *deploy);

#endif

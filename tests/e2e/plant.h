/* plant.h - changes one number of a model's weights: NaN and Inf for tests of what they break.
 *
 * Read next: e2e.h. */
#ifndef VERBATIM_PLANT_H
#define VERBATIM_PLANT_H
#include "tests/e2e/e2e.h"

#define PLANT_NAN 0x7fc0u /* as bf16 */

/* Sets a number of a bf16 tensor in the model's file and returns what it was. Fails the test if there is no such tensor. */
uint16_t plant_number(const e2e_model *model, const char *name, uint32_t row, uint32_t column, uint16_t value);

#endif

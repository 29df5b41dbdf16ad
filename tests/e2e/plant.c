/* plant.c - see plant.h. */
#include "plant.h"
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Byte of the file at which a tensor's numbers begin, and how many columns its rows have. */
static long find_tensor(FILE *file, const char *name, uint32_t *columns) {
  uint64_t header_bytes;
  rewind(file);
  assert_int_equal(fread(&header_bytes, 1, 8, file), 8);
  char *text = malloc(header_bytes);
  assert_non_null(text);
  assert_int_equal(fread(text, 1, header_bytes, file), header_bytes);
  json_t *header = json_loadb(text, header_bytes, 0, NULL), *tensor = json_object_get(header, name);
  if (!tensor) fail_msg("no tensor %s", name);
  assert_string_equal(json_string_value(json_object_get(tensor, "dtype")), "BF16");
  json_t *shape = json_object_get(tensor, "shape");
  *columns = (uint32_t)json_integer_value(json_array_get(shape, json_array_size(shape) - 1));
  long at = 8 + (long)header_bytes + (long)json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"), 0));
  json_decref(header);
  free(text);
  return at;
}

uint16_t plant_number(const e2e_model *model, const char *name, uint32_t row, uint32_t column, uint16_t value) {
  char path[E2E_PATH_MAX + 32];
  uint16_t before;
  uint32_t columns;
  snprintf(path, sizeof path, "%s/model.safetensors", model->model_dir);
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  long at = find_tensor(file, name, &columns) + 2l * ((long)row * columns + column);
  assert_int_equal(fseek(file, at, SEEK_SET), 0);
  assert_int_equal(fread(&before, 1, 2, file), 2);
  assert_int_equal(fseek(file, at, SEEK_SET), 0);
  assert_int_equal(fwrite(&value, 1, 2, file), 2);
  assert_int_equal(fclose(file), 0);
  return before;
}

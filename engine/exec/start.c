/* exec/start.c - what happens once between the plan and the first step: kernels, tables, checks, graphs.
 *
 * Order: exec_open (exec.c: memory, arguments), kernels, the self-check, the caller loads the weights, tables and fills, the check of
 * library algorithms against our own kernel (exec/library.c), warm-up and captures. Everything here may allocate; nothing after it does.
 * Declared in exec.h; read exec.c next. */
#include "exec/state.h"
#include "gpu/op_maps.h"
#include "plan/spread.h"
#include "base/digest.h"
#include "kernels_src/num.h"
#include "self_check/self_check.h"
#include "base/trig.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW_CLASSES_MAX 64u

/* === Kernels =============================================================================================================== */

static status load_kernel(exec *self, uint32_t index, const jit_cubin_view *cubin) {
  const plan_kernel *source = &self->plan->kernels[index];
  const kernel_row *row = kernels_row(source->kernel);
  digest code = digest_of(cubin->bytes, cubin->size);
  self->loaded[index].name = row->name;
  memcpy(self->loaded[index].digest, code.bytes, DIGEST_BYTES);
  if (cubin->from_cache) self->kernels_cached++;
  else self->kernels_compiled++;
  gpu_kernel_config config = {.name = row->name, .cubin = cubin->bytes, .cubin_bytes = cubin->size, .args_bytes = row->args_bytes,
                              .takes_maps = op_maps_taken(self->specs + source->first_spec, source->spec_count),
                              .threads = source->threads, .shared_bytes = source->shared_bytes};
  return gpu_kernel_load(self->options.device, &config, &self->kernels[index]);
}

/* requests, specs, cubins: room for the plan's kernels and constants. */
static status compile_kernels(exec *self, jit_request *requests, jit_spec *specs, jit_cubin_view *cubins) {
  const plan *p = self->plan;
  if (!requests || !cubins) return FAIL(ERR_LIMIT, "no memory for a list of %u kernels", p->kernel_count);
  for (uint32_t i = 0; i < p->spec_count; i++)
    specs[i] = (jit_spec){.name = plan_string(p, p->specs[i].name), .value = p->specs[i].value};
  for (uint32_t i = 0; i < p->kernel_count; i++) {
    const plan_kernel *source = &p->kernels[i];
    requests[i] = (jit_request){.kernel = kernels_row(source->kernel)->name, .specs = specs + source->first_spec,
                                .spec_count = source->spec_count};
  }
  TRY(jit_compile_all(self->compiler, requests, p->kernel_count, cubins));
  for (uint32_t i = 0; i < p->kernel_count; i++) TRY(load_kernel(self, i, &cubins[i]));
  return OK;
}

static status make_kernels(exec *self, arena *host) {
  const plan *p = self->plan;
  void *kernels, *loaded, *specs;
  int major, minor;
  TRY(jit_open(self->options.libraries, self->options.cache_dir, NULL, 0, &self->compiler));
  jit_version(self->compiler, &major, &minor);
  self->nvrtc_version = (uint32_t)(1000 * major + 10 * minor);
  TRY(arena_take(host, sizeof(gpu_kernel) * (p->kernel_count + 1ull), &kernels));
  TRY(arena_take(host, sizeof(verbatim_kernel) * (p->kernel_count + 1ull), &loaded));
  TRY(arena_take(host, sizeof(jit_spec) * (p->spec_count + 1ull), &specs));
  self->specs = specs;
  self->kernels = kernels;
  self->loaded = loaded;
  jit_request *requests = calloc(p->kernel_count + 1ull, sizeof *requests);
  jit_cubin_view *cubins = calloc(p->kernel_count + 1ull, sizeof *cubins);
  status result = compile_kernels(self, requests, specs, cubins);
  free(cubins);
  free(requests);
  TRY(result);
  for (uint32_t i = 0; i < p->op_count; i++) {
    const plan_kernel *source = &p->kernels[p->ops[i].variant];
    self->ops[i].kernel = &self->kernels[p->ops[i].variant];
    self->ops[i].specs = self->specs + source->first_spec;
    self->ops[i].spec_count = source->spec_count;
  }
  return OK;
}

/* 0: it has none. */
static uint32_t spec_value(const plan *p, const plan_kernel *kernel, const char *name) {
  for (uint32_t i = 0; i < kernel->spec_count; i++) {
    const plan_spec *spec = &p->specs[kernel->first_spec + i];
    if (strcmp(plan_string(p, spec->name), name) == 0) return spec->value;
  }
  return 0;
}

status exec_start_room(const plan *p, uint32_t sm_count) {
  for (uint32_t i = 0; i < p->kernel_count && sm_count < ATTN_SPREAD_BLOCKS; i++)
    if (spec_value(p, &p->kernels[i], "SPEC_SPREAD"))
      return FAIL(ERR_UNSUPPORTED, "plan: blocks of %s wait for each other, expected a GPU of at least %u multiprocessors, found %u; "
                  "hint: chunk-tokens: 512", kernels_row(p->kernels[i].kernel)->name, ATTN_SPREAD_BLOCKS, sm_count);
  return OK;
}

status exec_start_kernels(exec *self, arena *host) {
  if (!self->options.device) return OK;
  TRY(exec_start_room(self->plan, gpu_describe(self->options.device)->sm_count));
  TRY(make_kernels(self, host));
  return exec_library_open(self, host);
}

/* === The self-check ========================================================================================================= */

_Static_assert(2 * SELF_CHECK_BYTES <= EXEC_STAGING_BYTES, "an image on its way up and one on its way down");

/* On the GPU; the CPU machine's one function of an op can run all its probes. */
static bool can_run(const exec *self, const plan_kernel *kernel, uint32_t probe) {
  const plan *p = self->plan;
  return !self->options.device ||
         (self_check_is_for_form(probe, spec_value(p, kernel, "SPEC_K_BLOCKS") > 0) &&
          self_check_is_for_heads(probe, spec_value(p, kernel, "SPEC_HEADS")) &&
          self_check_is_for_rows(probe, spec_value(p, kernel, "SPEC_KV_FORMAT"), spec_value(p, kernel, "SPEC_LISTS") > 0,
                                 spec_value(p, kernel, "SPEC_TURNS") + spec_value(p, kernel, "SPEC_SPREAD") > 0));
}

/* "gemm, SPEC_THREADS 128, SPEC_TILE_N 64", cut at text_bytes; of the CPU machine "the CPU's rmsnorm, avx2". */
static void name_variant(const exec *self, const plan_kernel *kernel, char *text, size_t text_bytes) {
  const char *name = kernels_row(kernel->kernel)->name;
  int used = self->options.device ? snprintf(text, text_bytes, "kernel %s", name)
                                  : snprintf(text, text_bytes, "the CPU's %s, %s", name, cpu_isa());
  for (uint32_t i = 0; i < kernel->spec_count && self->options.device && used >= 0 && (size_t)used < text_bytes; i++) {
    const plan_spec *spec = &self->plan->specs[kernel->first_spec + i];
    int more = snprintf(text + used, text_bytes - (size_t)used, ", %s %u", plan_string(self->plan, spec->name), spec->value);
    used = more < 0 ? more : used + more;
  }
}

static void name_machine(const exec *self, const gpu *device, char *text, size_t text_bytes) {
  if (!device) {
    snprintf(text, text_bytes, "this processor");
    return;
  }
  const gpu_info *info = gpu_describe(device);
  snprintf(text, text_bytes, "%s (driver for CUDA %u.%u, NVRTC %u.%u)", info->name, info->driver_version / 1000,
           info->driver_version % 1000 / 10, self->nvrtc_version / 1000, self->nvrtc_version % 1000 / 10);
}

/* The refusal. what: the probe and its variant; by: who computed it. */
static status refuse(const exec *self, const char *what, const gpu *by, digest expected, digest found) {
  static const char gpu_hint[] = "the driver or NVRTC may have changed, or the GPU is broken; --device cpu starts without it";
  static const char cpu_hint[] = "a compiler that does not keep to IEEE-754, or a broken processor; build as configure.py does";
  char machine[160], texts[3][DIGEST_TEXT_BYTES];
  name_machine(self, by, machine, sizeof machine);
  return FAIL(ERR_MISMATCH, "self-check: %s: expected digest %s, found %s: %s does not compute numerics id %s; hint: %s", what,
              digest_text(expected.bytes, texts[0]), digest_text(found.bytes, texts[1]), machine,
              digest_text(self->plan->header->numerics_id, texts[2]), by ? gpu_hint : cpu_hint);
}

/* Runs the probe; image: SELF_CHECK_BYTES that the host can write, and on the CPU machine the ops too. Returns where the result is. */
static const uint8_t *run_self_check(exec *self, uint32_t variant, uint32_t index, uint8_t *image, self_check_launch *launch) {
  const plan_kernel *kernel = &self->plan->kernels[variant];
  gpu *device = self->options.device;
  if (!device) {
    self_check_build(index, image, (uint64_t)(uintptr_t)image, launch);
    kernels_row(kernel->kernel)->run_cpu(launch->args, self->options.pool);
    return image;
  }
  gpu_work work = {.kernel = &self->kernels[variant], .op = "self-check", .args = launch->args};
  tensor_maps maps;
  self_check_build(index, image, self->base, launch);
  self_check_grid(launch, max_u32(1, spec_value(self->plan, kernel, "SPEC_TILE_N")),
                  max_u32(1, spec_value(self->plan, kernel, "SPEC_TILE_ROWS")), max_u32(1, spec_value(self->plan, kernel, "SPEC_CLUSTER")),
                  work.grid);
  const jit_spec *specs = self->specs + kernel->first_spec;
  if (exec_make_maps(self, kernel->kernel, specs, kernel->spec_count, launch->args, launch->rows, &maps)) work.maps = &maps;
  gpu_upload(device, self->stream, self->base, image, launch->image_bytes);
  gpu_launch(device, self->stream, &work);
  gpu_download(device, self->stream, image + SELF_CHECK_BYTES, self->base, launch->judged_bytes);
  gpu_sync(device, self->stream, "self-check");
  return image + SELF_CHECK_BYTES;
}

static status check_variant(exec *self, uint32_t variant, uint8_t *image) {
  const plan_kernel *kernel = &self->plan->kernels[variant];
  uint32_t probes = 0;
  for (uint32_t i = 0; i < self_check_count(); i++) {
    self_check_launch launch;
    if (!self_check_is_for(i, kernel->kernel, &self->plan->header->model)) continue;
    if (!can_run(self, kernel, i)) continue;
    probes++;
    const uint8_t *result = run_self_check(self, variant, i, image, &launch);
    digest expected = self_check_answer(i), found = self_check_digest(&launch, result);
    if (memcmp(expected.bytes, found.bytes, DIGEST_BYTES) == 0) continue;
    char text[384], name[256];
    name_variant(self, kernel, name, sizeof name);
    snprintf(text, sizeof text, "probe \"%s\" of op %s (%s)", launch.probe, kernels_row(kernel->kernel)->name, name);
    return refuse(self, text, self->options.device, expected, found);
  }
  if (probes) return OK;
  return FAIL(ERR_UNSUPPORTED, "self-check: no probe of op %s for kv_lora_rank %u and rope_dim %u", kernels_row(kernel->kernel)->name,
              self->plan->header->model.kv_lora_rank, self->plan->header->model.rope_dim);
}

/* On the CPU machine all variants of an op are one function. */
static bool checked_before(const exec *self, uint32_t variant) {
  for (uint32_t i = 0; i < variant && !self->options.device; i++)
    if (self->plan->kernels[i].kernel == self->plan->kernels[variant].kernel) return true;
  return false;
}

status exec_start_check(exec *self) {
  digest expected = self_check_tables_answer(), found = self_check_tables();
  if (memcmp(expected.bytes, found.bytes, DIGEST_BYTES) != 0)
    return refuse(self, "probe of the tables of op qkv_rope (the host's trigonometry)", NULL, expected, found);
  if (self->options.device && self->plan->header->device_bytes < SELF_CHECK_BYTES)
    return FAIL(ERR_FORMAT, "plan: expected at least %u bytes of device memory, as the planner rounds to, found %llu", SELF_CHECK_BYTES,
                (unsigned long long)self->plan->header->device_bytes);
  uint8_t *own = self->options.device ? NULL : aligned_alloc(256, SELF_CHECK_BYTES), *image = own ? own : self->pinned;
  if (!image) return FAIL(ERR_LIMIT, "self-check: no memory for %u bytes", SELF_CHECK_BYTES);
  status result = OK;
  for (uint32_t i = 0; i < self->plan->kernel_count && result == OK; i++)
    if (!checked_before(self, i)) result = check_variant(self, i, image);
  free(own);
  return result;
}

/* === Tables and fills ======================================================================================================= */

/* Uploads through the images' block, whose contents are not yet in use. */
static void put(exec *self, uint64_t address, const void *source, uint64_t bytes) {
  if (!self->options.device) {
    memcpy((void *)(uintptr_t)address, source, bytes);
    return;
  }
  for (uint64_t at = 0; at < bytes; at += EXEC_STAGING_HALF_BYTES) {
    uint64_t part = bytes - at < EXEC_STAGING_HALF_BYTES ? bytes - at : EXEC_STAGING_HALF_BYTES;
    memcpy(self->pinned, (const uint8_t *)source + at, part);
    gpu_upload(self->options.device, self->stream, address + at, self->pinned, part);
    gpu_sync(self->options.device, self->stream, "start-up upload");
  }
}

/* One row of the cos_sin table (NUMERICS.md, `qkv_rope`). */
static void rope_row(const plan_model *model, uint32_t position, float *row) {
  for (uint32_t i = 0; i < model->rope_dim / 2; i++) {
    float angle = (float)position * model->inv_freq[i];
    float cosine = (float)trig_cos((double)angle), sine = (float)trig_sin((double)angle);
    bool scaled = num_bits(model->rope_attention_factor) != num_bits(1.0f);
    row[2 * i] = scaled ? cosine * model->rope_attention_factor : cosine;
    row[2 * i + 1] = scaled ? sine * model->rope_attention_factor : sine;
  }
}

static void put_rope_table(exec *self) {
  const plan_header *header = self->plan->header;
  enum { ROWS = 256 };
  float rows[ROWS * ROPE_DIM_MAX];
  uint32_t columns = header->model.rope_dim;
  for (uint32_t first = 0; first < header->limits.max_len; first += ROWS) {
    uint32_t count = min_u32(ROWS, header->limits.max_len - first);
    for (uint32_t i = 0; i < count; i++) rope_row(&header->model, first + i, rows + (uint64_t)i * columns);
    put(self, exec_address(self, REGION_TABLES, header->io.cos_sin + 4ull * first * columns), rows, 4ull * count * columns);
  }
}

/* The query scale of a position (NUMERICS.md, `qkv_rope`). */
static float q_scale_at(const plan_model *model, uint32_t position) {
  double steps = floor((double)position / (double)model->q_scale_length);
  return (float)(1 + (double)model->q_scale_beta * trig_log(1 + steps));
}

static void put_q_scale_table(exec *self) {
  const plan_header *header = self->plan->header;
  enum { ROWS = 4096 };
  float rows[ROWS];
  if (header->model.q_scale_beta == 0) return;
  for (uint32_t first = 0; first < header->limits.max_len; first += ROWS) {
    uint32_t count = min_u32(ROWS, header->limits.max_len - first);
    for (uint32_t i = 0; i < count; i++) rows[i] = q_scale_at(&header->model, first + i);
    put(self, exec_address(self, REGION_TABLES, header->io.q_scale + 4ull * first), rows, 4ull * count);
  }
}

/* Poison or zeros in everything a request must not depend on. A fresh mapping of the CPU machine is zero already. */
static void fill_memory(exec *self) {
  static const uint32_t regions[] = {REGION_KV, REGION_STATE, REGION_STEP, REGION_STEP_ODD, REGION_RESULT, REGION_RESULT_ODD, REGION_WORK};
  uint32_t word = self->options.poison ? UINT32_MAX : 0;
  for (size_t i = 0; i < ARRAY_LEN(regions); i++) {
    uint64_t bytes = self->plan->regions[regions[i]].bytes, address = exec_address(self, regions[i], 0);
    if (self->options.device) gpu_fill32(self->options.device, self->stream, address, word, bytes / 4);
    else if (word) memset((void *)(uintptr_t)address, 0xff, bytes);
  }
  const plan_header *header = self->plan->header;
  if (self->options.device && plan_may_spread(&header->model, &header->quant, &header->limits)) /* blocks count from zero */
    gpu_fill32(self->options.device, self->stream, exec_address(self, REGION_STATE, header->io.meetings), 0, ATTN_MEETINGS);
  const plan_limits *limits = &header->limits;
  if (self->options.device) memset(self->pinned, 0, self->pinned_bytes);
  memset(self->block_table, (int)(word & 0xff), 4ull * limits->max_seqs * limits->pages_per_seq);
  if (self->options.device) gpu_sync(self->options.device, self->stream, "start-up fills");
}

void exec_start_tables(exec *self) {
  put_rope_table(self);
  put_q_scale_table(self);
  fill_memory(self);
}

status exec_start_library(exec *self) { return exec_library_check(self); }

/* === Warm-up and graphs ===================================================================================================== */

/* A step of one token, at the start of page 0, for both parities: what the warm-up and the captures run on. */
static void put_dummy_step(exec *self) {
  const plan_io *io = &self->plan->header->io;
  uint32_t page = 0;
  for (uint32_t side = 0; side < 2; side++) {
    exec_input in = exec_fill(self, side);
    uint32_t region = exec_region(REGION_STEP, side);
    for (uint32_t part = 0; part < STEP_PARTS; part++)
      in.head[part] = (step_in){.token_count = 1, .logit_count = 1, .tile_count = 1, .seq_count = 1};
    in.token[0] = 0;
    in.position[0] = in.seq[0] = in.logit_row[0] = 0;
    in.tiles[0] = (attn_tile){.row = 0, .count = 1, .seq = 0, .position = 0};
    if (self->plan->header->limits.expand_pages > 0) {
      in.prompt_tiles[0] = in.tiles[0];
      in.contexts[0] = (step_context){.first = 0, .tokens = 1, .seq = 0};
    }
    in.sample[0] = (sample_param){.top_p_fixed = 1ull << 32, .repetition = 1, .position = 1, .prompt_count = 1, .target = -1};
    gpu_upload(self->options.device, self->stream, exec_address(self, region, 0), self->image[side], io->block_table);
    gpu_fill32(self->options.device, self->stream, exec_address(self, region, io->block_table), page, 1);
  }
}

static uint32_t add_class(uint32_t *classes, uint32_t count, uint32_t rows, uint32_t most) {
  for (uint32_t i = 0; i < count; i++)
    if (classes[i] == rows) return count;
  if (rows == 0 || rows > most || count == ROW_CLASSES_MAX) return count;
  classes[count] = rows;
  return count + 1;
}

/* Launch rows by which every op runs that has an alternative for so many. */
static exec_rows rows_for_all(const exec *self, uint32_t tokens) {
  exec_rows rows = exec_rows_made(tokens, min_u32(tokens, self->plan->header->limits.max_logit_rows));
  rows.kind[ROWS_PROMPT] = tokens;
  rows.pieces = 1;
  return rows;
}

/* Every kernel and library algorithm runs once before the first capture and before the freeze: drivers and libraries load code at
 * first use. A class is a least row count at which some alternative begins. */
static void warm_up(exec *self) {
  const plan *p = self->plan;
  uint32_t most = p->header->limits.max_batch_tokens, classes[ROW_CLASSES_MAX], count = 0;
  count = add_class(classes, count, 1, most);
  count = add_class(classes, count, most, most);
  for (uint32_t i = 0; i < self->op_count; i++) count = add_class(classes, count, p->ops[i].rows_min, most);
  for (uint32_t i = 0; i < self->options.unchecked_count; i++) /* the check has run the others */
    count = add_class(classes, count, self->options.unchecked[i].gemm.rows_min, most);
  for (uint32_t i = 0; i < count; i++) exec_run_ops(self, 0, rows_for_all(self, classes[i]));
  gpu_sync(self->options.device, self->stream, "warm-up");
}

static status capture_graph(exec *self, uint32_t rung, uint32_t side) {
  gpu *device = self->options.device;
  gpu_graph **graph = &self->graphs[rung][side];
  TRY(gpu_capture_begin(device, self->stream));
  exec_run_ops(self, side, exec_rows_made(self->plan->ladder[rung], self->plan->ladder[rung]));
  TRY(gpu_capture_end(device, self->stream, graph));
  self->graph_count++;
  return OK;
}

status exec_start_graphs(exec *self) {
  if (!self->options.device) return OK;
  put_dummy_step(self);
  warm_up(self);
  for (uint32_t i = 0; i < 2 * self->rung_count; i++) TRY(capture_graph(self, i / 2, i % 2));
  gpu_sync(self->options.device, self->stream, "the upload of graphs");
  fill_memory(self); /* what the dummy step left behind */
  jit_close(self->compiler);
  self->compiler = NULL;
  return OK;
}

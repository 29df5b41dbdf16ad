/* backend_gpu_start.c - start-up of the GPU backend: kernels are compiled and loaded, and run the probes of the self-check.
 *
 * Kernels come from the cache of cubins or from NVRTC, all before the first launch. Everything here may allocate; nothing here is called
 * once the engine runs. Read next: gpu/jit.h, library.c. */
#include "exec/backend_gpu.h"
#include "base/digest.h"
#include "gpu/op_maps.h"
#include "plan/spread.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* === Kernels =============================================================================================================== */

static status load_kernel(backend_gpu *self, uint32_t index, const jit_cubin_view *cubin) {
  const plan_kernel *source = &self->common.plan->kernels[index];
  const kernel_row *row = kernels_row(source->kernel);
  digest code = digest_of(cubin->bytes, cubin->size);
  self->loaded[index].name = row->name;
  memcpy(self->loaded[index].digest, code.bytes, DIGEST_BYTES);
  if (cubin->from_cache) self->kernels_cached++;
  else self->kernels_compiled++;
  gpu_kernel_config config = {.name = row->name, .cubin = cubin->bytes, .cubin_bytes = cubin->size, .args_bytes = row->args_bytes,
                              .takes_maps = op_maps_taken(self->specs + source->first_spec, source->spec_count),
                              .threads = source->threads, .shared_bytes = source->shared_bytes};
  return gpu_kernel_load(self->device, &config, &self->kernels[index]);
}

/* requests, specs, cubins: room for the plan's kernels and constants. */
static status compile_kernels(backend_gpu *self, jit_request *requests, jit_spec *specs, jit_cubin_view *cubins) {
  const plan *p = self->common.plan;
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

static status make_kernels(backend_gpu *self, arena *host) {
  const plan *p = self->common.plan;
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
  self->common.loaded = self->loaded = loaded;
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

status backend_gpu_start_room(const plan *p, uint32_t sm_count) {
  for (uint32_t i = 0; i < p->kernel_count && sm_count < ATTN_SPREAD_BLOCKS; i++)
    if (spec_value(p, &p->kernels[i], "SPEC_SPREAD"))
      return FAIL(ERR_UNSUPPORTED, "plan: blocks of %s wait for each other, expected a GPU of at least %u multiprocessors, found %u; "
                  "hint: chunk-tokens: 512", kernels_row(p->kernels[i].kernel)->name, ATTN_SPREAD_BLOCKS, sm_count);
  return OK;
}

status backend_gpu_start_kernels(backend *base, arena *host) {
  backend_gpu *self = backend_gpu_of(base);
  TRY(backend_gpu_start_room(base->plan, gpu_describe(self->device)->sm_count));
  if (base->plan->header->device_bytes < SELF_CHECK_BYTES)
    return FAIL(ERR_FORMAT, "plan: expected at least %u bytes of device memory, as the planner rounds to, found %llu", SELF_CHECK_BYTES,
                (unsigned long long)base->plan->header->device_bytes);
  TRY(make_kernels(self, host));
  return exec_library_open(self, host);
}

/* === The self-check ========================================================================================================= */

_Static_assert(2 * SELF_CHECK_BYTES <= EXEC_STAGING_BYTES, "an image on its way up and one on its way down");

bool backend_gpu_start_can_run_probe(const backend *base, uint32_t variant, uint32_t probe) {
  const plan *p = base->plan;
  const plan_kernel *kernel = &p->kernels[variant];
  return self_check_is_for_form(probe, spec_value(p, kernel, "SPEC_K_BLOCKS") > 0) &&
         self_check_is_for_tags(probe, spec_value(p, kernel, "SPEC_TAGGED") > 0) &&
         self_check_is_for_heads(probe, spec_value(p, kernel, "SPEC_HEADS")) &&
         self_check_is_for_pieces(probe, spec_value(p, kernel, "SPEC_PIECES") > 0) &&
         self_check_is_for_rows(probe, spec_value(p, kernel, "SPEC_KV_FORMAT"), spec_value(p, kernel, "SPEC_LISTS") > 0,
                                spec_value(p, kernel, "SPEC_TURNS") + spec_value(p, kernel, "SPEC_SPREAD") > 0);
}

void backend_gpu_start_name_variant(const backend *base, uint32_t variant, char *text, size_t text_bytes) {
  const plan *p = base->plan;
  const plan_kernel *kernel = &p->kernels[variant];
  int used = snprintf(text, text_bytes, "kernel %s", kernels_row(kernel->kernel)->name);
  for (uint32_t i = 0; i < kernel->spec_count && used >= 0 && (size_t)used < text_bytes; i++) {
    const plan_spec *spec = &p->specs[kernel->first_spec + i];
    int more = snprintf(text + used, text_bytes - (size_t)used, ", %s %u", plan_string(p, spec->name), spec->value);
    used = more < 0 ? more : used + more;
  }
}

void backend_gpu_start_name(const backend *base, char *text, size_t text_bytes) {
  const backend_gpu *self = backend_gpu_of_const(base);
  const gpu_info *info = gpu_describe(self->device);
  snprintf(text, text_bytes, "%s (driver for CUDA %u.%u, NVRTC %u.%u)", info->name, info->driver_version / 1000,
           info->driver_version % 1000 / 10, self->nvrtc_version / 1000, self->nvrtc_version % 1000 / 10);
}

/* The image goes to the start of device memory, where nothing is yet. */
const uint8_t *backend_gpu_start_run_probe(backend *base, uint32_t variant, uint32_t probe, uint8_t *image, self_check_launch *launch) {
  backend_gpu *self = backend_gpu_of(base);
  const plan *p = base->plan;
  const plan_kernel *kernel = &p->kernels[variant];
  gpu_stream *stream = self->streams[QUEUE_OPS];
  const uint32_t cluster[2] = {max_u32(1, spec_value(p, kernel, "SPEC_SHARES")), max_u32(1, spec_value(p, kernel, "SPEC_CLUSTER"))};
  gpu_work work = {.kernel = &self->kernels[variant], .op = "self-check", .args = launch->args};
  tensor_maps maps;
  self_check_build(probe, image, base->base, launch);
  self_check_grid(launch, max_u32(1, spec_value(p, kernel, "SPEC_TILE_N")), max_u32(1, spec_value(p, kernel, "SPEC_TILE_ROWS")),
                  cluster, work.grid);
  const jit_spec *specs = self->specs + kernel->first_spec;
  if (backend_gpu_maps(self, kernel->kernel, specs, kernel->spec_count, launch->args, launch->rows, &maps)) work.maps = &maps;
  gpu_upload(self->device, stream, base->base, image, launch->image_bytes);
  gpu_launch(self->device, stream, &work);
  gpu_download(self->device, stream, image + SELF_CHECK_BYTES, base->base, launch->judged_bytes);
  gpu_sync(self->device, stream, "self-check");
  return image + SELF_CHECK_BYTES;
}

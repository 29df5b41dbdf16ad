/* attn.cu - grouped-query attention over the paged KV cache. NUMERICS.md, `attn`.
 *
 * A CTA takes one item at a time: operand rows of a tile and a KV head, over a piece of the context (grouped/layout.cuh). Math warpgroups
 * have 64 rows each; a producer warp loads keys and values by TMA, SPEC_STAGES stages of SPEC_PAGES pages ahead.
 *
 *   form      SPEC_ROWS  threads  warpgroups  for
 *   prompts   128        384      2           steps that are not split: bound by multiplication
 *   decode    64         160      1           steps that may be split: bound by memory; two CTAs share a multiprocessor where they fit
 *
 * Items are dealt to CTAs in alternating directions, the longest first. Grid: any. Dynamic shared memory: kernels_src/README.md. */
#include "spec.cuh"
#include "ptx/ptx.cuh"
#include "attn/grouped/load_codes.cuh"
#include "attn/grouped/multiply.cuh"

extern "C" __global__ __launch_bounds__(SPEC_THREADS, CTAS) void attn(const __grid_constant__ attn_args a,
                                                                      const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  const u32 base = (ptx_shared(raw) + 1023u) & ~1023u, group = ptx_uniform(threadIdx.x / 128u);
  u8 *shared = raw + (base - ptx_shared(raw));
  ptx_grid_next();
  if (threadIdx.x < 64u) ((u32 *)(shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  if (threadIdx.x == 0) {
    unscale = num_div(1.0f, a.scale_log2);
    for (u32 i = 0; i < SPEC_STAGES; i++) {
      ptx_barrier_init(base + K_FULL + i * 8u, FULL_ARRIVALS);
      ptx_barrier_init(base + V_FULL + i * 8u, FULL_ARRIVALS);
      ptx_barrier_init(base + K_EMPTY + i * 8u, 4u * GROUPS); /* math warps */
      ptx_barrier_init(base + V_EMPTY + i * 8u, 4u * GROUPS);
    }
    for (u32 i = 0; i < ITEMS; i++) ptx_barrier_init(base + TAKEN + i * 8u, 1u);
    ptx_barrier_ready();
  }
  ptx_fence_async();
  __syncthreads();
  ptx_grid_wait();
  if (group == GROUPS) {
#ifdef LOAD_REGISTERS
    PTX_REGISTERS_LESS(LOAD_REGISTERS);
#endif
    if (CODES) run_code_loads(a, shared, base);
    else if (ptx_uniform(threadIdx.x / 32u) == 4u * GROUPS) run_loads(a, maps, base);
    return;
  }
#ifdef LOAD_REGISTERS
  PTX_REGISTERS_MORE(MATH_REGISTERS);
#endif
  ring_turn t = {0, 0};
  load_queries(a, 0, base, group);
  for (u32 number = 0; ptx_uniform(item_at(base, number).rows); number++)
    run_item(a, items[number % ITEMS], number, t, shared, base, group);
  PTX_COPY_WAIT(0);
}

/* attn/pair/form.cuh - mla_attn for up to 64 operand rows by two blocks side by side. NUMERICS.md, `mla_attn`.
 *
 * A cluster of two blocks takes one piece at a time: chunks of a tile (consecutive tokens of one sequence), for up to 64 heads. Its 64
 * operand rows are the (token, head) pairs, row = token * heads + head; rows beyond are dead: anything goes in, nothing comes out.
 * Each block owns half of the output columns, so that both a chunk's O and the running fold of the group stay in registers, and weighs
 * every other KV block of 64 tokens; P and m go to the other block by stores into its shared memory. Four warpgroups:
 *   two make O: O[64][kv_lora_rank / 4] += P V, V being the KV block itself, read across; the first one l += P 1 too;
 *   one makes S[64][64] = Q KV^T and P as bf16, which lies as a multiplication wants it in registers; m goes from block to block;
 *   the warps of the last bring the blocks that are weighed here (all columns), bring the other ones (half of V), and look for pieces.
 * Every row has its own position: what lies beyond it weighs +0, and chunks that start beyond it are not folded. The groups' fold
 * (level 2) lies in `scratch`, in fragment order; a thread only reads there what it wrote.
 * Grid: any even number of blocks. Dynamic shared bytes: 232448, all that a block may have. A pair moves 26 boxes of 8192 bytes from L2
 * for two blocks of 64 tokens, 4 * 64 * 64 * (576 + 512) operations: 84 operations a byte, half of what L2 gives.
 * H200, 512 + 64, TFLOP/s, with chunks of 256, 512 and 1024 tokens: prompts of 16 heads, 8192 tokens, 488, 502 and 510; the last 1024 of
 * 8192 of 128 heads, 488, 506 and 514; one token each of 64 requests at 8192, 128 heads, with the fold, 440 to 460 with 512. At rest the
 * first runs are a few per cent faster: the clock falls to 1.7 GHz. Where one thread copied that the compiler did not know to be one,
 * with a policy for L2, 2 to 3 % less; where m followed every maximum and V was awaited behind P, another 5 to 7 %.
 * Two blocks take 3900 to 4050 cycles. The outputs spend 1250 in products, 930 from P's barrier to the products, 600 between blocks, 400
 * at V's barriers, 450 at P's, 360 with giving back: one thing behind the other, beside scores that take as long (1900 in products, 540
 * for scaling and maxima, m of the other block, P, its way out). Shared memory moves 370 KB in that time, 2900 cycles' worth. Without
 * copies (wrong results) 522 and 539 with chunks of 512 and 1024, one token each 506 and 529.
 * Tried and lost: S of the next block beside P, in second registers, started behind m, amid P or behind it (345 to 412 beside 441: V of
 * the block before the last must be through before its boxes come, which makes one long circle of waits); S and P by two warpgroups by
 * turns, P then an operand in shared memory (a sixth slower); P of the next block taken beside the multiplication (363: V is given back
 * later); own P V only when the next scores are there (prompts 1 % faster, one token each 5 % slower); boxes for two pairs at once by
 * multicast (a third of the rate: each pair waits for the other); P given back as soon as it has been asked for (wrong bits: loads may
 * be overtaken by an arrival in another block), or after a fence of the cluster (a tenth slower); a block for all columns, two
 * warpgroups that make S and P by turns and half of O each, products queued behind each other, all folds in `scratch` (464, 509 and 549
 * with chunks of 512, 1024, 2048: a fold takes as long as two blocks; 595 without any; half of the copies by multicast, the same); some
 * of the queries in registers (a tenth slower); 2^x without its cut at 2^-126 where no weight is 0 (prompts 1 to 2 % faster, one token
 * each 0.7 % slower); weights as mla_prefill makes them (1 to 4 % slower); P made with m of two blocks before, while that of the block
 * before comes, and again where it moved (a twentieth slower); l's products between O's (the same); no l (1 to 2 % faster); KV rows
 * asked of L2 two to eight blocks early, by lines, boxes or whole pages (1 to 6 % slower, though HBM brings them); KV rows with
 * evict_first (one token each 2 % slower to 3 % faster, prompts 3 % slower). */
#ifndef VERBATIM_MLA_PAIR_CUH
#define VERBATIM_MLA_PAIR_CUH
#if SPEC_KV_FORMAT
#include "attn/pair/gather.cuh"
#else
#include "attn/pair/copy.cuh"
#endif
#include "attn/pair/outputs.cuh"
#include "attn/pair/scores.cuh"

#define KERNEL_CLUSTER 2u
#define KERNEL_CLUSTER_X 2u

/* One warp: the pieces of this pair. */
NUM void deal(const mla_attn_args &a, const place &p) {
  u32 round = 0;
  for (u32 n = 0;; n++) {
    const item it = next_item(a, round);
    give_item(p, n, it);
    if (it.heads == 0) return;
  }
}

/* One thread: the queries, and all columns of the blocks that are weighed here. */
NUM void bring_keys(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  item it;
  for (u32 n = 0, k = 0, queries = 0; take_item(p, n, it, true); n++) {
    const u32 *pages = a.block_table + (u64)it.tile.seq * a.block_table_stride;
    const u32 first = first_of(it, p, 0), query = it.tile.row * a.heads + it.head;
    u32 page = first <= it.last ? pages[first] : 0u;
    for (u32 block = first; block <= it.last; block += 2u, k++) {
      const u32 row = page * PAGE_TOKENS, set = k % 2u;
      if (block + 2u <= it.last) page = pages[block + 2u];
      for (u32 x = 0; x < BOXES; x++) {
        u32 come, to;
        if (is_both(p, x)) {
          const u32 half = x % HALF;
          if (half % WIDTH_BOXES == 0) wait_free(p, BOTH_FREE + set * 2u + half / WIDTH_BOXES, k / 2u);
          come = BOTH_COME + set * HALF + half;
          to = AT_BOTH + (set * HALF + half) * BOX_BYTES;
        } else {
          wait_free(p, OTHERS_FREE + other_of(x), k);
          come = OTHERS_COME + other_of(x);
          to = AT_OTHERS + other_of(x) * BOX_BYTES;
        }
        if (block == first && x == 0) wait_free(p, Q_FREE, queries++);
        ptx_barrier_expect(barrier_at(p, come), block == first ? 2u * BOX_BYTES : BOX_BYTES);
        if (block == first) ptx_take_box(p.base + AT_Q + x * BOX_BYTES, &maps.x, x * 64u, query, barrier_at(p, come));
        ptx_take_box(p.base + to, &maps.w, x * 64u, row, barrier_at(p, come));
      }
    }
  }
}

/* One thread: the half of V of the blocks that the other one weighs. */
NUM void bring_values(const mla_attn_args &a, const tensor_maps &maps, const place &p) {
  item it;
  for (u32 n = 0, k = 0; take_item(p, n, it, true); n++) {
    const u32 *pages = a.block_table + (u64)it.tile.seq * a.block_table_stride;
    const u32 first = first_of(it, p, 1);
    u32 page = first <= it.last ? pages[first] : 0u;
    for (u32 block = first; block <= it.last; block += 2u, k++) {
      const u32 row = page * PAGE_TOKENS;
      if (block + 2u <= it.last) page = pages[block + 2u];
      for (u32 x = 0; x < HALF; x++) {
        if (x % WIDTH_BOXES == 0) wait_free(p, VALUES_FREE + x / WIDTH_BOXES, k);
        const u32 come = barrier_at(p, VALUES_COME + x);
        ptx_barrier_expect(come, BOX_BYTES);
        ptx_take_box(p.base + AT_VALUES + x * BOX_BYTES, &maps.w, (p.rank * HALF + x) * 64u, row, come);
      }
    }
  }
}

/* How often a barrier is arrived at in a phase. */
NUM u32 arrivals_of(u32 i) {
  const bool by_warps = (i >= OTHERS_FREE && i <= P_COME) || i == Q_FREE; /* the warps of one warpgroup */
  if (by_warps) return 4u;
  if (i == VALUES_GIVEN) return 2u; /* warpgroups of the other block */
  if (i == P_FREE) return 16u; /* the warps of two here, and of two of the other block */
  if (i >= ITEM_FREE && i < Q_COME) return GATHERED ? 16u : 14u; /* the warps of all four, or of three and two threads */
  if (i >= OTHERS_FREE || !GATHERED) return 1u;
  if (CODES && i >= VALUES_COME) return 1u; /* who expects the other block's copy */
  const bool says_live = i >= BOTH_COME && i < VALUES_COME && (i - BOTH_COME) % HALF == 0; /* which places are live: warps, too */
  const bool copied = COPIED || (ROPE_COPIED && i == OTHERS_COME + HALF);
  return !copied ? 4u : says_live ? 132u : 128u; /* warps, or threads */
}

NUM void start_barriers(const place &p) {
  for (u32 i = 0; i < BARRIERS; i++) ptx_barrier_init(barrier_at(p, i), arrivals_of(i));
  ptx_barrier_ready();
}

extern "C" __global__ __cluster_dims__(KERNEL_CLUSTER_X, 1, 1) __launch_bounds__(SPEC_THREADS, 1)
void mla_attn(const __grid_constant__ mla_attn_args a, const __grid_constant__ tensor_maps maps) {
  extern __shared__ u8 raw[];
  ptx_grid_next();
  place p;
  p.base = (ptx_shared(raw) + 1023u) & ~1023u;
  p.shared = raw + (p.base - ptx_shared(raw));
  p.rank = blockIdx.x % 2u;
  if ((p.base & 0xffffffu) != BASE) __trap(); /* above are bits of the cluster's block */
  if (threadIdx.x == 0) start_barriers(p);
  if (threadIdx.x < 64u) ((u32 *)(p.shared + AT_ONES))[threadIdx.x] = 0x3f803f80u;
  ptx_fence_async();
  ptx_cluster_sync();
  ptx_grid_wait();

  const u32 group = ptx_uniform(threadIdx.x / 128u);
  if (group < 2u) {
    PTX_REGISTERS_MORE(GATHERED ? 176 : 192);
    attend(a, p, group);
  } else if (group == 2u) {
    PTX_REGISTERS_LESS(GATHERED ? 64 : 88);
    weigh(a, p);
  } else if (GATHERED) {
    PTX_REGISTERS_LESS(96);
    gather(a, maps, p);
  } else {
    PTX_REGISTERS_LESS(40);
    const u32 warp = ptx_uniform(threadIdx.x / 32u);
    if (warp == 12u && ptx_elect()) bring_keys(a, maps, p);
    if (warp == 13u && ptx_elect()) bring_values(a, maps, p);
    if (warp == 14u) deal(a, p);
  }
  __syncwarp();
  ptx_cluster_sync(); /* the other block may still write here */
}

#endif

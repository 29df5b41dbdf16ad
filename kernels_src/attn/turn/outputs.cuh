/* attn/turn/outputs.cuh - the two warpgroups of attn/turn/form.cuh that multiply: O += P V and l += P 1 block by block, for half of the
 * columns each, and the result; `even` makes S and P of the even blocks of a token, `odd` of the odd ones.
 *
 * Both multiply all blocks in the order of the list. While one makes weights the other multiplies. Codes: the second warpgroup adds an even
 * block before it makes scores of the odd one, which may not have come: boxes are given back in the order in which they are filled, else
 * everyone waits for the slowest way around. bf16 rows come sooner, and need it the other way: m of an even block goes ahead of its
 * weights, so that those of the odd one are made beside its products. What the next scores need is waited for behind all products, so that
 * nothing that could go on stands behind it. Between the first product of a pipeline and its end there may be no branch: the compiler would
 * wait behind every product. Read next: attn/turn/form.cuh. */
#ifndef VERBATIM_TURN_OUTPUTS_CUH
#define VERBATIM_TURN_OUTPUTS_CUH
#include "attn/turn/scores.cuh"

/* Element 4 * j + 2 * h + e of both halves of O: head h of the thread's two, column 8 * j + e; l in elements 0 and 2. */
typedef struct output {
  f32 m[2], l[4], o[2][64];
} output;

NUM void clear(output &out) {
  out.m[0] = out.m[1] = NO_MAX;
#pragma unroll
  for (u32 i = 0; i < 4; i++) out.l[i] = 0.0f;
#pragma unroll
  for (u32 i = 0; i < 128; i++) out.o[i / 64u][i % 64u] = 0.0f;
}

/* What was summed up, behind m; most blocks do not move it. */
template <u32 G> NUM void follow(output &out, const f32 (&m)[2]) {
  if (__ballot_sync(WARP_ALL, m[0] != out.m[0] || m[1] != out.m[1])) {
    const f32 factor[2] = {num_exp2_int(num_sub(out.m[0], m[0])), num_exp2_int(num_sub(out.m[1], m[1]))}; /* 1 where m stays */
#pragma unroll
    for (u32 i = 0; i < 4 && G == 0; i++) out.l[i] = num_mul(out.l[i], factor[i / 2u]);
#pragma unroll
    for (u32 i = 0; i < 128; i++) out.o[i / 64u][i % 64u] = num_mul(out.o[i / 64u][i % 64u], factor[i / 2u % 2u]);
  }
  out.m[0] = m[0];
  out.m[1] = m[1];
}

/* Asks for O += P V of warpgroup G's columns and, of the first one, l += P 1: in two parts, so that half of the columns are free early. */
template <u32 G> NUM void ask_outputs(output &out, const weights &x, u32 set) {
  const u64 v = ptx_operand(PTX_ACROSS(BOX_BYTES), BASE + box_at(set, G * HALF)), ones = ptx_operand(PTX_PLAIN, BASE + AT_ONES);
#pragma unroll
  for (u32 i = 0; i < 128; i++) ptx_hold(out.o[i / 64u][i % 64u]);
#pragma unroll
  for (u32 i = 0; i < 4 && G == 0; i++) ptx_hold(out.l[i]);
  ptx_multiply_fence();
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) ptx_multiply_across(out.o[h], x.w[i], v + i * 128u + h * (2u * BOX_BYTES >> 4));
#pragma unroll
    for (u32 i = 0; i < 4 && h && G == 0; i++) ptx_multiply(out.l, x.w[i], ones);
    ptx_multiply_commit();
  }
}

/* When values of warpgroup G have been multiplied they are free. */
template <u32 G> NUM void free_values(const place &p, u32 set) {
  PTX_MULTIPLY_WAIT(1);
  if (threadIdx.x % 32u == 0) give_free(p, FREE + set * GROUPS + G * 2u);
  PTX_MULTIPLY_WAIT(0);
  if (threadIdx.x % 32u == 0) give_free(p, FREE + set * GROUPS + G * 2u + 1u);
}

/* Token number n: bf16(O * (1 / l) + 0). Only the first warpgroup has l. */
template <u32 G> NUM void write_out(const mla_attn_args &a, const place &p, const token &t, const output &out, u32 n) {
  f32 *sums = (f32 *)(p.shared + AT_SUMS + n % 2u * 256u); /* two tokens may be under way */
  if (G == 0 && threadIdx.x % 4u == 0) {
    sums[head_of(0)] = out.l[0];
    sums[head_of(1)] = out.l[2];
  }
  ptx_warps_sync(3, 256);
#pragma unroll
  for (u32 h = 0; h < 2; h++) {
    const u32 head = p.rank * 64u + head_of(h), column = G * 256u + threadIdx.x % 4u * 2u;
    const f32 share = num_div(1.0f, sums[head_of(h)]);
    u32 *to = (u32 *)(a.out + ((u64)t.row * a.heads + head) * SPEC_KV_LORA_RANK + column);
    if (head >= a.heads) continue;
#pragma unroll
    for (u32 j = 0; j < 32; j++) {
      const f32 *o = out.o[j / 16u] + j % 16u * 4u + 2u * h;
      to[4u * j] = ptx_pack_bf16(num_add(num_mul(o[0], share), 0.0f), num_add(num_mul(o[1], share), 0.0f));
    }
  }
}

/* The first warpgroup. k counts pairs of blocks. */
NUM void even(const mla_attn_args &a, const place &p) {
  token t;
  for (u32 n = 0, k = 0; take_token(a, n, t); n++) {
    f32 s[32], m[2], top[2];
    weights x;
    output out;
    clear(out);
    wait_for(p, Q_COME, n);
    for (u32 left = t.blocks; left > 0; left -= 2u, k++) {
      ask_scores(p, s, 0, k);
      PTX_MULTIPLY_WAIT(0);
      if (left == 2u && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, Q_FREE));
      m[0] = out.m[0];
      m[1] = out.m[1];
      scale_scores(a, p, s, top, 0);
      raise_maxima(p, m, top, 0);
      if (!CODES) give(p, M_COME);
      make_weights(p, s, m, x, 0);
      follow<0>(out, m);
      ask_outputs<0>(out, x, 0);
      free_values<0>(p, 0);
      take_weights(p, x, 1u, k);
      take_maxima(p, m, 1u);
      follow<0>(out, m);
      ask_outputs<0>(out, x, 1u);
      free_values<0>(p, 1u);
    }
    write_out<0>(a, p, t, out, n);
  }
}

/* The second one. */
NUM void odd(const mla_attn_args &a, const place &p) {
  token t;
  for (u32 n = 0, k = 0; take_token(a, n, t); n++) {
    f32 s[32], m[2], top[2];
    weights x, own;
    output out;
    clear(out);
    wait_for(p, Q_COME, n);
    for (u32 left = t.blocks; left > 0; left -= 2u, k++) {
      if (CODES) {
        take_weights(p, x, 0, k);
        take_maxima(p, m, 0);
        follow<1>(out, m);
        ask_outputs<1>(out, x, 0);
        free_values<1>(p, 0);
      }
      ask_scores(p, s, 1u, k);
      PTX_MULTIPLY_WAIT(0);
      if (left == 2u && threadIdx.x % 32u == 0) ptx_barrier_arrive(barrier_at(p, Q_FREE));
      scale_scores(a, p, s, top, 1u);
      if (!CODES) {
        wait_for(p, M_COME, k);
        take_maxima(p, m, 0);
        follow<1>(out, m);
      }
      raise_maxima(p, m, top, 1u);
      if (!CODES) {
        take_weights(p, x, 0, k);
        ask_outputs<1>(out, x, 0);
      }
      make_weights(p, s, m, own, 1u);
      if (!CODES) free_values<1>(p, 0);
      follow<1>(out, m);
      ask_outputs<1>(out, own, 1u);
      free_values<1>(p, 1u);
    }
    write_out<1>(a, p, t, out, n);
  }
}

#endif

/* flashmla_sparse_entry.cu - C entry points to FlashMLA's sparse kernels for tools/peers_flashmla.py, which compiles this with a source
 * folder of FlashMLA.
 *
 * Follows the interface of the package (csrc/api/sparse_decode.h and sparse_fwd.h, without PyTorch): one KV head, 576 key and 512 value
 * columns, 64 or 128 heads. All pointers are of the device; sizes of the scratch buffers are those of peers_flashmla.py. Not part of the
 * program. */
#include "params.h"
#include "sm90/decode/sparse_fp8/splitkv_mla.h"
#include "sm90/prefill/sparse/phase1.h"
#include "smxx/decode/combine/combine.h"
#include "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.h"

static constexpr int KEY = 576, VALUE = 512, ROW_BYTES = 656, PAGE = 64;
static constexpr float LOG2_E = 1.44269504088896340736f;

extern "C" void flashmla_sparse_schedule(int b, int s_q, int topk, int parts, void *schedule, int *splits, cudaStream_t stream) {
  GetDecodeSchedMetaParams p = {};
  p.b = b, p.s_q = s_q, p.block_size_n = 64, p.fixed_overhead_num_blocks = 5, p.topk = topk, p.extra_topk = 0;
  p.num_splits_ptr = splits, p.num_sm_parts = parts, p.stream = stream;
  p.tile_scheduler_metadata_ptr = static_cast<DecodingSchedMeta *>(schedule);
  smxx::decode::run_get_decoding_sched_meta_kernel(p);
}

/* q [b][s_q][heads][576] bf16, kv [pages][64][656], indices [b][s_q][topk]: page * 64 + row, out [b][s_q][heads][512]. */
extern "C" void flashmla_sparse_decode(int b, int s_q, int heads, int topk, int parts, int pages, float scale, void *q, void *kv,
                                       int *indices, void *schedule, int *splits, void *out, float *lse, float *lse_parts,
                                       float *out_parts, cudaStream_t stream) {
  using bf16 = cutlass::bfloat16_t;
  SparseAttnDecodeParams p = {};
  p.b = b, p.s_q = s_q, p.h_q = heads, p.h_kv = 1, p.d_qk = KEY, p.d_v = VALUE, p.sm_scale = scale, p.sm_scale_div_log2 = scale * LOG2_E;
  p.num_blocks = pages, p.page_block_size = PAGE, p.topk = topk, p.model_type = ModelType::V32;
  p.q = static_cast<bf16 *>(q), p.kv = static_cast<bf16 *>(kv), p.indices = indices, p.lse = lse, p.out = static_cast<bf16 *>(out);
  p.stride_q_b = s_q * heads * KEY, p.stride_q_s_q = heads * KEY, p.stride_q_h_q = KEY;
  p.stride_kv_block = PAGE * ROW_BYTES, p.stride_kv_row = ROW_BYTES, p.stride_indices_b = s_q * topk, p.stride_indices_s_q = topk;
  p.stride_lse_b = s_q * heads, p.stride_lse_s_q = heads;
  p.stride_o_b = s_q * heads * VALUE, p.stride_o_s_q = heads * VALUE, p.stride_o_h_q = VALUE;
  p.stream = stream, p.lse_accum = lse_parts, p.o_accum = out_parts;
  p.stride_lse_accum_split = s_q * heads, p.stride_lse_accum_s_q = heads;
  p.stride_o_accum_split = s_q * heads * VALUE, p.stride_o_accum_s_q = heads * VALUE, p.stride_o_accum_h_q = VALUE;
  p.tile_scheduler_metadata_ptr = static_cast<DecodingSchedMeta *>(schedule), p.num_splits_ptr = splits, p.num_sm_parts = parts;
  if (heads == 64) sm90::decode::sparse_fp8::run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::V32, 64>(p);
  else sm90::decode::sparse_fp8::run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::V32, 128>(p);
  CombineParams c = {};
  c.b = b, c.s_q = s_q, c.h_q = heads, c.d_v = VALUE, c.lse = lse, c.out = out, c.lse_accum = lse_parts, c.o_accum = out_parts;
  c.stride_lse_b = p.stride_lse_b, c.stride_lse_s_q = heads, c.stride_lse_accum_split = s_q * heads, c.stride_lse_accum_s_q = heads;
  c.stride_o_b = p.stride_o_b, c.stride_o_s_q = p.stride_o_s_q, c.stride_o_h_q = VALUE;
  c.stride_o_accum_split = p.stride_o_accum_split, c.stride_o_accum_s_q = p.stride_o_accum_s_q, c.stride_o_accum_h_q = VALUE;
  c.tile_scheduler_metadata_ptr = p.tile_scheduler_metadata_ptr, c.num_splits_ptr = splits, c.num_sm_parts = parts, c.stream = stream;
  smxx::decode::run_flash_mla_combine_kernel<bf16>(c);
}

/* q [s_q][heads][576], kv [s_kv][576], indices [s_q][topk], out [s_q][heads][512]; max_logits, lse [s_q][heads]. */
extern "C" void flashmla_sparse_prefill(int s_q, int s_kv, int heads, int topk, int sms, float scale, void *q, void *kv, int *indices,
                                        void *out, float *max_logits, float *lse, cudaStream_t stream) {
  using bf16 = cutlass::bfloat16_t;
  SparseAttnFwdParams p = {};
  p.s_q = s_q, p.s_kv = s_kv, p.h_q = heads, p.h_kv = 1, p.d_qk = KEY, p.d_v = VALUE, p.topk = topk;
  p.sm_scale = scale, p.sm_scale_div_log2 = scale * LOG2_E;
  p.q = static_cast<bf16 *>(q), p.kv = static_cast<bf16 *>(kv), p.indices = indices, p.out = static_cast<bf16 *>(out);
  p.stride_q_s_q = heads * KEY, p.stride_q_h_q = KEY, p.stride_kv_s_kv = KEY, p.stride_kv_h_kv = KEY;
  p.stride_indices_s_q = topk, p.stride_indices_h_kv = topk, p.max_logits = max_logits, p.lse = lse, p.num_sm = sms, p.stream = stream;
  sm90::fwd::run_fwd_phase1_kernel<KEY, false>(p);
}

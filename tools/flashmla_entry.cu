/* flashmla_entry.cu - C entry points to FlashMLA's dense decode for tools/peers_flashmla.py, which compiles this with a source folder of
 * FlashMLA.
 *
 * Follows the interface of the package (csrc/api/dense_decode.h, without PyTorch): one KV head, bf16, page 64, 576 key and 512 value
 * columns. All pointers are of the device; sizes of the scratch buffers are those of peers_flashmla.py. Not part of the program. */
#include "params.h"
#include "sm90/decode/dense/splitkv_mla.h"
#include "smxx/decode/combine/combine.h"
#include "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.h"

extern "C" void flashmla_schedule(int b, int s_q, int parts, int *lengths, void *schedule, int *splits, cudaStream_t stream) {
  GetDecodeSchedMetaParams p = {};
  p.b = b, p.s_q = s_q, p.block_size_n = 64, p.fixed_overhead_num_blocks = 5, p.topk = p.extra_topk = -1;
  p.seqlens_k_ptr = lengths, p.num_splits_ptr = splits, p.num_sm_parts = parts, p.stream = stream;
  p.tile_scheduler_metadata_ptr = static_cast<DecodingSchedMeta *>(schedule);
  smxx::decode::run_get_decoding_sched_meta_kernel(p);
}

/* q [b][s_q][heads][576], kv [pages][64][576], out [b][s_q][heads][512] for s_q = 1 or heads-major rows of a request as q has them. No
 * request has more than most_splits parts, 160 at most. */
extern "C" void flashmla_decode(int b, int s_q, int heads, int parts, int most_splits, int pages, int pages_per_seq, float scale, void *q,
                                void *kv, int *block_table, int *lengths, void *schedule, int *splits, void *out, float *lse,
                                float *lse_parts, float *out_parts, cudaStream_t stream) {
  const int rows = s_q * heads;
  DenseAttnDecodeParams p = {};
  p.b = b, p.s_q = s_q, p.q_seq_per_hk = rows, p.d = 576, p.d_v = 512, p.h_q = heads, p.h_k = 1, p.num_blocks = pages;
  p.q_head_per_hk = heads, p.is_causal = s_q > 1, p.scale_softmax = scale, p.scale_softmax_log2 = scale * 1.44269504088896340736f;
  p.q_ptr = q, p.k_ptr = kv, p.o_ptr = out, p.softmax_lse_ptr = lse;
  p.q_batch_stride = 576ll * rows, p.q_row_stride = 576, p.q_head_stride = 576;
  p.k_batch_stride = 64 * 576, p.k_row_stride = 576, p.k_head_stride = 576;
  p.o_batch_stride = 512ll * rows, p.o_row_stride = 512, p.o_head_stride = 512ll * rows;
  p.block_table = block_table, p.block_table_batch_stride = pages_per_seq, p.page_block_size = 64, p.seqlens_k_ptr = lengths;
  p.tile_scheduler_metadata_ptr = static_cast<DecodingSchedMeta *>(schedule), p.num_sm_parts = parts, p.num_splits_ptr = splits;
  p.total_num_splits = b + parts, p.softmax_lseaccum_ptr = lse_parts, p.oaccum_ptr = out_parts, p.stream = stream;
  sm90::run_flash_splitkv_mla_kernel<cutlass::bfloat16_t>(p);
  CombineParams c = {};
  c.b = b, c.s_q = s_q, c.h_q = heads, c.d_v = 512, c.lse = lse, c.out = out, c.lse_accum = lse_parts, c.o_accum = out_parts;
  c.stride_lse_b = c.stride_lse_accum_split = rows, c.stride_lse_s_q = c.stride_lse_accum_s_q = heads;
  c.stride_o_b = c.stride_o_accum_split = 512 * rows, c.stride_o_s_q = c.stride_o_accum_s_q = 512 * heads;
  c.stride_o_h_q = c.stride_o_accum_h_q = 512;
  c.tile_scheduler_metadata_ptr = p.tile_scheduler_metadata_ptr, c.num_splits_ptr = splits, c.num_sm_parts = most_splits, c.stream = stream;
  smxx::decode::run_flash_mla_combine_kernel<cutlass::bfloat16_t>(c);
}

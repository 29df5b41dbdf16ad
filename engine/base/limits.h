/* limits.h - every limit of the program in one place, each with its reason.
 *
 * A model, plan or request beyond a limit is refused by name. Buffers of a fixed size and integer widths rely on these numbers. Includes
 * nothing. Read next: plan/format.h. */
#ifndef VERBATIM_LIMITS_H
#define VERBATIM_LIMITS_H

#define LAYERS_MAX 128u        /* the largest MLA models have 78 */
#define HEADS_MAX 256u         /* 128 in DeepSeek-V3 */
#define EXPERTS_MAX 512u       /* 384 in Kimi-K2 */
#define TOP_K_EXPERTS_MAX 16u  /* 8 in DeepSeek-V3 */
#define EXPERT_GROUPS_MAX 64u
#define HIDDEN_MAX 16384u
#define VOCAB_MAX 262144u      /* 163,840 in Kimi-K2; sampling weights sum below 2^58 */
#define KV_LORA_RANK_MAX 512u
#define ROPE_DIM_MAX 64u       /* of latent attention */
#define HEAD_DIM_MAX 256u      /* columns of a head of grouped-query attention, all of which may be rotated */
#define GROUP_HEADS_MAX 64u    /* query heads that share a KV head: rows of the MMA operand */
#define SEQS_MAX 1024u
#define BATCH_TOKENS_MAX 65536u
#define LENGTH_MAX 1048576u    /* positions are exact in fp32 far beyond this */
#define KV_PAGES_MAX (1u << 25) /* page * 64 + row stays below 2^31 */
#define LADDER_MAX 64u         /* sizes of captured graphs */
#define GRAPHS_MAX (4u * LADDER_MAX + 8u) /* of each size for both sides, by heads and by requests; some more at a time for timings */
#define DRAFT_TOKENS_MAX 15u   /* with the newest token 16 rows of a sequence */
#define MATCH_TOKENS_MIN 2u    /* prompt lookup; a single token occurs again by chance */
#define MATCH_TOKENS_MAX 64u
#define EOS_MAX 8u
#define FILE_CONFIG_BYTES_MAX (1u << 20)   /* config.json, deploy.yaml */
#define FILE_PLAN_BYTES_MAX (256u << 20)
#define SAFETENSORS_HEADER_BYTES_MAX (64u << 20)
#define NAME_BYTES_MAX 256u

_Static_assert(TOP_K_EXPERTS_MAX <= 32, "a warp ranks a token's experts");
_Static_assert(LENGTH_MAX <= 1u << 24, "fp32(position) must be exact");

#endif

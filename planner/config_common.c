/* config_common.c - see config_common.h. */
#include "config_common.h"
#include <string.h>

static const char *const FIELDS_READ[] = {
    "architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "intermediate_size", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings", "bos_token_id",
    "eos_token_id", "attention_bias", "mlp_bias", "hidden_act", "tie_word_embeddings", "torch_dtype", "dtype", "quantization_config",
    "partial_rotary_factor", "add_cross_attention", "pruned_heads", "sliding_window", "use_sliding_window",
};

/* Training, bookkeeping, hints for other programs; and HF's defaults for generation, which a request here states itself. */
static const char *const FIELDS_IGNORED[] = {
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_experts_implementation", "_name_or_path",
    "attention_dropout", "auto_map", "aux_loss_alpha", "bad_words_ids", "begin_suppress_tokens", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty", "do_sample", "early_stopping",
    "embedding_initializer_range", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task",
    "forced_bos_token_id", "forced_eos_token_id", "id2label", "index_share_for_mtp_iteration", "initializer_range",
    "is_decoder", "is_encoder_decoder", "label2id", "length_penalty", "max_length", "max_window_layers", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_mtp_layers", "num_nextn_predict_layers", "num_return_sequences",
    "output_attentions", "output_hidden_states", "output_router_logits", "output_scores", "pad_token_id", "prefix", "problem_type",
    "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate", "router_aux_loss_coef", "sep_token_id",
    "seq_aux", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class",
    "top_k", "top_p", "torchscript", "transformers_version", "typical_p", "unk_token_id", "unsloth_fixed", "unsloth_version",
    "use_bfloat16", "use_cache",
};

bool config_common_knows(const char *field) { return config_field_is_among(field, FIELDS_READ, ARRAY_LEN(FIELDS_READ)); }

bool config_common_ignores(const char *field) { return config_field_is_among(field, FIELDS_IGNORED, ARRAY_LEN(FIELDS_IGNORED)); }

void config_common_note_ignored(const config_reader *r, const char *field, const json_t *value) {
  bool is_prediction = strcmp(field, "num_mtp_layers") == 0 || strcmp(field, "num_nextn_predict_layers") == 0;
  bool has_layers = is_prediction && json_integer_value(value) > 0;
  config_field_note(r->notes->ignored, has_layers ? "%s%s (the prediction layers behind the last layer make drafts at most)" : "%s%s",
                    r->prefix, field);
}

status config_common_refuse(const config_reader *r, const char *field) {
  return FAIL(ERR_UNSUPPORTED, "config.json: field \"%s%.64s\" is not known and could change the arithmetic; "
              "hint: if HF computes the same without it, remove it; the supported models are " CONFIG_COMMON_TYPES, r->prefix, field);
}

status config_common_check_architecture(const config_reader *r, const char *expected) {
  const json_t *names = config_field_find(r, "architectures");
  const char *found = json_string_value(json_array_get(names, 0));
  if (names && (json_array_size(names) != 1 || !found))
    return FAIL(ERR_FORMAT, "config.json: \"%sarchitectures\": expected a list of one name", r->prefix);
  if (names && strcmp(found, expected) != 0)
    return FAIL(ERR_UNSUPPORTED, "config.json: \"%sarchitectures\" is \"%.64s\", expected %s for this model_type", r->prefix, found,
                expected);
  return OK;
}

status config_common_require_bf16(const config_reader *r) {
  TRY(config_field_require_text(r, "torch_dtype", "bfloat16"));
  return config_field_require_text(r, "dtype", "bfloat16");
}

status config_common_require_fixed(const config_reader *r) {
  const json_t *heads = config_field_find(r, "pruned_heads");
  TRY(config_common_require_bf16(r));
  TRY(config_field_require_flag(r, "add_cross_attention", false));
  TRY(config_field_require_text(r, "hidden_act", "silu"));
  if (heads && json_object_size(heads) + json_array_size(heads) > 0) return config_field_require_absent(r, "pruned_heads");
  return OK;
}

status config_common_refuse_quantised(const config_reader *r) {
  if (!config_field_find(r, "quantization_config")) return OK;
  return FAIL(ERR_UNSUPPORTED, "config.json: \"%squantization_config\" is set; quantised weights of this kind of model are not supported; "
              "hint: use a bf16 copy", r->prefix);
}

status config_common_read_tie(const config_reader *r, bool fallback, uint32_t *is_tied) {
  bool found = false;
  TRY(config_field_flag(r, "tie_word_embeddings", fallback, &found));
  if (fallback && !config_field_exists(r, "tie_word_embeddings")) config_field_note(r->notes->assumed, "tie_word_embeddings = true");
  *is_tied = found;
  return OK;
}

status config_common_read_sizes(const config_reader *r, double norm_eps, plan_model *model, uint32_t *max_position) {
  double eps = 0;
  TRY(config_field_count(r, "vocab_size", 8, VOCAB_MAX, 8, -1, &model->vocab));
  TRY(config_field_count(r, "hidden_size", 64, HIDDEN_MAX, 64, -1, &model->hidden));
  TRY(config_field_count(r, "num_hidden_layers", 1, LAYERS_MAX, 1, -1, &model->layers));
  TRY(config_field_count(r, "num_attention_heads", 1, HEADS_MAX, 1, -1, &model->heads));
  TRY(config_field_count(r, "intermediate_size", 64, 16 * HIDDEN_MAX, 64, -1, &model->inter));
  TRY(config_field_count(r, "max_position_embeddings", 1, 1u << 30, 1, -1, max_position));
  TRY(config_field_real(r, "rms_norm_eps", 1e-12, 0.1, norm_eps, &eps));
  model->norm_eps = (float)eps;
  return OK;
}

/* === Tokens ============================================================================================================= */

static status read_token(const char *name, const json_t *value, uint32_t vocab, uint32_t *out) {
  json_int_t id = json_integer_value(value);
  if (!json_is_integer(value))
    return FAIL(ERR_FORMAT, "config.json: \"%s\": expected token ids, found %s", name, config_field_kind(value));
  if (id < 0 || id >= (json_int_t)vocab)
    return FAIL(ERR_FORMAT, "config.json: \"%s\" is %lld, outside the vocabulary of %u", name, (long long)id, vocab);
  *out = (uint32_t)id;
  return OK;
}

status config_common_read_tokens(const config_reader *r, plan_model *model) {
  const json_t *bos = config_field_find(r, "bos_token_id"), *eos = config_field_find(r, "eos_token_id");
  model->bos = UINT32_MAX;
  if (bos) TRY(read_token("bos_token_id", bos, model->vocab, &model->bos));
  if (!eos) return OK; /* generation ends by length or by the request's own stop ids */
  if (!json_is_array(eos)) {
    model->eos_count = 1;
    return read_token("eos_token_id", eos, model->vocab, &model->eos[0]);
  }
  if (json_array_size(eos) > EOS_MAX)
    return FAIL(ERR_LIMIT, "config.json: \"eos_token_id\" lists %zu ids, at most %u", json_array_size(eos), EOS_MAX);
  for (; model->eos_count < json_array_size(eos); model->eos_count++)
    TRY(read_token("eos_token_id", json_array_get(eos, model->eos_count), model->vocab, &model->eos[model->eos_count]));
  return OK;
}

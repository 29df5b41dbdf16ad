/* receipt_fixture.h - a request with every kind of input and output, and the run that its receipt names, for tests of receipts.
 *
 * Results point into the fixture and are not copied. */
#ifndef VERBATIM_RECEIPT_FIXTURE_H
#define VERBATIM_RECEIPT_FIXTURE_H
#include <string.h>
#include "engine/verbatim.h"

static const verbatim_kernel FIXTURE_KERNELS[] = {{"gemm", {0xaa}}, {"rms\"norm", {0, 0xbb}}};
static const verbatim_info FIXTURE_INFO = {
  .device = "A \"GPU\"", .numerics_id = {1, 2, 3}, .config_digest = {4}, .weights_digest = {0xff}, .plan_digest = {0x10},
  .plan_sha256 = {[0] = 0x5a, [31] = 0xa5}, .weights_sha256 = {[31] = 7},
  .driver_version = 13000, .nvrtc_version = 13010, .cublaslt_version = 130002, .kernels = FIXTURE_KERNELS, .kernel_count = 2, .ranks = 4};
static const int32_t FIXTURE_PROMPT[] = {7, 8, 9}, FIXTURE_STOPS[] = {1, 30};

typedef struct fixture {
  verbatim_request request;
  verbatim_token tokens[2], scores[1];
  verbatim_alternative alternatives[6];
  verbatim_bias biases[2];
  verbatim_text stop_texts[2];
} fixture;

static inline void fixture_make(fixture *f) {
  *f = (fixture){
    .tokens = {{.id = 5, .logprob = -0.5f, .digest = 0x123456789abcdef0ull}, {.id = 1, .logprob = -1.0f, .rank = 3, .digest = 1}},
    .scores = {{.id = 9, .logprob = -2.0f, .rank = 7, .digest = 2}},
    .alternatives = {{1, -1.0f}, {2, -2.0f}, {3, -0.5f}, {4, -2.0f}, {5, -1.0f}, {6, -0.5f}},
    .biases = {{8, -1.0f}, {6, 0.5f}}, .stop_texts = {{"a\"", 2}, {"\n\0\xc3\xa9", 4}}};
  f->request = (verbatim_request){
    .prompt = FIXTURE_PROMPT, .prompt_count = 3, .max_tokens = 4, .score = true, .score_from = 2, .top_logprobs = 2,
    .temperature = 1.0f, .top_k = 2, .top_p = 0.5, .min_p = 0.5, .repetition_penalty = 1.0f, .presence_penalty = -0.0f,
    .frequency_penalty = 2.0f, .biases = f->biases, .bias_count = 2, .seed = 255, .sample_index = 6,
    .stop_texts = f->stop_texts, .stop_text_count = 2, .scores = f->scores, .tokens = f->tokens, .alternatives = f->alternatives,
    .score_count = 1, .token_count = 2, .finish = VERBATIM_STOP};
  memset(f->request.chain, 0xab, 16);
  memset(f->request.request_digest, 0xcd, 16);
}

#endif

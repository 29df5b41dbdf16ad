/* common/config_keys.c - see common/config_keys.h. In the order in which a configuration is shown. */
#include "common/config_keys.h"

#define PLAN CLI_CONFIG_PLAN
#define SERVE CLI_CONFIG_SERVE
#define EVAL CLI_CONFIG_EVAL
#define DOCTOR CLI_CONFIG_DOCTOR
#define ENGINE (CLI_CONFIG_SERVE | CLI_CONFIG_EVAL | CLI_CONFIG_SCORE)
#define ALL (CLI_CONFIG_PLAN | ENGINE | DOCTOR)
#define PLANNER ALL, CLI_CONFIG_OF_PLANNER, NULL

const cli_config_key cli_config_keys[] = {
  {"model", ALL, 0, NULL},
  {"plan", ALL, 0, NULL},
  {"profile", ALL, 0, NULL},
  /* The plan's sizes and numerics. */
  {"max-num-seqs", PLANNER},
  {"max-num-batched-tokens", PLANNER},
  {"max-model-len", PLANNER},
  {"max-logit-rows", PLANNER},
  {"kv-pages", PLANNER},
  {"kv-memory-bytes", PLANNER},
  {"gpu-memory-utilization", PLANNER},
  {"device-memory-bytes", PLANNER},
  {"ladder", ALL, CLI_CONFIG_OF_PLANNER | CLI_CONFIG_IS_LIST | CLI_CONFIG_HAS_COMMAS, NULL},
  {"parity", PLANNER},
  {"expand-tokens", PLANNER},
  {"latent-norm-eps", PLANNER},
  {"kv-cache-dtype", PLANNER},
  {"kv-cache-scales", PLANNER},
  {"chunk-tokens", PLANNER},
  {"group-chunks", PLANNER},
  {"tensor-parallel-size", PLANNER},
  {"speculative-config.method", PLANNER},
  {"speculative-config.num-speculative-tokens", PLANNER},
  {"speculative-config.prompt-lookup-min", PLANNER},
  {"speculative-config.prompt-lookup-max", PLANNER},
  {"exchange-transport", PLANNER},
  {"divide-rows-from", PLANNER},
  {"attention-by-requests-from", PLANNER},
  {"structured-outputs", PLANNER},
  /* The engine. */
  {"device", ENGINE | DOCTOR, 0, "auto"},
  {"threads", ENGINE, 0, NULL},
  {"cache-dir", ENGINE | DOCTOR, 0, NULL},
  {"sha256", ENGINE, 0, NULL},
  {"stats", ENGINE, 0, NULL},
  {"verbose", ENGINE, 0, NULL},
  {"quiet", PLAN | ENGINE, 0, NULL},
  {"batch", ENGINE, 0, NULL},
  {"chunk", ENGINE, 0, NULL},
  {"slot-offset", ENGINE, 0, NULL},
  {"shuffle-pages", ENGINE, 0, NULL},
  {"no-prefix-cache", ENGINE, 0, NULL},
  {"no-drafts", ENGINE, 0, NULL},
  {"direct", ENGINE, 0, NULL},
  {"poison", ENGINE, 0, NULL},
  {"check-exchanges", ENGINE, 0, NULL},
  {"exchange-timeout", ENGINE, 0, NULL},
  /* The server. */
  {"host", SERVE | DOCTOR, 0, NULL},
  {"port", SERVE | DOCTOR, 0, NULL},
  {"served-model-name", SERVE, 0, NULL},
  {"chat-template", SERVE | EVAL, 0, NULL},
  {"reasoning-parser", SERVE, 0, NULL},
  {"tool-call-parser", SERVE, 0, NULL},
  {"generation-config", SERVE | EVAL, 0, "none"},
  {"api-key", SERVE, CLI_CONFIG_IS_SECRET, NULL},
  {"allowed-host", SERVE, CLI_CONFIG_IS_LIST, NULL},
  {"allowed-origin", SERVE, CLI_CONFIG_IS_LIST, NULL},
  {"max-body-bytes", SERVE, 0, NULL},
  {"max-waiting", SERVE, 0, NULL},
  {"max-connections", SERVE | DOCTOR, 0, NULL},
  {"request-memory-bytes", SERVE, 0, NULL},
  {"client-timeout", SERVE, 0, NULL},
  {"drain-timeout", SERVE, 0, NULL},
  {"receipt", SERVE, 0, NULL},
  {"access-log", SERVE, 0, NULL},
  {"request-log", SERVE, 0, NULL},
  {"ready-file", SERVE, 0, NULL},
  /* Evaluation. */
  {"tasks", EVAL, CLI_CONFIG_IS_LIST, NULL},
  {"output", EVAL, 0, NULL},
  {"output-format", EVAL, 0, NULL},
  {"limit", EVAL, 0, NULL},
  {"perturb", EVAL, CLI_CONFIG_IS_LIST, NULL},
  {"resume", EVAL, 0, NULL},
};

const uint32_t cli_config_keys_count = ARRAY_LEN(cli_config_keys);
_Static_assert(ARRAY_LEN(cli_config_keys) <= CLI_CONFIG_KEYS_MAX, "every key has its place");

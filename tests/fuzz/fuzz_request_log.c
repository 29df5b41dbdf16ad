/* fuzz_request_log.c - a line of a server's request log, as `verbatim replay-log` reads it. An accepted line has its fields in their
 * ranges,
 * and any result can be compared with it; an error leaves the output untouched. */
#include "engine/receipts/receipt.h"
#include "engine/serve/request_log.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  serve_request_log_line line, untouched;
  char text[SERVE_REQUEST_LOG_TEXT_BYTES];
  memset(&line, 0x5a, sizeof line);
  untouched = line;
  fail_clear();
  if (!fuzz_is_ok(serve_request_log_read((const char *)data, bytes, 1, &line))) {
    ASSERT(memcmp(&line, &untouched, sizeof line) == 0);
    return 0;
  }
  ASSERT(line.id && *line.id && strlen(line.id) < SERVE_REQUEST_ID_BYTES && line.model && strlen(line.numerics_id) == 32);
  ASSERT(line.kind <= SERVE_CHAT && line.http_status >= 100 && line.http_status <= 999 && (line.body || line.body_bytes == 0));
  for (enum verbatim_finish finish = VERBATIM_STOP; finish <= VERBATIM_DEADLINE; finish++) {
    const serve_choice choice = {.engine_request = {.finish = finish}};
    for (uint32_t i = 0; i < 3; i++) {
      serve_request_log_verdict verdict = serve_request_log_compare(&line, &choice, i, text);
      ASSERT(verdict <= SERVE_LOG_UNFINISHED && (verdict == SERVE_LOG_DIFFERS) == (*text != 0) && strlen(text) < sizeof text);
      ASSERT(i < json_array_size(line.results) || verdict == SERVE_LOG_DIFFERS);
    }
  }
  serve_request_log_close(&line);
  return 0;
}

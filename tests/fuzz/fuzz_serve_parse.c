/* fuzz_serve_parse.c - the bytes that a client sends on a connection, as the server reads them: heads and bodies, one after the other. The
 * first byte says how many bytes arrive at a time.
 *
 * The splits do not change what is read. An accepted head has a method, a path, a version and clean lines; a body is as long as its head
 * says; a refusal is an error that makes a JSON object. */
#include <string.h>
#include "engine/serve/parse.h"
#include "engine/serve/reply.h"
#include "fuzz.h"

typedef struct reader {
  serve_text log; /* the log: one line for a head, its body, one line for a refusal */
  char *bytes;
  size_t at, have, scanned;
  bool is_in_body, is_over;
  serve_message message;
  uint64_t left;
  serve_chunks chunks;
} reader;

static void end_with(reader *r, const serve_fault *fault) {
  serve_text out = {0};
  ASSERT((fault->http_status == 400 || fault->http_status == 505) && fault->code[0] && fault->message[0]);
  serve_reply_fault(fault, &out);
  json_t *reply = json_loadb(out.bytes, out.count, JSON_REJECT_DUPLICATES, NULL);
  ASSERT(json_is_object(reply));
  json_decref(reply);
  strbuf_close(&out);
  strbuf_addf(&r->log, "\n%u", fault->http_status);
  r->is_over = true;
}

static bool is_clean(const char *text) {
  for (const char *c = text ? text : ""; *c; c++)
    if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f) return false;
  return true;
}

static void check_head(const serve_message *m) {
  ASSERT(*m->head.method && !strpbrk(m->head.method, " \t") && is_clean(m->head.method) && m->head.url);
  ASSERT(is_clean(m->head.authorization) && is_clean(m->head.content_type) && is_clean(m->request_id));
  ASSERT(!m->head.content_length || strspn(m->head.content_length, "0123456789") == strlen(m->head.content_length));
  ASSERT(m->is_chunked == (m->head.transfer_encoding != NULL) && (m->head.content_length || m->body_bytes == 0));
}

/* Returns whether there may be more to read. */
static bool read_head(reader *r) {
  serve_fault fault = serve_parse_fault("");
  size_t head_bytes = 0;
  enum serve_parse found = serve_parse_find(r->bytes + r->at, r->have - r->at, &r->scanned, &head_bytes);
  if (found == SERVE_PARSE_MORE) return false;
  ASSERT(found == SERVE_PARSE_BAD || head_bytes <= r->have - r->at);
  if (found == SERVE_PARSE_BAD || !serve_parse_head(r->bytes + r->at, head_bytes, &r->message, &fault)) {
    end_with(r, &fault);
    return false;
  }
  check_head(&r->message);
  strbuf_add(&r->log, r->message.head.method, strlen(r->message.head.method));
  strbuf_add(&r->log, r->message.head.url, strlen(r->message.head.url));
  strbuf_addf(&r->log, " %u %d %d %d ", r->message.head.length_count, r->message.keeps_open, r->message.is_http10,
                 r->message.expects_continue);
  r->is_over = !serve_router_is_framed(&r->message.head);
  r->at += head_bytes;
  r->scanned = 0;
  r->is_in_body = true;
  r->left = r->message.body_bytes;
  r->chunks = (serve_chunks){0};
  return true;
}

static bool read_body(reader *r) {
  const char *part = r->bytes + r->at;
  size_t have = r->have - r->at, used = (size_t)min_u64(r->left, have), part_bytes = used;
  if (r->message.is_chunked) {
    enum serve_parse found = serve_parse_chunks(&r->chunks, part, have, &used, &part, &part_bytes);
    ASSERT(used <= have && (part_bytes == 0 || (part >= r->bytes + r->at && part + part_bytes <= r->bytes + r->at + used)));
    if (found == SERVE_PARSE_BAD) {
      const serve_fault fault = serve_parse_fault("");
      end_with(r, &fault);
      return false;
    }
    r->is_in_body = found == SERVE_PARSE_MORE;
  } else {
    r->left -= used;
    r->is_in_body = r->left > 0;
  }
  strbuf_add(&r->log, part, part_bytes);
  r->at += used;
  return used > 0 || !r->is_in_body;
}

/* The log of all that is read when that many bytes arrive each time; the caller frees it. */
static serve_text read_all(const uint8_t *data, size_t bytes, size_t step) {
  reader r = {.bytes = malloc(bytes + 1)};
  ASSERT(r.bytes);
  memcpy(r.bytes, data, bytes);
  while (r.have < bytes && !r.is_over) {
    r.have = r.have + step < bytes ? r.have + step : bytes;
    for (bool more = true; more && !r.is_over && r.at < r.have;) more = r.is_in_body ? read_body(&r) : read_head(&r);
  }
  free(r.bytes);
  ASSERT(!r.log.failed);
  return r.log;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (bytes < 2) return 0;
  serve_text whole = read_all(data + 1, bytes - 1, bytes), split = read_all(data + 1, bytes - 1, 1 + data[0] % 64u);
  ASSERT(whole.count == split.count && (whole.count == 0 || memcmp(whole.bytes, split.bytes, whole.count) == 0));
  strbuf_close(&whole);
  strbuf_close(&split);
  return 0;
}

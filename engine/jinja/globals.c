/* jinja/globals.c - see jinja/globals.h. */
#include "jinja/globals.h"
#include <stdio.h>
#include <string.h>
#include "jinja/write.h"

#define RANGE_MAX 100000 /* the sandbox's */

static status raise_exception(jinja_state *state, const jinja_value *a, jinja_value *out) {
  (void)out;
  strbuf words = {0};
  status result = jinja_write_text(state->memory, a[0], &words);
  if (result == OK)
    result = FAIL(ERR_FORMAT, "the chat template refuses this conversation: %.*s", (int)(words.count < 400 ? words.count : 400),
                  words.bytes ? words.bytes : "");
  strbuf_close(&words);
  return result;
}

static status make_range(jinja_state *state, const jinja_value *a, jinja_value *out) {
  int64_t bounds[3] = {0, 0, 1};
  size_t given = 0;
  for (; given < 3 && a[given].kind != JINJA_ABSENT; given++) {
    if (a[given].kind != JINJA_INTEGER && a[given].kind != JINJA_BOOL)
      return FAIL(ERR_FORMAT, "chat template: range: expected an int, found '%s'", jinja_value_type(a[given]));
    bounds[given] = a[given].kind == JINJA_BOOL ? a[given].truth : a[given].integer;
  }
  if (given == 0) return FAIL(ERR_FORMAT, "chat template: range expected at least 1 argument");
  if (given == 1) bounds[1] = bounds[0], bounds[0] = 0;
  int64_t step = bounds[2];
  if (step == 0) return FAIL(ERR_FORMAT, "chat template: range() arg 3 must not be zero");
  bool is_any = step > 0 ? bounds[0] < bounds[1] : bounds[0] > bounds[1];
  uint64_t span = !is_any ? 0 : step > 0 ? (uint64_t)bounds[1] - (uint64_t)bounds[0] : (uint64_t)bounds[0] - (uint64_t)bounds[1];
  uint64_t stride = step > 0 ? (uint64_t)step : (uint64_t)0 - (uint64_t)step, count = span ? (span - 1) / stride + 1 : 0;
  if (count > RANGE_MAX) return FAIL(ERR_LIMIT, "chat template: a range of more than %d numbers", RANGE_MAX);
  TRY(jinja_value_list(state->memory, JINJA_RANGE, (size_t)count, out));
  for (uint64_t i = 0; i < count; i++) out->list->items[i] = jinja_value_integer((int64_t)((uint64_t)bounds[0] + i * (uint64_t)step));
  return OK;
}

/* dict(x) and namespace(x): x is a dict, or pairs; then the keywords. */
static status fill(jinja_state *state, const jinja_arguments *arguments, jinja_kind kind, jinja_value *out) {
  TRY(jinja_value_dict(state->memory, kind, 0, out));
  for (size_t i = 0; i < arguments->count; i++) {
    jinja_value item = arguments->items[i];
    const jinja_name *name = arguments->names[i];
    if (name) {
      if (kind == JINJA_NAMESPACE && name->text.bytes[0] == '_')
        return FAIL(ERR_FORMAT, "chat template: a namespace's member begins with \"_\"");
      TRY(jinja_value_put(state->memory, out->dict, jinja_value_text(name->text.bytes, name->text.count), item));
      continue;
    }
    jinja_list pairs = {0};
    if (i > 0) return FAIL(ERR_FORMAT, "chat template: dict expected at most 1 argument");
    for (size_t k = 0; item.kind == JINJA_DICT && k < item.dict->count; k++) {
      item.dict->entries[k].was_read = true;
      TRY(jinja_value_put(state->memory, out->dict, item.dict->entries[k].key, item.dict->entries[k].value));
    }
    if (item.kind != JINJA_DICT) TRY(jinja_eval_items(state, item, &pairs));
    for (size_t k = 0; k < pairs.count; k++) {
      jinja_list pair = {0};
      TRY(jinja_eval_items(state, pairs.items[k], &pair));
      if (pair.count != 2) return FAIL(ERR_FORMAT, "chat template: dict: expected pairs, found %zu items", pair.count);
      TRY(jinja_value_put(state->memory, out->dict, pair.items[0], pair.items[1]));
    }
  }
  return OK;
}

static status make_dict(jinja_state *state, const jinja_arguments *arguments, jinja_value *out) {
  return fill(state, arguments, JINJA_DICT, out);
}
static status make_namespace(jinja_state *state, const jinja_arguments *arguments, jinja_value *out) {
  return fill(state, arguments, JINJA_NAMESPACE, out);
}

/* === Dates =================================================================================================== */

typedef struct date { int year, month, day, hour, minute, second; } date;

static int days_before(int year, int month) {
  static const int sums[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
  bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return sums[month - 1] + (is_leap && month > 2);
}

static bool read_date(const char *text, date *d) {
  int end = 0, end_of_time = 0;
  *d = (date){0};
  int found = sscanf(text, "%4d-%2d-%2d%n%*1[ T]%2d:%2d:%2d%n", &d->year, &d->month, &d->day, &end, &d->hour, &d->minute, &d->second,
                     &end_of_time);
  if (found < 3) return false;
  bool is_whole = text[end_of_time ? end_of_time : end] == 0;
  return is_whole && d->year >= 1 && d->month >= 1 && d->month <= 12 && d->day >= 1 && d->hour >= 0 && d->hour < 24 && d->minute >= 0 &&
         d->minute < 60 && d->second >= 0 && d->second < 60 &&
         days_before(d->year, d->month) + d->day <= days_before(d->year, d->month + 1);
}

static bool put_field(const date *d, char field, strbuf *out) {
  static const char *const months[] = {"January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                                       "November", "December"};
  static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  int of_year = days_before(d->year, d->month) + d->day, before = d->year - 1;
  int weekday = (int)((before * 365L + before / 4 - before / 100 + before / 400 + of_year) % 7);
  switch (field) {
    case 'Y': strbuf_addf(out, "%04d", d->year); break;
    case 'y': strbuf_addf(out, "%02d", d->year % 100); break;
    case 'm': strbuf_addf(out, "%02d", d->month); break;
    case 'd': strbuf_addf(out, "%02d", d->day); break;
    case 'e': strbuf_addf(out, "%2d", d->day); break;
    case 'j': strbuf_addf(out, "%03d", of_year); break;
    case 'H': strbuf_addf(out, "%02d", d->hour); break;
    case 'I': strbuf_addf(out, "%02d", d->hour % 12 ? d->hour % 12 : 12); break;
    case 'M': strbuf_addf(out, "%02d", d->minute); break;
    case 'S': strbuf_addf(out, "%02d", d->second); break;
    case 'p': strbuf_adds(out, d->hour < 12 ? "AM" : "PM"); break;
    case 'B': strbuf_adds(out, months[d->month - 1]); break;
    case 'b': strbuf_addf(out, "%.3s", months[d->month - 1]); break;
    case 'A': strbuf_adds(out, days[weekday]); break;
    case 'a': strbuf_addf(out, "%.3s", days[weekday]); break;
    case 'F': strbuf_addf(out, "%04d-%02d-%02d", d->year, d->month, d->day); break;
    case '%': strbuf_adds(out, "%"); break;
    default: return false;
  }
  return true;
}

/* The clock would make a prompt depend on more than the request, so the date is the request's. */
static status strftime_now(jinja_state *state, const jinja_value *a, jinja_value *out) {
  date d;
  strbuf text = {0};
  if (!state->today)
    return FAIL(ERR_UNSUPPORTED, "chat_template_kwargs.strftime_now: this model's template shows the day's date, and a prompt must not "
                "depend on the clock; hint: give the date, as \"2025-07-31\"%s",
                jinja_eval_name(state->tree, "date_string") ? ", or date_string, the text that is shown" : "");
  if (!read_date(state->today, &d))
    return FAIL(ERR_FORMAT, "chat_template_kwargs.strftime_now: expected a date as \"2025-07-31\" or \"2025-07-31 23:59:59\"");
  if (a[0].kind != JINJA_TEXT) return FAIL(ERR_FORMAT, "chat template: strftime_now: expected a format");
  for (size_t i = 0; i < a[0].text.count; i++) {
    const char *at = a[0].text.bytes + i;
    bool is_good = true;
    if (*at != '%') strbuf_add(&text, at, 1);
    else is_good = ++i < a[0].text.count && put_field(&d, at[1], &text);
    if (is_good) continue;
    strbuf_close(&text);
    return FAIL(ERR_UNSUPPORTED, "chat template: strftime_now: a field of its format is not implemented");
  }
  return jinja_value_take(state->memory, &text, out);
}

static status refuse(jinja_state *state, const jinja_arguments *arguments, jinja_value *out) {
  (void)state, (void)arguments, (void)out;
  return FAIL(ERR_UNSUPPORTED, "chat template: lipsum, cycler and joiner are not implemented");
}

const jinja_function *jinja_globals_find(jinja_text name) {
  static const jinja_function all[] = {
    {"raise_exception", "message", raise_exception, NULL}, {"range", "start,stop,step", make_range, NULL}, {"dict", "*", NULL, make_dict},
    {"namespace", "*", NULL, make_namespace}, {"strftime_now", "format", strftime_now, NULL}, {"lipsum", "*", NULL, refuse},
    {"cycler", "*", NULL, refuse}, {"joiner", "*", NULL, refuse}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++)
    if (jinja_value_is(name, all[i].name)) return &all[i];
  return NULL;
}

/* chat/kimi.h - the renderer of Moonshot's templates: Moonlight, Kimi-K2, K2-Thinking, K2.5.
 *
 * All have the shape <|im_...|>role<|im_middle|>content<|im_end|>. Variants differ in the default system message, in the names of calls and
 * in thinking. Read next: chat/kimi.c. */
#ifndef VERBATIM_CHAT_KIMI_H
#define VERBATIM_CHAT_KIMI_H
#include "chat/message.h"

enum {
  CHAT_KIMI_MOONLIGHT,
  CHAT_KIMI_K2,       /* calls numbered within their message; arguments always written as JSON */
  CHAT_KIMI_INSTRUCT, /* calls by their own ids; arguments that are text are unchanged */
  CHAT_KIMI_INSTRUCT_TIGHT, /* the same, with the tools' JSON without spaces */
  CHAT_KIMI_THINKING, /* as INSTRUCT_TIGHT; also writes the thinking after the last answer without calls */
  CHAT_KIMI_K25,      /* as THINKING, with a switch, and without a default system message */
};

chat_renderer chat_kimi_render;

#endif

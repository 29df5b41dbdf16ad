/* chat/kimi.h - the renderer of Moonshot's templates: Moonlight, Kimi-K2, K2-Thinking, K2.5.
 *
 * One shape, <|im_...|>role<|im_middle|>content<|im_end|>; variants differ in the system message that is there when none is given, in
 * how calls are named and in thinking. Read next: chat/kimi.c. */
#ifndef VERBATIM_CHAT_KIMI_H
#define VERBATIM_CHAT_KIMI_H
#include "chat/message.h"

enum {
  CHAT_KIMI_MOONLIGHT,
  CHAT_KIMI_K2,       /* calls numbered within their message, their arguments always written as JSON */
  CHAT_KIMI_INSTRUCT, /* calls by their own ids, text as it is */
  CHAT_KIMI_INSTRUCT_TIGHT, /* and the tools' JSON without spaces */
  CHAT_KIMI_THINKING, /* as INSTRUCT_TIGHT; thinking after the last answer without calls is shown */
  CHAT_KIMI_K25,      /* as THINKING, with a switch, and without a system message of its own */
};

chat_renderer chat_kimi_render;

#endif

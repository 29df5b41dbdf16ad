/* chat/deepseek.h - renderers of DeepSeek's templates, V2 to V3.1. See chat/message.h for their input.
 *
 * Each reproduces its template, oddities included: missing closing marks of a call, dropped thinking. Knows nothing of files, digests or
 * servers. Read next: chat/deepseek.c, chat/dsml.c. */
#ifndef VERBATIM_CHAT_DEEPSEEK_H
#define VERBATIM_CHAT_DEEPSEEK_H
#include "chat/message.h"

enum { /* variants of chat_deepseek_v3 */
  CHAT_DEEPSEEK_V25,
  CHAT_DEEPSEEK_V3,
  CHAT_DEEPSEEK_R1,       /* earlier answers without their thinking; calls are closed */
  CHAT_DEEPSEEK_R1_THINK, /* the same, and the prompt ends in <think> */
};
enum { CHAT_DEEPSEEK_V31, CHAT_DEEPSEEK_TERMINUS }; /* of chat_deepseek_v31 */

chat_renderer chat_deepseek_v2, chat_deepseek_v3, chat_deepseek_r1_0528, chat_deepseek_v31;

#endif

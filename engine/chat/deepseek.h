/* chat/deepseek.h - renderers of DeepSeek's templates, V2 to V3.2. See chat/message.h for what they are given.
 *
 * Each writes what its template writes, its oddities included: a call's closing marks that are missing, thinking that is left out.
 * Knows nothing of files, digests or servers. Read next: chat/deepseek.c, chat/dsml.c. */
#ifndef VERBATIM_CHAT_DEEPSEEK_H
#define VERBATIM_CHAT_DEEPSEEK_H
#include "chat/message.h"

enum { /* variants of chat_deepseek_v3 */
  CHAT_DEEPSEEK_V25,
  CHAT_DEEPSEEK_V3,
  CHAT_DEEPSEEK_R1,       /* earlier answers without their thinking, calls that are closed */
  CHAT_DEEPSEEK_R1_THINK, /* and a prompt that ends in <think> */
};
enum { CHAT_DEEPSEEK_V31, CHAT_DEEPSEEK_TERMINUS }; /* of chat_deepseek_v31 */

chat_renderer chat_deepseek_v2, chat_deepseek_v3, chat_deepseek_r1_0528, chat_deepseek_v31;

#endif

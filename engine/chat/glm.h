/* chat/glm.h - the renderer of Z.ai's templates: GLM-4.5 and 4.6, GLM-4.7, GLM-5.1.
 *
 * Thinking before the last user message is dropped unless the switch clear_thinking is off. Read next: chat/glm.c. */
#ifndef VERBATIM_CHAT_GLM_H
#define VERBATIM_CHAT_GLM_H
#include "chat/message.h"

enum { CHAT_GLM_45, CHAT_GLM_47, CHAT_GLM_51 };

chat_renderer chat_glm_render;

#endif

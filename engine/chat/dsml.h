/* chat/dsml.h - the renderer of DeepSeek-V3.2, whose vendor gives a program in place of a template: calls are marked up in DSML.
 *
 * Its thinking_mode is "thinking" when the switch thinking or enable_thinking is on, and drop_thinking is its default, true.
 * Read next: chat/dsml.c. */
#ifndef VERBATIM_CHAT_DSML_H
#define VERBATIM_CHAT_DSML_H
#include "chat/message.h"

chat_renderer chat_dsml_render;

#endif

/* chat/dsml.h - the renderer of DeepSeek-V3.2, whose vendor ships a program instead of a template; calls are marked up in DSML.
 *
 * Its thinking_mode is "thinking" if the switch thinking or enable_thinking is on; drop_thinking has its default, true. Read next:
 * chat/dsml.c. */
#ifndef VERBATIM_CHAT_DSML_H
#define VERBATIM_CHAT_DSML_H
#include "chat/message.h"

chat_renderer chat_dsml_render;

#endif

/* chat/deepseek_v32.h - a template for DeepSeek-V3.2, whose vendor ships a program instead of one.
 *
 * Written for this project; what the vendor's encode_messages gives is in tests/data/chat/deepseek_v32.json. Its thinking_mode is
 * "thinking" if thinking or enable_thinking is true; drop_thinking has its default, true. */
#ifndef VERBATIM_CHAT_DEEPSEEK_V32_H
#define VERBATIM_CHAT_DEEPSEEK_V32_H

extern const char chat_deepseek_v32_tools[], chat_deepseek_v32_turns[]; /* one after the other, the template */

#endif

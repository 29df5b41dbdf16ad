#!/usr/bin/env python3
"""A conversation in Python: each message is answered after all before it, token by token.

  tests/examples/chat.py PLAN MODEL_DIR "first message" "second message" [--device cpu] [--max-tokens N]

Uses the package in tools/python; tests/unit/test_python.py runs this program and compares its answers with those of `verbatim chat`.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "python"))
import verbatim  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("plan")
    parser.add_argument("model_dir")
    parser.add_argument("messages", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-tokens", type=int, default=200)
    args = parser.parse_args()
    conversation = []
    with verbatim.Engine(args.plan, args.model_dir, device=args.device) as engine:
        for message in args.messages:
            conversation.append({"role": "user", "content": message})
            prompt = engine.encode(engine.chat_prompt(conversation), add_special=False)
            with engine.stream(prompt, max_tokens=args.max_tokens) as stream:
                for piece in stream:
                    print(piece.text, end="", flush=True)
                print()
            conversation.append({"role": "assistant", "content": stream.completion.text})
            # Without streaming, the loop's body is: answer = engine.chat(conversation, max_tokens=200).text


if __name__ == "__main__":
    main()

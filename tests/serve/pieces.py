"""pieces.py - a model whose answers a check can write: letters of a prompt are pieces of answers, such as a mark or half a call.

The shipped model copies texts. With these pieces in its tokenizer it answers with whatever the prompt spells, in real tokens. Owns the
pieces and the model's folder; knows no client and no server. Read next: check_answers.py, check_clients.py.
"""
import json
import os

import server as serving

# The letters that are pieces. Special tokens have no text in a reply: as marks they are read all the same.
PIECES = {"A": "<think>", "B": " I look. ", "C": "</think>", "D": "<tool_call>", "E": '{"name": "weather", "arguments": {"city": "',
          "F": "Łódź", "G": '"}}', "H": "</tool_call>", "I": "\n", "J": '{"name": "nowhere", "arguments": {"city": "',
          "K": "<|channel|>", "L": "analysis", "M": "<|message|>", "N": "<|end|>", "O": "<|start|>", "P": "assistant",
          "Q": "commentary to=functions.weather ", "R": "<|constrain|>", "S": "json", "T": '{"city": "', "U": '"}', "V": "<|call|>",
          "W": "final"}
SPECIAL = "DHKMNORV"
THOUGHT, CALL, OTHER = "ABBC", "IDEFGH", "DJFGH"
ANALYSIS, TO_WEATHER, FINAL = "KLMBN", "KQRSMTFUV", "KWMB"  # messages of harmony


def spell(letters):
    return "".join(PIECES[letter] for letter in letters)


def make_model(folder, template):
    """The shipped model with the pieces in its tokenizer, and this template."""
    for name in ("config.json", "model.safetensors"):
        os.symlink(os.path.join(serving.MODEL_DIR, name), os.path.join(folder, name))
    with open(os.path.join(serving.MODEL_DIR, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    with open(os.path.join(serving.MODEL_DIR, "tokenizer_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    vocab = tokenizer["model"]["vocab"]
    for letter, text in PIECES.items():
        number = vocab[text] = vocab[letter]
        vocab[letter] = vocab.pop("".join(tokenizer["model"]["merges"].pop()))  # every byte needs a token: that of the last merge
        tokenizer["added_tokens"].append({"id": number, "content": text, "special": letter in SPECIAL, "single_word": False,
                                          "lstrip": False, "rstrip": False, "normalized": False})
    config["chat_template"] = template
    for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file)

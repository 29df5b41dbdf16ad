#!/usr/bin/env python3
"""train_tiny_mtp.py - trains the prediction layer of the shipped tiny model, whose own weights stay as they are.

  python3 tools/train_tiny_mtp.py --out DIR --minutes M [--device cpu --steps 3 --rows 4 --workers 1]

Reads tests/tiny, writes DIR/model-mtp.safetensors (the tensors of layer 4, with eh_proj, enorm, hnorm and shared_head.norm) and prints how
often its drafts are the tokens that the model chooses on the held-out items: the first, the second after a right first, and so on.
The layer sees h_i, the residual stream before the final norm, and the embedding of token i + 1, and guesses token i + 2; further guesses
run it on its own residual stream. Data, tokenizer and the layer itself are those of train_tiny.py.
"""
import os
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_tasks  # noqa: E402
import train_tiny as tiny  # noqa: E402

PASSES = 3  # guesses that are trained, each from the stream of the one before
PASS_WEIGHT = (1.0, 0.6, 0.4)


def load_trunk(folder):
    """TinyModel with the weights of a folder."""
    tensors, model = load_file(os.path.join(folder, "model.safetensors")), tiny.TinyModel()
    with torch.no_grad():
        for name, parameter in (("model.embed_tokens", model.embed), ("model.norm", model.norm), ("lm_head", model.head)):
            parameter.copy_(tensors[name + ".weight"])
        for index, layer in enumerate(model.layers):
            at = f"model.layers.{index}."
            for name, attribute, part in tiny.layer_parts(layer):
                tiny.part_of(layer, attribute, part).copy_(tensors[f"{at}{name}.weight"])
            if not layer.dense:
                layer.bias.copy_(tensors[at + "mlp.gate.e_score_correction_bias"])
    return model.requires_grad_(False)


class Prediction(torch.nn.Module):
    """The prediction layer; the trunk is not one of its modules, so that only the layer is trained."""

    def __init__(self, trunk):
        super().__init__()
        hidden, self.trunk = tiny.CONFIG["hidden_size"], [trunk]
        self.enorm, self.hnorm, self.norm = tiny.ones(hidden), tiny.ones(hidden), tiny.ones(hidden)
        self.eh_proj = tiny.matrix(hidden, 2 * hidden)
        self.layer = trunk.make_layer(tiny.CONFIG["num_hidden_layers"]).requires_grad_(True)

    def balance(self, rate):
        self.layer.bias.add_(torch.sign(self.layer.load.mean() - self.layer.load) * rate)

    def run(self, x, following, frame, dtype):
        """The stream after the layer, from the stream x of token i and the id of token i + 1."""
        trunk = self.trunk[0]
        both = torch.cat([tiny.rms_norm(trunk.embedding(following, dtype), self.enorm), tiny.rms_norm(x, self.hnorm)], dim=-1)
        return trunk.run_layer(self.layer, tiny.linear(both, self.eh_proj), frame)

    def logits(self, x):
        return tiny.linear(tiny.rms_norm(x, self.norm), self.trunk[0].head)

    def passes(self, ids, document, dtype):
        """ids, document [rows, tokens]; yields (pass, logits of the token that is pass + 2 behind, for each position that has it)."""
        trunk = self.trunk[0]
        with torch.no_grad():
            x = trunk.hidden(ids, document, dtype)
        for n in range(PASSES):
            x = self.run(x[:, :ids.shape[1] - 1 - n], ids[:, 1 + n:], trunk.frame(document[:, :ids.shape[1] - 1 - n], dtype), dtype)
            yield n, self.logits(x)

    def chosen(self, ids, document, dtype):
        """What the trunk chooses at every position."""
        with torch.no_grad():
            return self.trunk[0](ids, document, dtype).argmax(-1)

    def loss(self, ids, document, weight, dtype):
        """Cross-entropy of every pass to the trunk's choices, over answer tokens whose tokens before are of the same document."""
        ids, document, weight = ids[:, :-1], document[:, :-1], weight[:, 1:]
        target, total = self.chosen(ids, document, dtype), 0.0
        for n, logits in self.passes(ids, document, dtype):
            ahead = n + 1
            good = (document[:, :-ahead] == document[:, ahead:]) & (weight[:, ahead:] == 2)
            entropy = F.cross_entropy(logits.flatten(0, 1).float(), target[:, ahead:].flatten(), reduction="none")
            share = good.flatten().float()
            total = total + PASS_WEIGHT[n] * (entropy * share).sum() / share.sum().clamp(min=1)
        return total

    def hf_tensors(self):
        at = f"model.layers.{tiny.CONFIG['num_hidden_layers']}."
        own = {"enorm": self.enorm, "hnorm": self.hnorm, "eh_proj": self.eh_proj, "shared_head.norm": self.norm}
        return tiny.layer_tensors(tiny.CONFIG["num_hidden_layers"], self.layer) | {
            f"{at}{name}.weight": tiny.exported(tensor) for name, tensor in own.items()}


@torch.no_grad()
def acceptance(prediction, encoded, device, dtype):
    """Share of right guesses of each pass, where those of the passes before were right."""
    prediction.eval()
    ids, document, weight, _ = tiny.pack(encoded, 1 + sum(len(p) + len(a) for p, a in encoded) // (tiny.ROW_TOKENS - 128))
    hits, tries = [0] * PASSES, [0] * PASSES
    for start in range(0, len(ids), 64):
        part = slice(start, start + 64)
        tokens = torch.from_numpy(ids[part, :-1].astype("int64")).to(device)
        documents = torch.from_numpy(document[part, :-1].astype("int64")).to(device)
        weights = torch.from_numpy(weight[part, 1:].astype("int64")).to(device)
        target, alive = prediction.chosen(tokens, documents, dtype), None
        for n, logits in prediction.passes(tokens, documents, dtype):
            ahead, width = n + 1, logits.shape[1]
            good = (documents[:, :width] == documents[:, ahead:]) & (weights[:, ahead:] == 2)
            good &= True if alive is None else alive[:, :width]
            alive = good & (logits.argmax(-1) == target[:, ahead:])
            hits[n] += int(alive.sum())
            tries[n] += int(good.sum())
    prediction.train()
    return [h / max(t, 1) for h, t in zip(hits, tries)]


def train(args, trainer, batches, encoded):
    begin = last = time.time()
    step = 0
    while True:
        done = step / args.steps if args.steps else (time.time() - begin) / (60 * args.minutes)
        if done >= 1:
            return
        trainer.step(batches.get(timeout=120), tiny.schedule(args, done))
        step += 1
        if step % 16 == 0 and trainer.device == "cuda":
            torch.cuda.synchronize()
        if time.time() - last > args.print_seconds:
            shares = acceptance(trainer.model, encoded, trainer.device, trainer.dtype)
            print(f"{time.time() - begin:6.1f} s  step {step:6d}  right: {' '.join(f'{s:.3f}' for s in shares)}", flush=True)
            last = time.time()


def main():
    args = tiny.arguments()
    tokenizer, items = tiny.tokenizer_make(), tiny_tasks.held_out()
    encoded = tiny.encode_pairs(tokenizer, [(i["prompt"], i["answer"]) for i in items])
    batches, workers = tiny.start_data(args, tokenizer, items)
    torch.manual_seed(args.seed)
    trunk = load_trunk("tests/tiny").to(args.device)
    prediction = Prediction(trunk).to(args.device).train()
    print(f"torch {torch.__version__}, {sum(p.numel() for p in prediction.parameters()):,} parameters", flush=True)
    trainer = tiny.Trainer(prediction, args.rows, args.device, args.rate)
    if args.device == "cuda" and not args.no_graph:
        trainer.load(batches.get(timeout=120))
        trainer.capture()
    train(args, trainer, batches, encoded)
    for worker in workers:
        worker.terminate()
    with torch.no_grad():
        for parameter in prediction.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    shares = acceptance(prediction, encoded, args.device, trainer.dtype)
    print("held out, right guesses by place:", " ".join(f"{s:.3f}" for s in shares))
    os.makedirs(args.out, exist_ok=True)
    save_file(prediction.hf_tensors(), os.path.join(args.out, "model-mtp.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main()

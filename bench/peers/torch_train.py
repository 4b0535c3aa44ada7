"""A step of a model of jccl train in PyTorch eager: on the CPU in float32, on a GPU by autocast to bfloat16.

usage: torch_train.py cpu|cuda jccl|gpt2 STEPS THREADS LAYERS HIDDEN HEADS CONTEXT BATCH VOCABULARY [FOLDER TEXT]
Prints the median time of a step in milliseconds, of the steps after the first, as jccl train does. With --version
PyTorch's version alone. With FOLDER, gpt2 alone: writes the initial weights there as transformers does, trains
on the batches that jccl train --seed 1 draws from the characters of TEXT, and prints the loss of each step too.
"""

import json
import math
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

if sys.argv[1:] == ["--version"]:
    print("PyTorch", torch.__version__)
    sys.exit()
device = sys.argv[1]
gpt2 = sys.argv[2] == "gpt2"
steps, threads, layers, hidden, heads, context, batch, vocabulary = map(int, sys.argv[3:11])
folder, text = sys.argv[11:] if len(sys.argv) > 11 else (None, None)
torch.set_num_threads(threads)
torch.manual_seed(1)


class Norm(nn.Module):
    """LayerNorm with gain and bias, or the root mean square alone."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LayerNorm(hidden, eps=1e-5) if gpt2 else None

    def forward(self, x):
        return self.layer(x) if gpt2 else functional.rms_norm(x, (hidden,), eps=1e-6)


def activation(x):
    return functional.gelu(x, approximate="tanh") if gpt2 else functional.relu(x).square()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=gpt2)
        self.out = nn.Linear(hidden, hidden, bias=gpt2)
        self.w1 = nn.Linear(hidden, 4 * hidden, bias=gpt2)
        self.w2 = nn.Linear(4 * hidden, hidden, bias=gpt2)

    def forward(self, x):
        q, k, v = (
            y.view(batch, context, heads, hidden // heads).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).split(hidden, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, context, hidden))
        return x + self.w2(activation(self.w1(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(vocabulary, hidden)
        self.position = nn.Embedding(context, hidden)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = Norm()
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)
        if gpt2:
            self.head.weight = self.token.weight

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def transposed_names(state):
    """The tensors by the names and in the layout of transformers, whose matrices are x W."""
    names = {
        "token": "wte", "position": "wpe", "norm.layer": "ln_f", "norm1.layer": "ln_1",
        "norm2.layer": "ln_2", "qkv": "attn.c_attn", "out": "attn.c_proj", "w1": "mlp.c_fc",
        "w2": "mlp.c_proj",
    }
    for name, tensor in state.items():
        path, kind = name.rsplit(".", 1)
        block, _, part = path.removeprefix("blocks.").partition(".") if "blocks" in path else ("", "", path)
        if part != "head":
            matrix = kind == "weight" and part in ("qkv", "out", "w1", "w2")
            prefix = f"transformer.h.{block}." if block else "transformer."
            yield f"{prefix}{names[part]}.{kind}", (tensor.T if matrix else tensor).contiguous()


def save(model):
    from safetensors.torch import save_file

    os.makedirs(folder, exist_ok=True)
    config = dict(
        model_type="gpt2", architectures=["GPT2LMHeadModel"], activation_function="gelu_new",
        n_embd=hidden, n_head=heads, n_layer=layers, n_positions=context, vocab_size=vocabulary,
        layer_norm_epsilon=1e-5, tie_word_embeddings=True,
    )
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)
    save_file(dict(transposed_names(model.state_dict())), f"{folder}/model.safetensors", {"format": "pt"})


def batches():
    if text is None:
        while True:
            yield torch.randint(vocabulary, (batch, context + 1))
    sys.path.append(os.path.join(os.path.dirname(__file__), "../src/test/python"))
    from batches import mix  # how the trainer draws the places of its samples

    with open(text, encoding="utf-8") as file:
        characters = file.read()
    alphabet = {c: i for i, c in enumerate(sorted(set(characters)))}
    corpus = torch.tensor([alphabet[c] for c in characters])
    sample = 1
    while True:
        places = [mix(1 + sample + s) % (len(corpus) - context) for s in range(batch)]
        sample += batch
        yield torch.stack([corpus[p : p + context + 1] for p in places])


model = Model()
if folder is not None:
    save(model)
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4 if folder else 3e-3, fused=True)
times = []
losses = []
for _, tokens in zip(range(steps), batches()):
    start = time.perf_counter()
    tokens = tokens.to(device)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())  # JCCL reads the loss in each step too
    if not math.isfinite(losses[-1]):
        sys.exit(f"the loss is {losses[-1]}")
    times.append(time.perf_counter() - start)
if folder is not None:
    print(*losses)
print(f"{statistics.median(times[1:] or times) * 1e3:.2f}")

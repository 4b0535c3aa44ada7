"""A step of the model of jccl train in PyTorch eager on the CPU, in float32.

usage: torch_train.py STEPS THREADS [LAYERS HIDDEN HEADS CONTEXT BATCH VOCABULARY]
Prints the median time of a step in milliseconds, of the steps after the first fifth. With --version
PyTorch's version alone.
"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

if sys.argv[1:] == ["--version"]:
    print("PyTorch", torch.__version__)
    sys.exit()
steps, threads = int(sys.argv[1]), int(sys.argv[2])
layers, hidden, heads, context, batch, vocabulary = map(int, sys.argv[3:] or (4, 128, 4, 64, 16, 28))
torch.set_num_threads(threads)
torch.manual_seed(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.w1 = nn.Linear(hidden, 4 * hidden, bias=False)
        self.w2 = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x):
        q, k, v = (
            y.view(batch, context, heads, hidden // heads).transpose(1, 2)
            for y in self.qkv(norm(x)).split(hidden, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, context, hidden))
        return x + self.w2(functional.relu(self.w1(norm(x))).square())


def norm(x):
    return functional.rms_norm(x, (hidden,), eps=1e-6)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(vocabulary, hidden)
        self.position = nn.Embedding(context, hidden)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return self.head(norm(x))


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
times = []
for _ in range(steps):
    tokens = torch.randint(vocabulary, (batch, context + 1))
    start = time.perf_counter()
    logits = model(tokens[:, :-1])
    loss = functional.cross_entropy(logits.reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not torch.isfinite(loss.detach()):  # reads the loss, as JCCL does in each step
        sys.exit(f"the loss is {loss.item()}")
    times.append(time.perf_counter() - start)
print(f"{statistics.median(times[len(times) // 5:]) * 1e3:.2f}")

"""A step of a model of jccl train in PyTorch eager: on the CPU in float32, on a GPU by autocast to bfloat16.

usage: torch_train.py cpu|cuda jccl|gpt2 STEPS THREADS LAYERS HIDDEN HEADS CONTEXT BATCH VOCABULARY
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
device = sys.argv[1]
gpt2 = sys.argv[2] == "gpt2"
steps, threads, layers, hidden, heads, context, batch, vocabulary = map(int, sys.argv[3:])
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


model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
times = []
for _ in range(steps):
    tokens = torch.randint(vocabulary, (batch, context + 1))
    start = time.perf_counter()
    tokens = tokens.to(device)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not torch.isfinite(loss.detach()):  # reads the loss, as JCCL does in each step
        sys.exit(f"the loss is {loss.item()}")
    times.append(time.perf_counter() - start)
print(f"{statistics.median(times[len(times) // 5:]) * 1e3:.2f}")

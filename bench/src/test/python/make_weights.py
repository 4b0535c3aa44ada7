"""The trainer's model in PyTorch: writes the files in src/test/resources/train.

pip install torch safetensors, then from the folder bench:
    python src/test/python/make_weights.py src/test/resources/train
With two more arguments, a folder that `jccl train --text text.txt ... --save` wrote and a number of
steps: goes on from there in PyTorch and prints the losses.
"""

import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from batches import CONTEXT, alphabet, batch, text

LAYERS, HIDDEN, HEADS, RATE, STEPS = 2, 16, 2, 0.003, 10

folder = pathlib.Path(sys.argv[1])


def norm(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def logits(w, ids):
    x = w["embedding.token"][ids] + w["embedding.position"][: ids.shape[1]]
    for i in range(LAYERS):
        q, k, v = (norm(x) @ w[f"block{i}.qkv"]).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).flatten(2) @ w[f"block{i}.out"]
        x = x + F.relu(norm(x) @ w[f"block{i}.w1"]).square() @ w[f"block{i}.w2"]
    return norm(x) @ w["head.logits"]


def train(w, optimizer, first, steps):
    losses = []
    for step in range(first, first + steps):
        ids, targets = batch(step)
        loss = F.cross_entropy(logits(w, ids).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if len(sys.argv) > 2:
    saved = pathlib.Path(sys.argv[2])
    w = {n: t.requires_grad_() for n, t in load_file(saved / "model.safetensors").items()}
    state = load_file(saved / "optimizer.safetensors")
    with safe_open(saved / "optimizer.safetensors", "pt") as f:
        done = int(f.metadata()["jccl.steps"])
    adam = torch.optim.Adam(w.values(), lr=RATE)
    for name, p in w.items():
        adam.state[p] = {
            "step": torch.tensor(float(done)),
            "exp_avg": state[name + ".moment0"],
            "exp_avg_sq": state[name + ".moment1"],
        }
    print(*train(w, adam, done, int(sys.argv[3])))
    sys.exit()

torch.manual_seed(7)
shapes = {"embedding.token": (len(alphabet), HIDDEN), "embedding.position": (CONTEXT, HIDDEN)}
for i in range(LAYERS):
    shapes |= {
        f"block{i}.qkv": (HIDDEN, 3 * HIDDEN),
        f"block{i}.out": (HIDDEN, HIDDEN),
        f"block{i}.w1": (HIDDEN, 4 * HIDDEN),
        f"block{i}.w2": (4 * HIDDEN, HIDDEN),
    }
shapes["head.logits"] = (HIDDEN, len(alphabet))
w = {n: (torch.randn(s) / math.sqrt(s[0])).requires_grad_() for n, s in shapes.items()}
(folder / "text.txt").write_text(text)
save_file({n: t.detach() for n, t in w.items()}, folder / "start.safetensors")
save_file(
    {n: t.detach().to(torch.bfloat16) for n, t in w.items()}, folder / "start-bf16.safetensors"
)
adam = torch.optim.Adam(w.values(), lr=RATE)
losses = train(w, adam, 0, STEPS)
after = {n: t.detach() for n, t in w.items()}
for name, p in w.items():
    after[name + ".moment0"] = adam.state[p]["exp_avg"]
    after[name + ".moment1"] = adam.state[p]["exp_avg_sq"]
after["losses"] = torch.tensor(losses, dtype=torch.float64)
save_file(after, folder / "after.safetensors")
print(*losses)

"""One step of torch.optim.Adam(fused=True) on the CPU, as adam_ceiling.c counts it.

usage: torch_adam.py THREADS REPETITIONS COUNT
Prints the repetitions' median time in milliseconds; with --version PyTorch's version alone.
"""

import statistics
import sys
import time

import torch

if sys.argv[1:] == ["--version"]:
    print("PyTorch", torch.__version__)
    sys.exit()
threads, repetitions, count = map(int, sys.argv[1:])
torch.set_num_threads(threads)
index = torch.arange(count)
parameter = torch.nn.Parameter((index % 1000).float() * 1e-3)
parameter.grad = (index % 999 - 499).float() * 1e-3
del index
adam = torch.optim.Adam([parameter], lr=1e-3, fused=True)
millis = []
for repetition in range(-2, repetitions):
    start = time.perf_counter()
    adam.step()
    if repetition >= 0:
        millis.append((time.perf_counter() - start) * 1e3)
print(f"{statistics.median(millis):.3f}")

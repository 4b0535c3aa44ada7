"""torch.mm on one core, as jccl matmul-loop counts it.

usage: torch_matmul.py SAMPLES MxKxN[t]...
Prints each shape with the least CPU time of a product in microseconds; t: the right factor is the
transpose of a stored matrix. With --version PyTorch's version alone.
"""

import math
import re
import sys
import time

import torch

if sys.argv[1:] == ["--version"]:
    print("PyTorch", torch.__version__)
    sys.exit()
torch.set_num_threads(1)
samples = int(sys.argv[1])
for shape in sys.argv[2:]:
    m, k, n, turned = re.fullmatch(r"(\d+)x(\d+)x(\d+)(t?)", shape).groups()
    m, k, n = int(m), int(k), int(n)
    a = (torch.arange(m * k) % 17).reshape(m, k) / 17
    b = (torch.arange(k * n) % 13) / 13
    b = b.reshape(n, k).t() if turned else b.reshape(k, n)
    c = torch.empty(m, n)
    times = math.ceil(min(max(1e9 / (m * k * n), 1), max(1e8 / (k * n), 1)))
    for _ in range(times):
        torch.mm(a, b, out=c)
    least = math.inf
    for _ in range(samples):
        start = time.thread_time()
        for _ in range(times):
            torch.mm(a, b, out=c)
        least = min(least, (time.thread_time() - start) / times)
    print(f"{shape} {least * 1e6:.3f}", flush=True)

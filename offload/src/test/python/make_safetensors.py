"""Writes the files in src/test/resources/safetensors, with the libraries that define the format.

pip install torch safetensors, then from the folder offload:
    python src/test/python/make_safetensors.py src/test/resources/safetensors
With a second argument, a file that JCCL wrote: loads it and prints names, types, shapes and sums.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

folder = pathlib.Path(sys.argv[1])
if len(sys.argv) > 2:
    for name, tensor in sorted(load_file(sys.argv[2]).items()):
        total = tensor.to(torch.float64).sum().item()
        print(name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), total)
    sys.exit()

# Element i of a float tensor is i / 8 - 1: exact in every type.
ramp = torch.arange(24) / 8 - 1
save_file(
    {
        "f32": ramp.reshape(4, 6).clone(),
        "f16": ramp.reshape(2, 3, 4).to(torch.float16),
        "bf16": ramp.to(torch.bfloat16),
        "i64": torch.tensor([-3, 1 << 40]),
        "truth": torch.tensor([True, False, True]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 7),
        "gr\u00f6\u00dfe \"1\"": torch.tensor([1.0]),
    },
    folder / "types.safetensors",
    metadata={"format": "pt", "note": "made by make_safetensors.py"},
)

parts = {
    "model-00001-of-00002.safetensors": {"first": torch.full((2, 2), 1.5)},
    "model-00002-of-00002.safetensors": {"second": torch.full((3,), -2.0, dtype=torch.bfloat16)},
}
for file, tensors in parts.items():
    save_file(tensors, folder / file, metadata={"format": "pt"})
places = {name: file for file, tensors in parts.items() for name in tensors}
index = {"metadata": {"total_size": 22}, "weight_map": places}
(folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")

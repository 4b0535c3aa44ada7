"""Small models of transformers: writes the folders in src/test/resources/hub.

pip install torch safetensors transformers, then from the folder bench:
    python src/test/python/make_hub_weights.py src/test/resources/hub
Each folder has a model as transformers saves it, and expected.safetensors: the logits of the first
batch, the losses of ten steps of Adam, and all parameters after them. With one more argument, a
folder that `jccl train --load ... --save` wrote: loads it and prints the loss of the first batch.
"""

import pathlib
import shutil
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
from transformers import LlamaConfig, LlamaForCausalLM

from batches import CONTEXT, alphabet, batch

LAYERS, HIDDEN, HEADS, RATE, STEPS = 2, 16, 4, 0.003, 10
# More than the text has, as of a model with a vocabulary of its own.
VOCABULARY = len(alphabet) + 3


def loss(model, step):
    ids, targets = batch(step)
    logits = model(input_ids=ids).logits
    return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


if len(sys.argv) > 2:
    saved = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32)
    print(loss(saved, 0)[1].item())
    sys.exit()

gpt2 = GPT2Config(
    vocab_size=VOCABULARY, n_positions=2 * CONTEXT, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS,
    resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
)
llama = dict(
    vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=40, num_hidden_layers=LAYERS,
    num_attention_heads=HEADS, num_key_value_heads=2, max_position_embeddings=2 * CONTEXT,
    rms_norm_eps=1e-6,
)
models = {
    "gpt2": (GPT2LMHeadModel, gpt2),
    "llama": (LlamaForCausalLM, LlamaConfig(**llama)),
    "llama-tied": (LlamaForCausalLM, LlamaConfig(**llama, tie_word_embeddings=True)),
}
for name, (kind, config) in models.items():
    torch.manual_seed(7)
    model = kind(config)
    with torch.no_grad():
        # What begins as 0 or 1 has to differ from that, or nobody would notice its absence.
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    folder = pathlib.Path(sys.argv[1]) / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    expected = {"logits": loss(model, 0)[0].detach()}
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        _, now = loss(model, step)
        adam.zero_grad()
        now.backward()
        adam.step()
        losses.append(now.item())
    expected["losses"] = torch.tensor(losses, dtype=torch.float64)
    tied = model.config.tie_word_embeddings
    for key, p in model.state_dict().items():
        if not (tied and key == "lm_head.weight"):
            expected[key] = p.detach().clone()
    save_file(expected, folder / "expected.safetensors")
    print(name, *losses)

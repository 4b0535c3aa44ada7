"""The text and the batches that the models of the tests are trained on, as the trainer draws them."""

import torch

CONTEXT, BATCH, SEED = 8, 4, 1
MASK = (1 << 64) - 1

sentences = ["the cat saw a bird", "a bird sang to the cat", "no dog was near", "so all was well"]
text = ". ".join(sentences * 4) + "."
alphabet = "".join(sorted(set(text)))
tokens = torch.tensor([alphabet.index(c) for c in text])


def mix(z):
    """SplitMix64, as the trainer draws the places of its samples."""
    z = z * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def batch(step):
    places = [
        mix(SEED + step * BATCH + s + 1) % (len(tokens) - CONTEXT) for s in range(BATCH)
    ]
    rows = torch.stack([tokens[p : p + CONTEXT + 1] for p in places])
    return rows[:, :-1], rows[:, 1:]

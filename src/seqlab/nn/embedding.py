"""Token embeddings, which may also be the output layer (tied weights), and what else a source is made of.

B rows · N positions · D width · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TokenEmbedding(nn.Embedding):
    """E[w], and with tied weights also the logits E h (Press & Wolf 2017, https://arxiv.org/abs/1608.05859)."""

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.weight)


class Conditions(nn.Module):
    """What a source is made of beside words: ids from V on are labels, and places of numbers.

    x = L[w − V] for a label, and L[w − V] + value · M[w − V] for the place of a number: every number of a vector is a
    position of its own, with a name and a size, that attention can look at.
    """

    def __init__(self, vocab_size: int, extras: int, width: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.names = nn.Embedding(extras, width) if extras else None
        self.sizes = nn.Embedding(extras, width) if extras else None

    def forward(self, source: Mapping[str, Tensor], words: nn.Module) -> Tensor:
        """`tokens` (B, N), and `values` (B, N) where there are numbers → (B, N, D)."""
        tokens = source["tokens"]
        if self.names is None or self.sizes is None:
            return words(tokens)  # type: ignore[no-any-return]
        extra = (tokens - self.vocab_size).clamp(min=0)
        special = self.names(extra)
        if "values" in source:
            special = special + source["values"][..., None] * self.sizes(extra)
        is_word = (tokens < self.vocab_size)[..., None]
        return torch.where(is_word, words(tokens.clamp(max=self.vocab_size - 1)), special)

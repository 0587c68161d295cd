"""Token embeddings, which may also serve as the output layer (tied weights), and embeddings of labels and numbers.

B rows · N positions · D width · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from seqlab.nn.linear_map import linear


class TokenEmbedding(nn.Embedding):
    """E[w] and, with tied weights, also the logits E h (Press & Wolf 2017, https://arxiv.org/abs/1608.05859)."""

    compiled_from: int | None = None
    """As in `LinearMap`."""

    def logits(self, states: Tensor) -> Tensor:
        return linear(states, self.weight, None, self.compiled_from)


class Conditions(nn.Module):
    """Embeds sources that contain labels and numbers besides words: ids from V on.

    x = L[w − V] for a label and L[w − V] + value · M[w − V] for a number, so that every number of a vector has its own
    position, with a name and a size, for attention to look at.
    """

    def __init__(self, vocab_size: int, extras: int, width: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.names = nn.Embedding(extras, width) if extras else None
        self.sizes = nn.Embedding(extras, width) if extras else None

    def forward(self, source: Mapping[str, Tensor], words: nn.Module) -> Tensor:
        """`tokens` (B, N), and `values` (B, N) if there are numbers → (B, N, D)."""
        tokens = source["tokens"]
        if self.names is None or self.sizes is None:
            return words(tokens)  # type: ignore[no-any-return]
        extra = (tokens - self.vocab_size).clamp(min=0)
        special = self.names(extra)
        if "values" in source:
            special = special + source["values"][..., None] * self.sizes(extra)
        is_word = (tokens < self.vocab_size)[..., None]
        return torch.where(is_word, words(tokens.clamp(max=self.vocab_size - 1)), special)

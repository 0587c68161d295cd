"""A Transformer that reads a sequence: every position looks at all others, or at those before it.

B rows · T positions · D width
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from seqlab.models.encoder import Encoded, Encoder
from seqlab.nn.blocks import Tower, start_as_gpt2
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.positions import sinusoids
from seqlab.recipe import PartSettings


class TransformerEncoder(Encoder):
    """x = √D E[w] + P, through `depth` blocks and a norm. P are sinusoids, so that any length can be read.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, with norms before the parts.
    """

    class Settings(PartSettings, Tower):
        both_ways: bool = True
        """Whether positions also look at what comes after them."""

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.width = settings.width
        self.embedding = TokenEmbedding(vocab_size, self.width)
        self.dropout = Dropout(settings.dropout)
        self.blocks = settings.built(causal=not settings.both_ways)
        self.norm = settings.last_norm()
        start_as_gpt2(self, settings.depth)
        nn.init.normal_(self.embedding.weight, std=self.width**-0.5)

    def forward(self, batch: Mapping[str, Tensor]) -> Encoded:
        tokens, mask = batch["tokens"], batch["mask"]
        x = self.embedding(tokens) * self.width**0.5
        x = self.dropout(x + sinusoids(torch.arange(tokens.shape[1], device=x.device), x))
        for block in self.blocks:
            x = block(x, mask=mask)
        return Encoded(self.norm(x), mask)

"""A Transformer that reads a sequence: every position looks at all others, or at those before it.

B rows · T positions · D width
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from seqlab.models.encoder import Encoded, Encoder
from seqlab.nn.attention import Places, SelfAttention
from seqlab.nn.blocks import Block, Tower, feed_forward, start_as_gpt2
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.positions import AnyPosition, position
from seqlab.recipe import PartSettings


class TransformerEncoder(Encoder):
    """x = √D E[w] + P, through `depth` blocks and a norm. P are sinusoids by default, so that any length can be read.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, with norms before the parts.
    """

    class Settings(PartSettings, Tower):
        both_ways: bool = True
        """Whether positions also look at what comes after them."""
        position: AnyPosition = Field(default="sinusoidal", validate_default=False)  # type: ignore[assignment]

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.width = settings.width
        self.embedding = TokenEmbedding(vocab_size, self.width - settings.position.taken)
        self.position = position(settings.position, settings.shape(causal=not settings.both_ways))
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(_block(settings) for _ in range(settings.depth))
        self.norm = settings.norms() if settings.norm_first else nn.Identity()
        start_as_gpt2(self, settings.depth)
        nn.init.normal_(self.embedding.weight, std=self.width**-0.5)

    def forward(self, batch: Mapping[str, Tensor]) -> Encoded:
        tokens, mask = batch["tokens"], batch["mask"]
        x = self.embedding(tokens) * self.width**0.5
        time = torch.arange(tokens.shape[1], device=x.device)
        x = self.dropout(self.position.embed(x, time))
        places = self.position.placed(Places(time, len(time)), x)
        for block in self.blocks:
            x = block(x, mask=mask, places=places)
        return Encoded(self.norm(x), mask)


def _block(settings: TransformerEncoder.Settings) -> Block:
    return Block(
        SelfAttention(**settings.attention, causal=not settings.both_ways),
        feed_forward(settings),
        settings.norms,
        settings.dropout,
        norm_first=settings.norm_first,
    )

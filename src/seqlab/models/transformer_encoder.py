"""The Transformer encoder, in which every position attends to all others, or only to those before it.

B rows · N positions · R real positions · D width
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from seqlab.models.encoder import Encoded, Encoder, padded
from seqlab.nn.attention import Places, SelfAttention, room_for, spread
from seqlab.nn.blocks import Block, TransformerSettings, feed_forward, start_as_gpt2
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import Conditions, TokenEmbedding
from seqlab.nn.positions import AnyPosition, position
from seqlab.nn.recording import note
from seqlab.recipe import PartSettings


class TransformerEncoder(Encoder):
    """x = √D E[w] + P, through `depth` blocks and a norm. P is sinusoidal by default, so that any length can be read.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, with norms before the parts.
    """

    class Settings(PartSettings, TransformerSettings):
        depth: int = Field(default=2, ge=0, le=1000)
        both_ways: bool = True
        """Whether positions also attend to those after them."""
        position: AnyPosition = Field(default="sinusoidal", validate_default=False)  # type: ignore[assignment]

    takes = ("conditions",)

    def __init__(
        self,
        settings: Settings,
        vocab_size: int,
        conditions: int = 0,
        embedding: TokenEmbedding | None = None,
        start: Callable[[TransformerEncoder], None] | None = None,
    ) -> None:
        """`embedding` is the target's, if it is shared; `start` replaces the initialisation of weights."""
        super().__init__()
        self.width = settings.width
        embedded = settings.embedded(settings.position)
        self.embedding = TokenEmbedding(vocab_size, embedded) if embedding is None else embedding
        self.conditions = Conditions(vocab_size, conditions, embedded)
        self.position = position(settings.position, settings.shape(causal=not settings.both_ways))
        self.longest = self.position.limit
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(_block(settings) for _ in range(settings.depth))
        self.norm = settings.new_norm() if settings.norm_first else nn.Identity()
        (start or _start)(self)

    def forward(self, batch: Mapping[str, Tensor]) -> Encoded:
        self.position.check(batch["mask"].shape[1])
        x, places = self._embedded(batch)
        for block in self.blocks:
            x = block(x, mask=batch["mask"], places=places)
        return Encoded(self.norm(x), batch["mask"])

    def read(self, source: Mapping[str, Tensor]) -> Encoded:
        self.position.check(source["mask"].shape[1])
        source = padded(source, room_for(source["mask"].shape[1]))
        x, places = self._embedded(source)
        x = x[source["mask"]]  # (R, D): compute nothing for padding
        for block in self.blocks:
            x = block(x, mask=source["mask"], places=places)
        return Encoded(spread(self.norm(x), source["mask"]), source["mask"])

    def _embedded(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Places]:
        x = self.conditions(batch, self.embedding) * self.width**0.5
        time = torch.arange(x.shape[1], device=x.device)
        x = note(self, "embedded", self.dropout(self.position.embed(x, time)))
        return x, self.position.placed(Places(time, len(time)), x)


def _block(settings: TransformerEncoder.Settings) -> Block:
    return Block(
        SelfAttention(**settings.attention, causal=not settings.both_ways),
        feed_forward(settings),
        settings.new_norm,
        settings.dropout,
        norm_first=settings.norm_first,
    )


def _start(encoder: TransformerEncoder) -> None:
    start_as_gpt2(encoder, len(encoder.blocks))
    nn.init.normal_(encoder.embedding.weight, std=encoder.width**-0.5)

"""The Transformer: an encoder that reads a source, and a decoder that writes a target and looks at it.

B rows · T target positions · S sources · N source positions · D width · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.models.caches import caches, keep, new_state
from seqlab.models.language_model import Output, State, TokenModel, or_empty, owners
from seqlab.nn.attention import CrossAttention, Places, SelfAttention, Source, room_for
from seqlab.nn.blocks import Block, Tower, feed_forward
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import Conditions, TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.positions import AnyPosition, position
from seqlab.recipe import PartSettings


class Transformer(TokenModel):
    """y = √D E[source] + P through the encoder's blocks, x = √D E[target] + P through the decoder's, which are causal
    and also look at y; p = softmax(E x). P are sinusoids by default, so that any length can be read.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """

    class Settings(PartSettings, Tower):
        depth: int = Field(default=4, gt=0, le=1000)
        """Blocks of the decoder."""
        encoder_depth: int | None = Field(default=None, ge=0, le=1000)
        """Blocks of the encoder; as many as the decoder has by default."""
        shared: bool = True
        """One matrix for the words of the source and of the target."""
        position: AnyPosition = Field(default="sinusoidal", validate_default=False)  # type: ignore[assignment]
        output: OutputSettings = Field(default={"kind": "softmax", "bias": False}, validate_default=False)  # type: ignore[assignment]

    def __init__(self, settings: Settings, vocab_size: int, conditions: int = 0) -> None:
        super().__init__()
        self.vocab_size, self.width = vocab_size, settings.width
        embedded, depth = self.width - settings.position.taken, settings.depth
        self.embedding = TokenEmbedding(vocab_size, embedded)
        self.source_embedding = None if settings.shared else TokenEmbedding(vocab_size, embedded)
        self.conditions = Conditions(vocab_size, conditions, embedded)
        self.source_position = position(settings.position, settings.shape(causal=False))
        self.position = position(settings.position, settings.shape())
        self.dropout = Dropout(settings.dropout)
        reading = depth if settings.encoder_depth is None else settings.encoder_depth
        self.encoder = nn.ModuleList(_reading_block(settings) for _ in range(reading))
        self.encoder_norm = settings.norms() if settings.norm_first else nn.Identity()
        self.decoder = nn.ModuleList(_writing_block(settings) for _ in range(depth))
        self.norm = settings.norms() if settings.norm_first else nn.Identity()
        self.output = output_layer(settings.output, self.width, vocab_size, self.embedding)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                table = "embedding" in name or "conditions" in name or "position" in name
                nn.init.normal_(weight, std=self.width**-0.5) if table else nn.init.xavier_uniform_(weight)

    def encode(self, source: Mapping[str, Tensor], flat: bool = False) -> Tensor:
        """The states of sources, (S, N, D); or `flat`, those of their R real positions alone: (R, D)."""
        x = self.conditions(source, self.source_embedding or self.embedding) * self.width**0.5
        time = torch.arange(x.shape[1], device=x.device)
        x = self.dropout(self.source_position.embed(x, time))
        places = self.source_position.placed(Places(time, len(time)), x)
        x = x[source["mask"]] if flat else x
        for block in self.encoder:
            x = block(x, mask=source["mask"], places=places)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        source = or_empty(source, self.embedding.weight)
        room = [0, room_for(source["tokens"].shape[1]) - source["tokens"].shape[1]]  # bits then depend on no neighbour
        source = {name: F.pad(tensor, room) for name, tensor in source.items()}
        real, y = source["mask"], self.encode(source, flat=True)
        state = new_state(rows, list(self.decoder), self.embedding.weight)
        state.shared, state.owner = {"real": real}, owners(len(real), state.lengths)
        for layer, block in enumerate(self.decoder):
            k, v = block.look.read(y, real)  # type: ignore[union-attr, operator]
            state.shared |= {f"keys.{layer}": k.contiguous(), f"values.{layer}": v.contiguous()}
        return state

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        time = torch.arange(tokens.shape[1], device=tokens.device)
        if state is None:
            source = or_empty(source, self.embedding.weight, len(tokens))
            x, y = self._embed(tokens, time), self.encode(source)
            places = self.position.placed(Places(time, len(time)), x)
            for block in self.decoder:
                k, v = block.look.read(y)  # type: ignore[union-attr, operator]
                x = block(x, source=Source(k, v, source["mask"]), places=places)
            return Output(self.norm(x), None)
        after = state.consume()
        assert after.shared is not None
        positions = after.lengths[:, None] + time
        x, real = self._embed(tokens, positions), after.shared["real"]
        for layer, cache in enumerate(caches(after, positions, list(self.decoder), self.position)):
            keys, values = after.shared[f"keys.{layer}"], after.shared[f"values.{layer}"]
            x = self.decoder[layer](x, cache, source=Source(keys, values, real, after.owner))
            keep(after, layer, cache)
        after.lengths = after.lengths + (tokens.shape[1] if mask is None else mask.sum(1))
        return Output(self.norm(x), after)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.embedding(tokens) * self.width**0.5
        return self.dropout(self.position.embed(x, positions))  # type: ignore[no-any-return]


def _reading_block(settings: Transformer.Settings) -> Block:
    return Block(
        SelfAttention(**settings.attention, causal=False),
        feed_forward(settings),
        settings.norms,
        settings.dropout,
        norm_first=settings.norm_first,
    )


def _writing_block(settings: Transformer.Settings) -> Block:
    attend, feed = SelfAttention(**settings.attention), feed_forward(settings)
    look = CrossAttention(**settings.attention)
    return Block(attend, feed, settings.norms, settings.dropout, look, settings.norm_first)

"""The Transformer: an encoder that reads a source, and a decoder that writes a target and attends to the source.

B rows · T target positions · S sources · N source positions · D width · V vocabulary
"""

from __future__ import annotations

from typing import cast

import torch
from pydantic import Field
from torch import Tensor, nn

from seqlab.models.caches import caches, keep, new_state
from seqlab.models.encoder import Encoded
from seqlab.models.language_model import Output, State
from seqlab.models.transformer_encoder import TransformerEncoder
from seqlab.models.translator import Decoder, Translator, owners
from seqlab.nn.attention import CrossAttention, Places, SelfAttention, Source
from seqlab.nn.blocks import Block, TransformerSettings, feed_forward
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.positions import AnyPosition, position
from seqlab.nn.recording import note
from seqlab.recipe import PartSettings


class TransformerDecoder(Decoder):
    """x = √D E[w] + P, through `depth` causal blocks that also attend to the source, and a norm; p = softmax(E x)"""

    class Settings(PartSettings, TransformerSettings):
        depth: int = Field(default=4, gt=0, le=1000)
        """Number of decoder blocks."""
        position: AnyPosition = Field(default="sinusoidal", validate_default=False)  # type: ignore[assignment]
        output: OutputSettings = Field(default={"kind": "softmax", "bias": False}, validate_default=False)  # type: ignore[assignment]

    def __init__(
        self, settings: Settings, vocab_size: int, source_width: int, embedding: TokenEmbedding | None = None
    ) -> None:
        super().__init__()
        self.vocab_size, self.width = vocab_size, settings.width
        embedded = settings.embedded(settings.position)
        self.embedding = TokenEmbedding(vocab_size, embedded) if embedding is None else embedding
        self.position = position(settings.position, settings.shape())
        self.context = self.position.limit
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(_block(settings, source_width) for _ in range(settings.depth))
        self.norm = settings.new_norm() if settings.norm_first else nn.Identity()
        self.output = output_layer(settings.output, self.width, vocab_size, self.embedding)

    def start(self, encoded: Encoded, rows: int) -> State:
        state = new_state(rows, list(self.blocks), self.embedding.weight)
        real, states = encoded.mask, encoded.states[encoded.mask]  # compute nothing for padding
        state.shared, state.owner = {"real": real}, owners(len(real), state.lengths)
        for layer, block in enumerate(self.blocks):
            k, v = cast(Block, block).cross_attend.read(states, real)
            state.shared |= {f"keys.{layer}": k.contiguous(), f"values.{layer}": v.contiguous()}
        return state

    def forward(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Output:
        after = state.consume()
        assert after.shared is not None
        positions = after.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        x, real = self._embed(tokens, positions), after.shared["real"]
        for layer, cache in enumerate(caches(after, positions, mask, list(self.blocks), self.position)):
            keys, values = after.shared[f"keys.{layer}"], after.shared[f"values.{layer}"]
            x = self.blocks[layer](x, cache, source=Source(keys, values, real, after.owner))
            keep(after, layer, cache)
        after.lengths = after.lengths + (tokens.shape[1] if mask is None else mask.sum(1))
        return Output(self.norm(x), after)

    def write(self, tokens: Tensor, encoded: Encoded, mask: Tensor | None = None) -> Output:
        self.position.check(tokens.shape[1])
        time = torch.arange(tokens.shape[1], device=tokens.device)
        x = self._embed(tokens, time)
        places = self.position.placed(Places(time, len(time)), x)
        for block in self.blocks:
            k, v = cast(Block, block).cross_attend.read(encoded.states)
            x = block(x, source=Source(k, v, encoded.mask), places=places)
        return Output(self.norm(x), None)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.embedding(tokens) * self.width**0.5
        return note(self, "embedded", self.dropout(self.position.embed(x, positions)))


def _block(settings: TransformerDecoder.Settings, source_width: int) -> Block:
    attend, feed = SelfAttention(**settings.attention), feed_forward(settings)
    cross_attend = CrossAttention(**settings.attention, source_width=source_width)
    return Block(attend, feed, settings.new_norm, settings.dropout, cross_attend, settings.norm_first)


class Transformer(Translator):
    """y = √D E[source] + P through the encoder's blocks, x = √D E[target] + P through the decoder's, which are causal
    and also attend to y; p = softmax(E x). P is sinusoidal by default, so that any length can be read.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """

    class Settings(TransformerDecoder.Settings):
        encoder_depth: int | None = Field(default=None, ge=0, le=1000)
        """Number of encoder blocks; `depth` by default."""
        shared: bool = True
        """Whether source and target words share one embedding matrix."""

        @property
        def encoder(self) -> TransformerEncoder.Settings:
            depth = self.depth if self.encoder_depth is None else self.encoder_depth
            own = {name: getattr(self, name) for name in (*TransformerSettings.model_fields, "position")}
            return TransformerEncoder.Settings(kind="transformer-encoder", **{**own, "depth": depth})

    def __init__(self, settings: Settings, vocab_size: int, conditions: int = 0) -> None:
        embedding = TokenEmbedding(vocab_size, settings.embedded(settings.position))
        shared = embedding if settings.shared else None
        encoder = TransformerEncoder(settings.encoder, vocab_size, conditions, shared, start=lambda _: None)
        self.join(encoder, TransformerDecoder(settings, vocab_size, encoder.width, embedding))

    def start_weights(self) -> None:
        words, deviation = self.decoder.embedding.weight, self.encoder.width**-0.5
        nn.init.normal_(words, std=deviation)
        for name, weight in self.named_parameters():
            if weight.dim() > 1 and weight is not words:
                table = any(part in name for part in ("embedding", "conditions", "position"))
                nn.init.normal_(weight, std=deviation) if table else nn.init.xavier_uniform_(weight)

"""GPT: a stack of causal Transformer blocks that predicts the next token.

B rows · T positions · C capacity of the caches · D width · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from seqlab.models.caches import caches, keep, new_state
from seqlab.models.language_model import Output, State, TokenModel, no_source
from seqlab.nn.attention import Places, SelfAttention
from seqlab.nn.blocks import Block, TransformerSettings, feed_forward, start_as_gpt2
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.positions import AnyPosition, position
from seqlab.nn.recording import note
from seqlab.recipe import PartSettings


class GPT(TokenModel):
    """x = E[w] + P[position], through `depth` blocks and a norm; p = softmax(E x)

    Radford et al. 2019, Language models are unsupervised multitask learners (GPT-2). With rotary positions, RMS norms,
    gated feed-forward parts and no biases: Touvron et al. 2023, https://arxiv.org/abs/2302.13971 (Llama).
    """

    class Settings(PartSettings, TransformerSettings):
        width: int = Field(default=192, gt=0)
        depth: int = Field(default=4, gt=0, le=1000)
        context: int = Field(default=256, gt=0)
        """Largest number of tokens that the model can attend to."""
        position: AnyPosition = Field(default="learned", validate_default=False)  # type: ignore[assignment]
        output: OutputSettings = Field(default={"kind": "softmax", "bias": False}, validate_default=False)  # type: ignore[assignment]

    context: int

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size, self.context = vocab_size, settings.context
        self.embedding = TokenEmbedding(vocab_size, settings.embedded(settings.position))
        self.position = position(settings.position, settings.shape(settings.context))
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(_block(settings) for _ in range(settings.depth))
        self.norm = settings.new_norm() if settings.norm_first else nn.Identity()
        self.output = output_layer(settings.output, settings.width, vocab_size, self.embedding)
        start_as_gpt2(self, settings.depth)

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        no_source(self, source)
        return new_state(rows, list(self.blocks), self.embedding.weight)

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        no_source(self, source)
        time = torch.arange(tokens.shape[1], device=tokens.device)
        if state is None:
            self.position.check(len(time))
            x = self._embed(tokens, time)
            places = self.position.placed(Places(time, len(time)), x)
            for block in self.blocks:
                x = block(x, places=places)
            return Output(self.norm(x), None)
        after = state.consume()
        positions = after.lengths[:, None] + time
        x = self._embed(tokens, positions)
        for layer, cache in enumerate(caches(after, positions, mask, list(self.blocks), self.position)):
            x = self.blocks[layer](x, cache)
            keep(after, layer, cache)
        after.lengths = after.lengths + (tokens.shape[1] if mask is None else mask.sum(1))
        return Output(self.norm(x), after)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.dropout(self.position.embed(self.embedding(tokens), positions))
        return note(self, "embedded", x)


def _block(settings: GPT.Settings) -> Block:
    return Block(
        SelfAttention(**settings.attention),
        feed_forward(settings),
        settings.new_norm,
        settings.dropout,
        norm_first=settings.norm_first,
    )

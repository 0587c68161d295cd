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
from seqlab.nn.blocks import Tower, start_as_gpt2
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.recipe import PartSettings


class GPT(TokenModel):
    """x = E[w] + P[position], through `depth` blocks and a norm; p = softmax(E x)

    Radford et al. 2019, Language models are unsupervised multitask learners (GPT-2).
    """

    class Settings(PartSettings, Tower):
        width: int = Field(default=192, gt=0)
        depth: int = Field(default=4, gt=0, le=1000)
        context: int = Field(default=256, gt=0)
        """The number of positions: the most tokens it can look at."""
        output: OutputSettings = Field(default={"kind": "softmax", "bias": False}, validate_default=False)  # type: ignore[assignment]

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size, self.context = vocab_size, settings.context
        width, self.heads = settings.width, settings.heads
        self.embedding = TokenEmbedding(vocab_size, width)
        self.position = nn.Embedding(settings.context, width)
        self.dropout = Dropout(settings.dropout)
        self.blocks = settings.built()
        self.norm = settings.last_norm()
        self.output = output_layer(settings.output, width, vocab_size, self.embedding)
        start_as_gpt2(self, settings.depth)

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        no_source(self, source)
        return new_state(rows, list(self.blocks), self.heads, self.embedding.weight)

    def forward(self, tokens: Tensor, state: State | None = None, mask: Tensor | None = None) -> Output:
        time = torch.arange(tokens.shape[1], device=tokens.device)
        if state is None:
            x = self._embed(tokens, time)
            for block in self.blocks:
                x = block(x)
            return Output(self.norm(x), None)
        after = state.consume()
        positions = after.lengths[:, None] + time
        x = self._embed(tokens, positions.clamp(max=self.position.num_embeddings - 1))  # what is beyond is padding
        for layer, cache in enumerate(caches(after, positions, list(self.blocks))):
            x = self.blocks[layer](x, cache)
            keep(after, layer, cache)
        after.lengths = after.lengths + (tokens.shape[1] if mask is None else mask.sum(1))
        return Output(self.norm(x), after)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) + self.position(positions))  # type: ignore[no-any-return]

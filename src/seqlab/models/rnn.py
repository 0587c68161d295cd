"""The recurrent language model, with any cell.

B rows · T positions · D width · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from seqlab.models.language_model import Output, State, TokenModel, no_source, real_lengths
from seqlab.nn.dropout import EmbeddingDropout, Mask, dropout
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.recurrent import Stack
from seqlab.recipe import PartSettings


class RecurrentLanguageModel(TokenModel):
    """x_t = E[w_t], h_t = cell(x_t, h_{t−1}) in `depth` layers, p(w_{t+1}) = softmax(W h_t + b)"""

    class Settings(PartSettings, Stack):
        width: int = Field(default=256, gt=0)
        embedding: int | None = Field(default=None, gt=0)
        """Width of the embeddings; `width` by default. Small vocabularies need only narrow ones, at half the work."""
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Dropout of embeddings, between layers, and of the last layer's states."""
        dropout_mask: Mask = "position"
        """Whether each position draws its own mask, or one mask serves a whole window (variational)."""
        embedding_dropout: float = Field(default=0.0, ge=0, lt=1)
        """Share of the words that are dropped from a batch altogether."""
        output: OutputSettings = Field(default="softmax", validate_default=False)  # type: ignore[assignment]

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        width, embedded = settings.width, settings.embedding or settings.width
        self.embedding = TokenEmbedding(vocab_size, embedded)
        self.drop_words = EmbeddingDropout(settings.embedding_dropout, vocab_size)
        self.dropout = dropout(settings.dropout, settings.dropout_mask)
        self.recurrent = settings.built(embedded, width, self.dropout)
        self.output = output_layer(settings.output, width, vocab_size, self.embedding)
        nn.init.normal_(self.embedding.weight, std=embedded**-0.5)

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        no_source(self, source)
        zeros = self.recurrent.start(rows, self.embedding.weight)
        return State(self._named(zeros), torch.zeros(rows, dtype=torch.long, device=self.embedding.weight.device))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        no_source(self, source)
        before = (state or self.start(rows=len(tokens))).consume()
        layers = [
            tuple(before.rows[f"{part}.{layer}"] for part in cell.parts)
            for layer, cell in enumerate(self.recurrent.layers)
        ]
        x = self.dropout(self.drop_words(self.embedding(tokens), tokens))
        x, after = self.recurrent(x, layers, mask)
        state = State(self._named(after), before.lengths + real_lengths(tokens, mask))
        return Output(self.dropout(x), state, undropped=x)

    def _named(self, layers: list[tuple[Tensor, ...]]) -> dict[str, Tensor]:
        return {
            f"{part}.{layer}": tensor
            for layer, (cell, parts) in enumerate(zip(self.recurrent.layers, layers, strict=True))
            for part, tensor in zip(cell.parts, parts, strict=True)
        }

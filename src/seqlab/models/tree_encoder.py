"""The tree encoder, which reads a sentence along its parse tree: one state per phrase.

B trees · T nodes of the largest tree · N nodes of all trees · W width
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from seqlab.models.encoder import Encoded, Encoder
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.tree_cells import Activation, RecursiveCell, TreeCell, TreeLSTMCell, upwards
from seqlab.recipe import PartSettings


class TreeEncoder(Encoder):
    """Leaves read x = E[word], other nodes their two children. Children come before parents, so the root is last."""

    joins = False

    class Settings(PartSettings):
        cell: Literal["recursive", "tree-lstm"] = "tree-lstm"
        activation: Activation = "tanh"
        """Nonlinearity of the cell `recursive`."""
        width: int = Field(default=128, gt=0)
        embedding: int | None = Field(default=None, gt=0)
        """Width of the embeddings; `width` by default."""
        vectors: str | None = None
        """File of word vectors (GloVe, or word2vec as text) to initialise the embeddings from."""
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Dropout of the embeddings."""

    needs = ("leaf_vocab_size",)

    def __init__(self, settings: Settings, leaf_vocab_size: int) -> None:
        super().__init__()
        self.width, embedded = settings.width, settings.embedding or settings.width
        self.embedding, self.dropout = TokenEmbedding(leaf_vocab_size, embedded), Dropout(settings.dropout)
        self.cell: TreeCell = (
            TreeLSTMCell(embedded, self.width)
            if settings.cell == "tree-lstm"
            else RecursiveCell(embedded, self.width, settings.activation)
        )
        torch.nn.init.normal_(self.embedding.weight, std=embedded**-0.5)

    def forward(self, batch: Mapping[str, Tensor]) -> Encoded:
        """Encode `tokens` and `mask` (B, T), of which only the tokens at leaves are read, with `children` and `pieces`
        as in `Levels`, and `places` (N,), which map its order to (B · T)."""
        tokens, mask, places = batch["tokens"], batch["mask"], batch["places"]
        leaves = len(places) - len(batch["children"]) // 2
        x = self.dropout(self.embedding(tokens.flatten()[places[:leaves]]))
        states = upwards(self.cell, x, batch["children"], batch["pieces"])
        padded = states.new_zeros(mask.numel(), self.width).index_copy(0, places, states)
        return Encoded(padded.view(*mask.shape, self.width), mask)

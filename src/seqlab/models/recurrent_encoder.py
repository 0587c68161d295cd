"""The recurrent encoder, which reads a sequence from both ends, with any cell.

B rows · T positions · D width of the inputs · H width of a direction
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from seqlab.models.encoder import Encoded, Encoder
from seqlab.nn.characters import CharacterSettings, character_reader
from seqlab.nn.dropout import EmbeddingDropout, Mask, dropout
from seqlab.nn.embedding import Conditions, TokenEmbedding
from seqlab.nn.recurrent import Stack, both
from seqlab.recipe import PartSettings


class RecurrentEncoder(Encoder):
    """x_t = E[w_t], states [→h_t; ←h_t] (or only →h_t) in `depth` layers

    With `characters`, x_t = [E[w_t]; c_t], where c_t is computed from the characters of the word.
    """

    class Settings(PartSettings, Stack):
        width: int = Field(default=128, gt=0)
        """Width of the state in each direction."""
        embedding: int | None = Field(default=None, gt=0)
        """Width of the embeddings; `width` by default."""
        characters: CharacterSettings = None
        """Encoder of the characters of each word, in addition to the word itself; none by default."""
        vectors: str | None = None
        """File of word vectors (GloVe, or word2vec as text) to initialise the embeddings from."""
        depth: int = Field(default=1, ge=0, le=1000)
        """Number of layers; with 0, there is no recurrence, and each word is read on its own."""
        both_ways: bool = True
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Dropout of embeddings, between layers, and of the last layer's states."""
        dropout_mask: Mask = "position"
        """Whether each position draws its own mask, or one mask serves a whole sequence (variational)."""
        embedding_dropout: float = Field(default=0.0, ge=0, lt=1)
        """Share of the words that are dropped from a batch altogether."""

    takes = ("alphabet_size", "conditions")

    def __init__(self, settings: Settings, vocab_size: int, alphabet_size: int = 0, conditions: int = 0) -> None:
        super().__init__()
        width, embedded = settings.width, settings.embedding or settings.width
        self.embedding = TokenEmbedding(vocab_size, embedded)
        self.drop_words = EmbeddingDropout(settings.embedding_dropout, vocab_size)
        self.dropout = dropout(settings.dropout, settings.dropout_mask)
        self.characters = character_reader(settings.characters, alphabet_size) if settings.characters else None
        read = embedded if self.characters is None else embedded + self.characters.width
        self.recurrent = settings.built(read, width, self.dropout, settings.both_ways)
        self.directions = 2 if settings.both_ways and settings.depth else 1
        self.width = width * self.directions if settings.depth else read
        torch.nn.init.normal_(self.embedding.weight, std=embedded**-0.5)
        self.conditions = Conditions(vocab_size, conditions, embedded)

    def forward(self, batch: Mapping[str, Tensor]) -> Encoded:
        tokens, mask = batch["tokens"], batch["mask"]
        x = self.drop_words(self.conditions(batch, self.embedding), tokens)
        if self.characters is not None:  # computed once per distinct word of the batch
            x = torch.cat([x, self.characters(batch["spellings"])[batch["spelt"]]], -1)
        x = self.dropout(x)
        if not len(self.recurrent.layers):
            return Encoded(x, mask)
        states, last = self.recurrent(x, self.recurrent.start(len(x), x), mask)
        return Encoded(self.dropout(states), mask, [both(one, self.directions == 2) for one in last])

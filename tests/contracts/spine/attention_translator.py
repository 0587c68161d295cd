"""An encoder and a decoder of one's own, joined by `kind: translator`, against public interfaces only.

B rows · S sources · T target positions · N source positions · D width

keys = W [→h; ←h] over the source, held once per source; states = tanh(V [h_t; Σ softmax(h_t · keys) keys])
"""

from __future__ import annotations

import torch
from torch import nn

from seqlab.models.encoder import Encoded, Encoder
from seqlab.models.language_model import Output, State, real_lengths
from seqlab.models.translator import Decoder, owners
from seqlab.nn.cells import LSTM
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.output import Softmax
from seqlab.nn.recurrent import Recurrent
from seqlab.recipe import PartSettings
from seqlab.registry import register


class Wide(PartSettings):
    width: int = 48


def lstm(width):
    return Recurrent([LSTM(width, width, LSTM.Settings(kind="lstm"))])


class Reader(Encoder):
    Settings = Wide

    def __init__(self, settings: Wide, vocab_size: int, conditions: int = 0) -> None:
        super().__init__()
        self.width = settings.width
        self.embedding, self.there, self.back = (
            TokenEmbedding(vocab_size, self.width),
            lstm(self.width),
            lstm(self.width),
        )
        self.keys = nn.Linear(2 * self.width, self.width)

    def forward(self, batch):
        x, mask = self.width**0.5 * self.embedding(batch["tokens"]), batch["mask"]
        there, _ = self.there(x, self.there.start(len(x), x), mask)
        back, _ = self.back(x.flip(1), self.back.start(len(x), x), mask.flip(1))
        return Encoded(self.keys(torch.cat([there, back.flip(1)], -1)), mask)


class Writer(Decoder):
    Settings = Wide

    def __init__(self, settings: Wide, vocab_size: int, source_width: int) -> None:
        super().__init__()
        self.vocab_size, self.width = vocab_size, settings.width
        self.embedding, self.recurrent = TokenEmbedding(vocab_size, self.width), lstm(self.width)
        self.mix = nn.Linear(self.width + source_width, self.width)
        self.output = Softmax(Softmax.Settings(kind="softmax", tied=False), self.width, vocab_size, None)

    def start(self, encoded, rows):
        (h, c), lengths = self.recurrent.start(rows, encoded.states)[0], torch.zeros(rows, dtype=torch.long)
        shared, owner = {"keys": encoded.states, "mask": encoded.mask}, owners(len(encoded.states), lengths)
        return State({"h": h, "c": c}, lengths, shared=shared, owner=owner)

    def forward(self, tokens, state, mask=None):
        state, x = state.consume(), self.width**0.5 * self.embedding(tokens)
        keys, real = (state.shared[name].index_select(0, state.owner) for name in ("keys", "mask"))
        h, [after] = self.recurrent(x, [(state.rows["h"], state.rows["c"])], mask)
        scores = (h @ keys.mT).masked_fill(~real[:, None], -torch.inf)  # (B, T, N)
        states = torch.tanh(self.mix(torch.cat([h, scores.softmax(-1) @ keys], -1)))
        state.rows, state.lengths = dict(zip("hc", after, strict=True)), state.lengths + real_lengths(tokens, mask)
        return Output(states, state)

    def write(self, tokens, encoded, mask=None):
        return self(tokens, self.start(encoded, len(tokens)), mask)


register("model", "reader", Reader)
register("decoder", "writer", Writer)

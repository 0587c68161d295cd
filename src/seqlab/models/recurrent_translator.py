"""The line of recurrent translators: an encoder-decoder, with attention, read from both ends, deep, with residuals.

B rows · T target positions · S sources · N source positions · H width
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.models.language_model import Output, State, TokenModel, or_empty, owners, real_lengths
from seqlab.nn.attention import room_for
from seqlab.nn.cells import Cell, CellState
from seqlab.nn.dropout import Mask, dropout
from seqlab.nn.embedding import Conditions, TokenEmbedding
from seqlab.nn.looking import LookingSettings, looking
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.recording import note
from seqlab.nn.recurrent import Recurrent, Stack
from seqlab.recipe import PartSettings


class RecurrentTranslator(TokenModel):
    """The encoder reads h_i = cell(√H E[source_i], h_{i−1}) in layers; its last states are the decoder's first ones.

    The decoder's lowest layer reads the target and asks for a context c_t; the layers above it read [s_t; c_t], and
    p = softmax(E tanh(W [s_t; c_t])) with s_t of the highest one. Without attention there is no c.

    Sutskever et al. 2014, https://arxiv.org/abs/1409.3215; Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473; Wu et
    al. 2016, https://arxiv.org/abs/1609.08144 (deep, the lowest layer asks, residuals)
    """

    class Settings(PartSettings, Stack):
        width: int = Field(default=256, gt=0)
        """Of every layer; where one reads both ways, half of it for each."""
        encoder_depth: int | None = Field(default=None, gt=0, le=1000)
        """Layers of the encoder; as many as the decoder has by default."""
        both_ways: Literal["none", "first", "all"] = "none"
        """Which layers of the encoder also read from the end to the beginning."""
        attention: LookingSettings = None
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Of embeddings, between layers, and of the last layer's states."""
        dropout_mask: Mask = "position"
        shared: bool = True
        """One matrix for the words of the source and of the target."""
        output: OutputSettings = Field(default="softmax", validate_default=False)  # type: ignore[assignment]

    def __init__(self, settings: Settings, vocab_size: int, conditions: int = 0) -> None:
        super().__init__()
        self.vocab_size, width, depth = vocab_size, settings.width, settings.depth
        self.scale = width**0.5  # embeddings that are also the output begin small, too small to be read
        self.embedding = TokenEmbedding(vocab_size, width)
        self.source_embedding = None if settings.shared else TokenEmbedding(vocab_size, width)
        self.conditions = Conditions(vocab_size, conditions, width)
        self.dropout = dropout(settings.dropout, settings.dropout_mask)
        self.encoder = nn.ModuleList(_encoder(settings, self.dropout))
        self.attention = None if settings.attention is None else looking(settings.attention, width, width)
        context = 0 if self.attention is None else width
        fed = context if self.attention is not None and self._reads_context else 0
        self.lowest = Recurrent([settings.made(0, width + fed, width)], arrangement=settings)
        widths = settings.widths_below(width + context, width, depth - 1)
        above = [_layer(settings, number, below, width) for number, below in enumerate(widths, start=1)]
        self.above = Recurrent(above, self.dropout, arrangement=settings)
        self.mix = nn.Linear(width + context, width) if context else None
        self.output = output_layer(settings.output, width, vocab_size, self.embedding)
        for table in [part for part in self.modules() if isinstance(part, nn.Embedding)]:
            nn.init.normal_(table.weight, std=1 / self.scale)

    # ------------------------------------------------------------------ the source

    def encode(self, source: Mapping[str, Tensor]) -> tuple[Tensor, list[CellState]]:
        """The states of sources (S, N, H), and the last one of each layer."""
        x = self.dropout(self.conditions(source, self.source_embedding or self.embedding) * self.scale)
        last: list[CellState] = []
        for number, part in enumerate(self.encoder):
            assert isinstance(part, Recurrent)
            x, after = part(self.dropout(x) if number else x, part.start(len(x), x), source["mask"])
            last += [_joined(one, len(part.back) > 0) for one in after]
        return x, last

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        source = or_empty(source, self.embedding.weight)
        return self._state(source, rows, room_for(source["tokens"].shape[1]))  # bits then depend on no neighbour

    def _state(self, source: Mapping[str, Tensor], rows: int, room: int) -> State:
        """Before the first token, with sources in so much room."""
        states, last = self.encode(source)
        lengths = torch.zeros(rows, dtype=torch.long, device=states.device)
        owner = owners(len(states), lengths)
        layers = [*self.lowest.start(len(states), states), *self.above.start(len(states), states)]
        for number, first in enumerate(last[: len(layers)]):
            if len(first) == len(layers[number]):
                layers[number] = first
        state = State(self._named([tuple(part[owner] for part in layer) for layer in layers]), lengths, owner=owner)
        if self.attention is not None:
            more = room - states.shape[1]
            states, real = F.pad(states, [0, 0, 0, more]), F.pad(source["mask"], [0, more])
            state.shared = {"keys": self.attention.keys(states), "states": states, "real": real}
            if self._reads_context:
                state.rows["context"] = states.new_zeros(rows, states.shape[2])
            if self.attention.settings.coverage:
                state.rows["seen"] = states.new_zeros(rows, states.shape[1])
        else:
            state.shared = {"real": source["mask"]}
        return state

    # ------------------------------------------------------------------ the target

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        if state is None:
            source = or_empty(source, self.embedding.weight, len(tokens))
            state = self._state(source, len(tokens), source["tokens"].shape[1])
        after = state.consume()
        lowest, *above = (
            tuple(after.rows[f"{part}.{layer}"] for part in cell.parts)
            for layer, cell in enumerate([*self.lowest.layers, *self.above.layers])
        )
        x = self.dropout(self.embedding(tokens) * self.scale)
        if self.attention is None:
            x, layers = self.lowest(x, [lowest], mask)
        elif self.attention.one_by_one:
            x, layers = self._one_by_one(x, lowest, mask, after)
        else:
            x, layers = self.lowest(x, [lowest], mask)
            contexts, weights = self.attention(x, **_shared(after))
            note(attention=weights[:, :, None])
            x = torch.cat([x, contexts], -1)
        contexts = x[..., self.lowest.layers[0].hidden :]
        if len(self.above.layers):
            x, more = self.above(self.dropout(x), above, mask)
            layers, x = [*layers, *more], torch.cat([x, contexts], -1)
        if self.mix is not None:
            x = torch.tanh(self.mix(self.dropout(x)))
        after.rows |= self._named(layers)
        after.lengths = after.lengths + real_lengths(tokens, mask)
        return Output(self.dropout(x), after, undropped=x)

    def _one_by_one(
        self, x: Tensor, layer: CellState, mask: Tensor | None, state: State
    ) -> tuple[Tensor, list[CellState]]:
        """The lowest layer where a step reads a context: [s_t; c_t] (B, T, 2 H) and the state after the last step.

        (Masks of dropout in the recurrence are then drawn anew at every step.)
        """
        assert self.attention is not None
        shared, before = _shared(state), self.attention.settings.asks == "before"
        context, seen, fed = state.rows.get("context"), state.rows.get("seen"), self.attention.settings.feeding
        real = [None] * x.shape[1] if mask is None else mask[:, :, None].unbind(1)
        outputs, looks = [], []
        for word, here in zip(x[:, :, None].unbind(1), real, strict=True):
            asking = layer[0][:, None]
            if before:
                found, weights = self.attention(asking, **shared, seen=seen)
                word = torch.cat([word, found], -1)
            elif fed and context is not None:
                word = torch.cat([word, context[:, None]], -1)
            asking, [layer] = self.lowest(word, [layer], here)
            if not before:
                found, weights = self.attention(asking, **shared, seen=seen)
            context = found[:, 0] if here is None or context is None else torch.where(here, found[:, 0], context)
            if seen is not None:
                seen = seen + (weights[:, 0] if here is None else weights[:, 0] * here)
            outputs.append(torch.cat([asking, found], -1))
            looks.append(weights)
        note(attention=torch.cat(looks, 1)[:, :, None])
        if context is not None and "context" in state.rows:
            state.rows["context"] = context
        if seen is not None:
            state.rows["seen"] = seen
        return torch.cat(outputs, 1), [layer]

    @property
    def _reads_context(self) -> bool:
        """Whether the lowest layer does."""
        assert self.attention is not None
        return self.attention.settings.asks == "before" or self.attention.settings.feeding

    def _named(self, layers: list[CellState]) -> dict[str, Tensor]:
        cells = [*self.lowest.layers, *self.above.layers]
        return {
            f"{part}.{number}": tensor
            for number, (cell, parts) in enumerate(zip(cells, layers, strict=True))
            for part, tensor in zip(cell.parts, parts, strict=True)
        }


def _encoder(settings: RecurrentTranslator.Settings, between: nn.Module) -> list[Recurrent]:
    """Layers that read both ways, and those that do not."""
    width, depth = settings.width, settings.encoder_depth or settings.depth
    both = {"none": 0, "first": 1, "all": depth}[settings.both_ways]
    parts = []
    for first, count, directions in ((0, both, 2), (both, depth - both, 1)):
        widths = settings.widths_below(width, width, count)
        there, back = (
            [_layer(settings, first + number, below, width // directions) for number, below in enumerate(widths)]
            for _ in range(2)
        )
        if count:
            parts.append(Recurrent(there, between, back=back if directions == 2 else (), arrangement=settings))
    return parts


def _layer(settings: RecurrentTranslator.Settings, number: int, below: int, width: int) -> Cell:
    """A cell. Above the first layer its W begins so large that it gives what is as large as what it reads: of three
    layers that each give 0.4 of it, the states would hardly differ from position to position, and nobody could look.
    """
    cell = settings.made(number, below, width)
    if number and cell.shrinks is not None:
        for block in torch.split(cell.input.weight.data, width):
            nn.init.orthogonal_(block, 1 / cell.shrinks)
    return cell


def _joined(state: CellState, both_ways: bool) -> CellState:
    """Where a layer reads both ways, [→; ←] of each part of its state."""
    half = len(state) // 2
    return tuple(torch.cat(pair, -1) for pair in zip(state[:half], state[half:], strict=True)) if both_ways else state


def _shared(state: State) -> dict[str, Tensor | None]:
    assert state.shared is not None
    return {**state.shared, "owner": state.owner}

"""Recurrent translators: encoder-decoders, optionally with attention, reading both ways, deep, with residuals.

B rows · T target positions · S sources · N source positions · H width
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from seqlab.models.encoder import Encoded, Encoder
from seqlab.models.language_model import Output, State, real_lengths
from seqlab.models.translator import Decoder, Translator, owners
from seqlab.nn.attention import room_for
from seqlab.nn.cells import Cell, CellState
from seqlab.nn.dropout import Mask, dropout
from seqlab.nn.embedding import Conditions, TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.recording import through_time
from seqlab.nn.recurrent import Recurrent, Stack, both
from seqlab.nn.source_attention import SourceAttentionSettings, source_attention
from seqlab.recipe import PartSettings


class DeepEncoder(Encoder):
    """h_i = cell(√H E[source_i], h_{i−1}) in layers, the first or all of which may read from both ends."""

    class Settings(PartSettings, Stack):
        width: int = Field(default=256, gt=0)
        """Width of every layer; in layers that read both ways, half for each direction."""
        both_ways: Literal["none", "first", "all"] = "none"
        """Which layers also read from the end to the beginning."""
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Dropout of embeddings and between layers."""
        dropout_mask: Mask = "position"

    takes = ("conditions",)

    def __init__(
        self, settings: Settings, vocab_size: int, conditions: int = 0, embedding: TokenEmbedding | None = None
    ) -> None:
        super().__init__()
        self.width, self.scale = settings.width, settings.width**0.5
        self.embedding = TokenEmbedding(vocab_size, self.width) if embedding is None else embedding
        self.conditions = Conditions(vocab_size, conditions, self.width)
        self.dropout = dropout(settings.dropout, settings.dropout_mask)
        self.layers = nn.ModuleList(_layers(settings, self.dropout))

    def forward(self, batch: Mapping[str, Tensor]) -> Encoded:
        x = self.dropout(self.conditions(batch, self.embedding) * self.scale)
        last: list[CellState] = []
        for number, part in enumerate(self.layers):
            assert isinstance(part, Recurrent)
            x, after = part(self.dropout(x) if number else x, part.start(len(x), x), batch["mask"])
            last += [both(one, len(part.back) > 0) for one in after]
        return Encoded(x, batch["mask"], last)

    def read(self, source: Mapping[str, Tensor]) -> Encoded:
        return cast(Encoded, self(source)).padded(room_for(source["mask"].shape[1]))  # padded last, to run fewer steps


class RecurrentDecoder(Decoder):
    """The lowest layer reads the target and queries the source for a context c_t; the layers above read [s_t; c_t], and
    p = softmax(E tanh(W [s_t; c_t])) with s_t from the highest layer. Without attention there is no c.

    Each layer starts from the last state of the encoder's layer, if it has the same shape.
    """

    class Settings(PartSettings, Stack):
        width: int = Field(default=256, gt=0)
        """Width of every layer."""
        attention: SourceAttentionSettings = None
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Dropout of embeddings, between layers, and of the last layer's states."""
        dropout_mask: Mask = "position"
        output: OutputSettings = Field(default="softmax", validate_default=False)  # type: ignore[assignment]

    def __init__(
        self, settings: Settings, vocab_size: int, source_width: int, embedding: TokenEmbedding | None = None
    ) -> None:
        super().__init__()
        self.vocab_size, width, depth = vocab_size, settings.width, settings.depth
        self.scale = width**0.5  # tied embeddings start small, too small as inputs
        self.embedding = TokenEmbedding(vocab_size, width) if embedding is None else embedding
        self.dropout = dropout(settings.dropout, settings.dropout_mask)
        self.attention = (
            None if settings.attention is None else source_attention(settings.attention, width, source_width)
        )
        context = 0 if self.attention is None else source_width
        fed = context if self.attention is not None and self._reads_context else 0
        self.lowest = Recurrent([settings.made(0, width + fed, width)], arrangement=settings)
        widths = settings.widths_below(width + context, width, depth - 1)
        above = [_layer(settings, number, below, width) for number, below in enumerate(widths, start=1)]
        self.above = Recurrent(above, self.dropout, arrangement=settings)
        self.mix = nn.Linear(width + context, width) if context else None
        self.output = output_layer(settings.output, width, vocab_size, self.embedding)

    def start(self, encoded: Encoded, rows: int) -> State:
        states = encoded.states
        lengths = torch.zeros(rows, dtype=torch.long, device=states.device)
        owner = owners(len(states), lengths)
        layers = [*self.lowest.start(len(states), states), *self.above.start(len(states), states)]
        for number, first in enumerate(encoded.summary[: len(layers)]):
            if [part.shape for part in first] == [part.shape for part in layers[number]]:
                layers[number] = first
        state = State(self._named([tuple(part[owner] for part in layer) for layer in layers]), lengths, owner=owner)
        state.shared = {"real": encoded.mask}
        if self.attention is not None:
            state.shared |= {"keys": self.attention.keys(states), "states": states}
            if self._reads_context:
                state.rows["context"] = states.new_zeros(rows, states.shape[2])
            if self.attention.settings.coverage:
                state.rows["seen"] = states.new_zeros(rows, states.shape[1])
        return state

    def write(self, tokens: Tensor, encoded: Encoded, mask: Tensor | None = None) -> Output:
        output: Output = self(tokens, self.start(encoded, len(tokens)), mask)
        return output

    def forward(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Output:
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
            contexts, _ = self.attention(x, **_shared(after))
            x = torch.cat([x, contexts], -1)
        contexts = x[..., self.lowest.layers[0].width :]
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
        """Run the lowest layer step by step, for steps that read a context; return [s_t; c_t] (B, T, 2 H) and the last
        state.

        (Recurrent dropout then draws new masks at every step.)
        """
        assert self.attention is not None
        shared, before = _shared(state), self.attention.settings.asks == "before"
        context, seen, fed = state.rows.get("context"), state.rows.get("seen"), self.attention.settings.feeding
        real = [None] * x.shape[1] if mask is None else mask[:, :, None].unbind(1)
        outputs = []
        with through_time(x.shape[1]) as time:
            for position, (word, here) in enumerate(zip(x[:, :, None].unbind(1), real, strict=True)):
                time.at(position)
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
        if context is not None and "context" in state.rows:
            state.rows["context"] = context
        if seen is not None:
            state.rows["seen"] = seen
        return torch.cat(outputs, 1), [layer]

    @property
    def _reads_context(self) -> bool:
        """Whether the lowest layer reads contexts."""
        assert self.attention is not None
        return self.attention.settings.asks == "before" or self.attention.settings.feeding

    def _named(self, layers: list[CellState]) -> dict[str, Tensor]:
        cells = [*self.lowest.layers, *self.above.layers]
        return {
            f"{part}.{number}": tensor
            for number, (cell, parts) in enumerate(zip(cells, layers, strict=True))
            for part, tensor in zip(cell.parts, parts, strict=True)
        }


class RecurrentTranslator(Translator):
    """The encoder computes h_i = cell(√H E[source_i], h_{i−1}) in layers; the decoder starts from its last states.

    Sutskever et al. 2014, https://arxiv.org/abs/1409.3215; Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473; Wu et
    al. 2016, https://arxiv.org/abs/1609.08144 (deep, with residuals and queries from the lowest layer)
    """

    class Settings(RecurrentDecoder.Settings):
        encoder_depth: int | None = Field(default=None, gt=0, le=1000)
        """Number of encoder layers; `depth` by default."""
        both_ways: Literal["none", "first", "all"] = "none"
        """Which layers of the encoder also read from the end to the beginning."""
        shared: bool = True
        """Whether source and target words share one embedding matrix."""

        @property
        def encoder(self) -> DeepEncoder.Settings:
            own = {name: getattr(self, name) for name in DeepEncoder.Settings.model_fields}
            return DeepEncoder.Settings(**{**own, "kind": "deep-encoder", "depth": self.encoder_depth or self.depth})

    def __init__(self, settings: Settings, vocab_size: int, conditions: int = 0) -> None:
        embedding = TokenEmbedding(vocab_size, settings.width)
        shared = embedding if settings.shared else None
        encoder = DeepEncoder(settings.encoder, vocab_size, conditions, shared)
        self.join(encoder, RecurrentDecoder(settings, vocab_size, encoder.width, embedding))


def _layers(settings: DeepEncoder.Settings, between: nn.Module) -> list[Recurrent]:
    """Make the layers that read both ways, then the others."""
    width, depth = settings.width, settings.depth
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


def _layer(settings: DeepEncoder.Settings | RecurrentDecoder.Settings, number: int, below: int, width: int) -> Cell:
    """Make a cell. Above the first layer, input weights start large enough for its output to be as large as its input:
    if each of three layers shrank it to 0.4, states would hardly differ between positions, and attention could not tell
    them apart."""
    cell = settings.made(number, below, width)
    if number and cell.shrinks is not None:
        for block in torch.split(cell.input.weight.data, width):
            nn.init.orthogonal_(block, 1 / cell.shrinks)
    return cell


def _shared(state: State) -> dict[str, Tensor | None]:
    assert state.shared is not None
    return {**state.shared, "owner": state.owner}

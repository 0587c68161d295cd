"""The convolutional translator: stacks of gated convolutions, and attention in every layer of the decoder.

B rows · T target positions · S sources · N source positions · D width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.models.conv import GatedConvolution
from seqlab.models.language_model import Output, State, TokenModel, or_empty, owners, real_lengths
from seqlab.nn.attention import CrossAttention, Source, room_for
from seqlab.nn.convolution import last_positions
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import Conditions, TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.positions import sinusoids
from seqlab.recipe import PartSettings


class ConvolutionalTranslator(TokenModel):
    """y = E[source] + P and x = E[target] + P; then in each layer y ← y + a ∘ σ(g), [a; g] a convolution around each
    position, x ← x + a ∘ σ(g) with one over those before it, and x ← x + what x finds in y; p = softmax(E norm(x)).

    Gehring et al. 2017, https://arxiv.org/abs/1705.03122, with layer norms and sinusoids.
    """

    class Settings(PartSettings):
        width: int = Field(default=128, gt=0)
        depth: int = Field(default=4, gt=0, le=1000)
        """Layers of the encoder, and of the decoder."""
        taps: int = Field(default=3, gt=1, le=1001)
        """Positions that a layer looks at: an odd number, as many on either side in the encoder."""
        dropout: float = Field(default=0.0, ge=0, lt=1)
        shared: bool = True
        """One matrix for the words of the source and of the target."""
        output: OutputSettings = Field(default={"kind": "softmax", "bias": False}, validate_default=False)  # type: ignore[assignment]

        @field_validator("taps")
        @classmethod
        def _odd(cls, value: int) -> int:
            if value % 2 == 0:
                raise ValueError("should be odd")
            return value

    def __init__(self, settings: Settings, vocab_size: int, conditions: int = 0) -> None:
        super().__init__()
        self.vocab_size, self.width, width = vocab_size, settings.width, settings.width
        self.embedding = TokenEmbedding(vocab_size, width)
        self.source_embedding = None if settings.shared else TokenEmbedding(vocab_size, width)
        self.conditions = Conditions(vocab_size, conditions, width)
        self.dropout = Dropout(settings.dropout)
        self.encoder: Sequence[GatedConvolution] = nn.ModuleList(  # type: ignore[assignment]
            GatedConvolution(width, settings.taps, 1) for _ in range(settings.depth)
        )
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder: Sequence[LookingConvolution] = nn.ModuleList(  # type: ignore[assignment]
            LookingConvolution(width, settings.taps, self.dropout) for _ in range(settings.depth)
        )
        self.norm = nn.LayerNorm(width)
        self.output = output_layer(settings.output, width, vocab_size, self.embedding)
        for table in (self.embedding, self.source_embedding, self.conditions.names, self.conditions.sizes):
            if table is not None:
                nn.init.normal_(table.weight, std=width**-0.5)

    def encode(self, source: Mapping[str, Tensor]) -> Tensor:
        """The states of sources: (S, N, D)."""
        real = source["mask"][..., None]
        y = self._placed(self.conditions(source, self.source_embedding or self.embedding))
        for block in self.encoder:
            sides = F.pad(block.norm(y) * real, [0, 0, block.convolution.past // 2, block.convolution.past // 2])
            past = block.convolution.past
            gated, _ = block.convolution(sides[:, past:], sides[:, :past])
            y = y + self.dropout(F.glu(gated, dim=-1))
        return self.encoder_norm(y)  # type: ignore[no-any-return]

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        source = or_empty(source, self.embedding.weight)
        room = [0, room_for(source["tokens"].shape[1]) - source["tokens"].shape[1]]
        return self._state({name: F.pad(tensor, room) for name, tensor in source.items()}, rows)

    def _state(self, source: Mapping[str, Tensor], rows: int) -> State:
        y = self.encode(source)
        lengths = torch.zeros(rows, dtype=torch.long, device=y.device)
        past = self.decoder[0].convolve.convolution.past
        pasts = {f"past.{layer}": y.new_zeros(rows, past, self.width) for layer in range(len(self.decoder))}
        shared = {"real": source["mask"]}
        for layer, block in enumerate(self.decoder):
            shared[f"keys.{layer}"], shared[f"values.{layer}"] = block.look.read(y)
        return State(pasts, lengths, shared, owners(len(y), lengths))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        if state is None:
            state = self._state(or_empty(source, self.embedding.weight, len(tokens)), len(tokens))
        after, lengths = state.consume(), real_lengths(tokens, mask)
        assert after.shared is not None
        places = after.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        x = self._placed(self.embedding(tokens), places)
        for layer, block in enumerate(self.decoder):
            keys, values = after.shared[f"keys.{layer}"], after.shared[f"values.{layer}"]
            look = Source(keys, values, after.shared["real"], after.owner)
            x, history = block(x, after.rows[f"past.{layer}"], look)
            after.rows[f"past.{layer}"] = last_positions(history, block.convolve.convolution.past, lengths)
        after.lengths = after.lengths + lengths
        return Output(self.norm(x), after)

    def _placed(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device) if places is None else places
        return self.dropout(x * self.width**0.5 + sinusoids(places, self.width, x))  # type: ignore[no-any-return]


class LookingConvolution(nn.Module):
    """x + a ∘ σ(g) over the positions before, then x + what it finds in the source"""

    def __init__(self, width: int, taps: int, dropout: nn.Module) -> None:
        super().__init__()
        self.convolve = GatedConvolution(width, taps, 1)
        self.norm_look, self.look = nn.LayerNorm(width), CrossAttention(width, 1)
        self.dropout = dropout

    def forward(self, x: Tensor, before: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        change, history = self.convolve(x, before)
        x = x + self.dropout(change)
        return x + self.dropout(self.look(self.norm_look(x), source)), history

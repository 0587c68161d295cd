"""The convolutional translator: stacks of gated convolutions, with attention in every layer of the decoder.

B rows · T target positions · S sources · N source positions · D width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.models.conv import GatedConvolution
from seqlab.models.encoder import Encoded, Encoder
from seqlab.models.language_model import Output, State, real_lengths
from seqlab.models.translator import Decoder, Translator, owners
from seqlab.nn.attention import CrossAttention, Source
from seqlab.nn.convolution import last_positions
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import Conditions, TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.positions import sinusoids
from seqlab.nn.recording import note
from seqlab.recipe import PartSettings


class ConvolutionalEncoder(Encoder):
    """y = √D E[source] + P; in each layer y ← y + a ∘ σ(g), where [a; g] is a convolution centred on each position;
    then a norm"""

    class Settings(PartSettings):
        width: int = Field(default=128, gt=0)
        depth: int = Field(default=4, gt=0, le=1000)
        kernel_size: int = Field(default=3, gt=1, le=1001)
        """Number of positions that a layer reads; odd, so that it reads the same number on either side."""
        dropout: float = Field(default=0.0, ge=0, lt=1)

        @field_validator("kernel_size")
        @classmethod
        def _odd(cls, value: int) -> int:
            if value % 2 == 0:
                raise ValueError("should be odd")
            return value

    takes = ("conditions",)

    def __init__(
        self, settings: Settings, vocab_size: int, conditions: int = 0, embedding: TokenEmbedding | None = None
    ) -> None:
        super().__init__()
        self.width = settings.width
        self.embedding = TokenEmbedding(vocab_size, self.width) if embedding is None else embedding
        self.conditions = Conditions(vocab_size, conditions, self.width)
        self.dropout = Dropout(settings.dropout)
        self.layers: Sequence[GatedConvolution] = nn.ModuleList(  # type: ignore[assignment]
            GatedConvolution(self.width, settings.kernel_size, 1) for _ in range(settings.depth)
        )
        self.norm = nn.LayerNorm(self.width)

    def forward(self, batch: Mapping[str, Tensor]) -> Encoded:
        real = batch["mask"][..., None]
        y = self.dropout(_placed(self.conditions(batch, self.embedding)))
        for layer in self.layers:
            past = layer.convolution.past
            sides = F.pad(layer.norm(y) * real, [0, 0, past // 2, past // 2])
            both, _ = layer.convolution(sides[:, past:], sides[:, :past])
            y = y + self.dropout(layer.gated(both))
        return Encoded(self.norm(y), batch["mask"])


class ConvolutionalDecoder(Decoder):
    """x = √D E[target] + P; in each layer x ← x + a ∘ σ(g), where [a; g] is a causal convolution, then
    x ← x + cross_attend(x); p = softmax(E norm(x))"""

    class Settings(ConvolutionalEncoder.Settings):
        output: OutputSettings = Field(default={"kind": "softmax", "bias": False}, validate_default=False)  # type: ignore[assignment]

    def __init__(
        self, settings: Settings, vocab_size: int, source_width: int, embedding: TokenEmbedding | None = None
    ) -> None:
        super().__init__()
        self.vocab_size, self.width = vocab_size, settings.width
        self.embedding = TokenEmbedding(vocab_size, self.width) if embedding is None else embedding
        self.dropout = Dropout(settings.dropout)
        self.layers: Sequence[AttendingConvolution] = nn.ModuleList(  # type: ignore[assignment]
            AttendingConvolution(self.width, settings.kernel_size, source_width, self.dropout)
            for _ in range(settings.depth)
        )
        self.norm = nn.LayerNorm(self.width)
        self.output = output_layer(settings.output, self.width, vocab_size, self.embedding)

    def start(self, encoded: Encoded, rows: int) -> State:
        y = encoded.states
        lengths = torch.zeros(rows, dtype=torch.long, device=y.device)
        past = self.layers[0].convolve.convolution.past
        pasts = {f"past.{number}": y.new_zeros(rows, past, self.width) for number in range(len(self.layers))}
        shared = {"real": encoded.mask}
        for number, layer in enumerate(self.layers):
            k, v = layer.cross_attend.read(y)
            shared |= {f"keys.{number}": k.contiguous(), f"values.{number}": v.contiguous()}
        return State(pasts, lengths, shared, owners(len(y), lengths))

    def write(self, tokens: Tensor, encoded: Encoded, mask: Tensor | None = None) -> Output:
        output: Output = self(tokens, self.start(encoded, len(tokens)), mask)
        return output

    def forward(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Output:
        after, lengths = state.consume(), real_lengths(tokens, mask)
        assert after.shared is not None
        places = after.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(_placed(self.embedding(tokens), places))
        for number, layer in enumerate(self.layers):
            keys, values = after.shared[f"keys.{number}"], after.shared[f"values.{number}"]
            source = Source(keys, values, after.shared["real"], after.owner)
            x, history = layer(x, after.rows[f"past.{number}"], source)
            after.rows[f"past.{number}"] = last_positions(history, layer.convolve.convolution.past, mask)
        after.lengths = after.lengths + lengths
        return Output(self.norm(x), after)


class AttendingConvolution(nn.Module):
    """x + a ∘ σ(g) by a causal convolution, then x + cross_attend(x)"""

    def __init__(self, width: int, kernel_size: int, source_width: int, dropout: nn.Module) -> None:
        super().__init__()
        self.convolve = GatedConvolution(width, kernel_size, 1)
        self.norm_cross_attend, self.cross_attend = (
            nn.LayerNorm(width),
            CrossAttention(width, 1, source_width=source_width),
        )
        self.dropout = dropout

    def forward(self, x: Tensor, before: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        change, history = self.convolve(x, before)
        x = x + self.dropout(change)
        return note(self, "output", x + self.dropout(self.cross_attend(self.norm_cross_attend(x), source))), history


class ConvolutionalTranslator(Translator):
    """Gehring et al. 2017, https://arxiv.org/abs/1705.03122, with layer norms and sinusoids."""

    class Settings(ConvolutionalDecoder.Settings):
        shared: bool = True
        """Whether source and target words share one embedding matrix."""

    def __init__(self, settings: Settings, vocab_size: int, conditions: int = 0) -> None:
        embedding = TokenEmbedding(vocab_size, settings.width)
        encoder = ConvolutionalEncoder(settings, vocab_size, conditions, embedding if settings.shared else None)
        self.join(encoder, ConvolutionalDecoder(settings, vocab_size, encoder.width, embedding))


def _placed(x: Tensor, places: Tensor | None = None) -> Tensor:
    places = torch.arange(x.shape[1], device=x.device) if places is None else places
    return x * float(x.shape[-1] ** 0.5) + sinusoids(places, x.shape[-1], x)

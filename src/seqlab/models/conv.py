"""The convolutional language model: each layer looks a few positions back, and a stack of layers far back.

B rows · T positions · D width · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.models.language_model import Output, State, TokenModel, no_source, real_lengths
from seqlab.nn.convolution import CausalConvolution, last_positions
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.recording import changed, note, recorded
from seqlab.recipe import PartSettings

LONGEST_PAST = 1 << 16
"""The most positions that a stack may look back. Each row stores all of them, with zeros before the text."""


class ConvolutionalLanguageModel(TokenModel):
    """x = E[w], then in `depth` layers x ← x + a ∘ σ(g) with [a; g] = convolution(norm(x)); p = softmax(W norm(x) + b)

    Dauphin et al. 2017, https://arxiv.org/abs/1612.08083. With kernels of K positions and growth 1, a stack
    sees depth · (K − 1) earlier positions. With growth 2, the dilation doubles from layer to layer, and the stack sees
    (2^depth − 1)(K − 1) earlier positions (van den Oord et al. 2016, https://arxiv.org/abs/1609.03499).
    """

    class Settings(PartSettings):
        width: int = Field(default=192, gt=0)
        depth: int = Field(default=5, gt=0, le=1000)
        kernel_size: int = Field(default=3, gt=1, le=LONGEST_PAST)
        """Number of positions that a layer reads."""
        growth: int = Field(default=2, gt=0, le=LONGEST_PAST)
        """Factor by which the dilation grows from layer to layer."""
        dropout: float = Field(default=0.0, ge=0, lt=1)
        output: OutputSettings = Field(default="softmax", validate_default=False)  # type: ignore[assignment]

        @model_validator(mode="after")
        def _past_is_bounded(self) -> ConvolutionalLanguageModel.Settings:
            past = 0
            for layer in range(self.depth):
                past += (self.kernel_size - 1) * self.growth**layer
                if past > LONGEST_PAST:
                    layers = f"{layer + 1} of {self.depth} layers" if layer else "one layer"
                    given = f"kernel_size {self.kernel_size} and growth {self.growth}"
                    raise ValueError(f"with {given} {layers} look back {past:,} positions, more than {LONGEST_PAST:,}")
            return self

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        width = settings.width
        self.embedding = TokenEmbedding(vocab_size, width)
        self.dropout = Dropout(settings.dropout)
        self.blocks: Sequence[GatedConvolution] = nn.ModuleList(  # type: ignore[assignment]
            GatedConvolution(width, settings.kernel_size, settings.growth**layer) for layer in range(settings.depth)
        )
        self.norm = nn.LayerNorm(width)
        self.output = output_layer(settings.output, width, vocab_size, self.embedding)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    @property
    def receptive_field(self) -> int:
        """The number of tokens that a prediction depends on."""
        return 1 + sum(block.convolution.past for block in self.blocks)

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        no_source(self, source)
        weight = self.embedding.weight
        pasts = {
            f"past.{layer}": weight.new_zeros(rows, block.convolution.past, weight.shape[1])
            for layer, block in enumerate(self.blocks)
        }
        return State(pasts, torch.zeros(rows, dtype=torch.long, device=weight.device))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        no_source(self, source)
        after = (state or self.start(rows=len(tokens))).consume()
        lengths = real_lengths(tokens, mask)
        x = self.dropout(self.embedding(tokens))
        for layer, block in enumerate(self.blocks):
            change, history = block(x, after.rows[f"past.{layer}"])
            after.rows[f"past.{layer}"] = last_positions(history, block.convolution.past, mask)
            x = x + self.dropout(change)
        after.lengths = after.lengths + lengths
        return Output(self.norm(x), after)


class GatedConvolution(nn.Module):
    """a ∘ σ(g), [a; g] = convolution(norm(x))"""

    def __init__(self, width: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.convolution = CausalConvolution(width, 2 * width, kernel_size, dilation)

    def forward(self, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        both, history = self.convolution(self.norm(x), before)
        return self.gated(both), history

    def gated(self, both: Tensor) -> Tensor:
        a, g = both.chunk(2, dim=-1)
        if changed(self, "gate"):
            return note(self, "output", a * note(self, "gate", torch.sigmoid(g)))
        if recorded(self, "gate"):
            note(self, "gate", torch.sigmoid(g))
        return note(self, "output", F.glu(both, dim=-1))

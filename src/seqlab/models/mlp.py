"""The fixed-window language model: a multilayer perceptron over the last few tokens.

B rows · T positions · N window · D width of an embedding · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from seqlab.models.language_model import Output, State, TokenModel, no_source, real_lengths
from seqlab.nn.convolution import last_positions
from seqlab.nn.dropout import Dropout
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.output import OutputSettings, output_layer
from seqlab.nn.recording import note
from seqlab.recipe import PartSettings

NOTHING = -1
"""Stands for a token before the beginning of the text."""


class MLP(TokenModel):
    """e = [E[w_{t−N+1}]; …; E[w_t]], h = f(W e + c), p(w_{t+1}) = softmax(V h + b)

    Bengio et al. 2003, A neural probabilistic language model. With one-hot inputs, e has N · V entries, N of them 1.
    """

    class Settings(PartSettings):
        window: int = Field(default=8, gt=0)
        """Number of tokens that the model reads."""
        input: Literal["embedded", "one-hot"] = "embedded"
        """Whether tokens are embedded or one-hot vectors."""
        width: int = Field(default=64, gt=0)
        """Width of a token embedding."""
        hidden_width: int = Field(default=512, gt=0)
        """Width of the hidden layer."""
        activation: Literal["tanh", "sigmoid", "relu"] = "tanh"
        dropout: float = Field(default=0.0, ge=0, lt=1)
        output: OutputSettings = Field(default={"kind": "softmax", "tied": False}, validate_default=False)  # type: ignore[assignment]

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size, self.window = vocab_size, settings.window
        self.dropout = Dropout(settings.dropout)
        self.activation = getattr(torch, settings.activation)
        one_hot = settings.input == "one-hot"
        self.embedding = None if one_hot else TokenEmbedding(vocab_size, settings.width)
        self.hidden: nn.Linear | OneHotLinear = (
            OneHotLinear(settings.window, vocab_size, settings.hidden_width)
            if one_hot
            else nn.Linear(settings.window * settings.width, settings.hidden_width)
        )
        self.output = output_layer(settings.output, settings.hidden_width, vocab_size, self.embedding)
        if self.embedding is not None:
            nn.init.normal_(self.embedding.weight, std=settings.width**-0.5)

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        no_source(self, source)
        device = self.hidden.bias.device
        read = torch.full((rows, self.window - 1), NOTHING, device=device)
        return State({"read": read}, torch.zeros(rows, dtype=torch.long, device=device))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        no_source(self, source)
        after = (state or self.start(rows=len(tokens))).consume()
        history = torch.cat([after.rows["read"], tokens], 1)
        windows = history.unfold(1, self.window, 1)  # (B, T, N)
        h = note(self, "hidden", self.activation(self.hidden(self._embed(windows))))
        lengths = real_lengths(tokens, mask)
        after.rows["read"] = last_positions(history, self.window - 1, mask)
        after.lengths = after.lengths + lengths
        return Output(self.dropout(h), after)

    def _embed(self, windows: Tensor) -> Tensor:
        """(B, T, N) → (B, T, N · D), with zeros before the text. One-hot inputs stay ids."""
        if self.embedding is None:
            return windows
        x = self.embedding(windows.clamp(min=0)) * (windows != NOTHING)[..., None]
        return self.dropout(x.flatten(2))  # type: ignore[no-any-return]


class OneHotLinear(nn.Module):
    """W e + c for N one-hot vectors e side by side: the sum of N columns of W."""

    def __init__(self, window: int, vocab_size: int, out: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.columns = nn.Embedding(window * vocab_size, out)
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.normal_(self.columns.weight, std=window**-0.5)

    def forward(self, windows: Tensor) -> Tensor:
        """(B, T, N) ids → (B, T, out)"""
        offsets = torch.arange(windows.shape[-1], device=windows.device) * self.vocab_size
        columns = self.columns(windows.clamp(min=0) + offsets) * (windows != NOTHING)[..., None]
        return columns.sum(-2) + self.bias  # type: ignore[no-any-return]

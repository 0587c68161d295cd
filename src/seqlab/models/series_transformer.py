"""A causal Transformer that forecasts.

B rows · T steps · C variables · D width
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from seqlab.models.forecasters import Forecaster, changed, dense
from seqlab.nn.attention import Places, SelfAttention
from seqlab.nn.blocks import Block, TransformerSettings, feed_forward, start_as_gpt2
from seqlab.nn.dropout import Dropout
from seqlab.nn.positions import AnyPosition, position
from seqlab.nn.recording import note
from seqlab.nn.summary import last
from seqlab.recipe import PartSettings


class SeriesTransformer(Forecaster):
    """a_t = W x_t + b + P_t, through `depth` causal blocks and a norm; y_t is a linear map of the result.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, with norms before the parts.
    """

    every_step = True

    class Settings(PartSettings, TransformerSettings):
        from_last: bool = False
        """Whether to forecast the change from the last value."""
        position: AnyPosition = Field(default="sinusoidal", validate_default=False)  # type: ignore[assignment]

    def __init__(self, settings: Settings, inputs: int, outputs: int, horizon: int) -> None:
        super().__init__()
        self.width, self.shape, self.needs_past = settings.width, (horizon, outputs), settings.from_last
        self.dropout = Dropout(settings.dropout)
        self.position = position(settings.position, settings.shape())
        self.blocks = nn.ModuleList(_block(settings) for _ in range(settings.depth))
        self.norm = settings.new_norm() if settings.norm_first else nn.Identity()
        start_as_gpt2(self, settings.depth)
        embedded = settings.embedded(settings.position)
        self.input, self.head = dense(inputs, embedded), dense(self.width, horizon * outputs)

    def forward(self, inputs: Tensor, mask: Tensor | None = None, every: bool = False) -> Tensor:
        a = self.input(inputs)
        self.position.check(a.shape[1])
        time = torch.arange(a.shape[1], device=a.device)
        a = note(self, "embedded", self.dropout(self.position.embed(a, time)))
        places = self.position.placed(Places(time, len(time)), a)
        for block in self.blocks:
            a = block(a, places=places)
        states = self.norm(a if every else last(a, mask)[:, None])
        forecasts: Tensor = self.head(states).unflatten(-1, self.shape)
        return changed(inputs, forecasts, mask) if self.needs_past else forecasts


def _block(settings: SeriesTransformer.Settings) -> Block:
    return Block(
        SelfAttention(**settings.attention),
        feed_forward(settings),
        settings.new_norm,
        settings.dropout,
        norm_first=settings.norm_first,
    )

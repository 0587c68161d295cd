"""A causal Transformer that forecasts.

B rows · T steps · C variables · D width
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.models.forecasters import Forecaster, changed, dense
from seqlab.nn.blocks import Tower, start_as_gpt2
from seqlab.nn.dropout import Dropout
from seqlab.nn.positions import sinusoids
from seqlab.nn.summary import last
from seqlab.recipe import PartSettings


class SeriesTransformer(Forecaster):
    """a_t = W x_t + b + P_t through `depth` causal blocks and a norm; y_t is a linear map of it.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, with norms before the parts.
    """

    every_step = True

    class Settings(PartSettings, Tower):
        from_last: bool = False
        """Whether to forecast the change from the last value."""

    def __init__(self, settings: Settings, inputs: int, outputs: int, horizon: int) -> None:
        super().__init__()
        self.width, self.shape, self.needs_past = settings.width, (horizon, outputs), settings.from_last
        self.dropout = Dropout(settings.dropout)
        self.blocks = settings.built()
        self.norm = settings.last_norm()
        start_as_gpt2(self, settings.depth)
        self.input, self.head = dense(inputs, self.width), dense(self.width, horizon * outputs)

    def forward(self, inputs: Tensor, mask: Tensor | None = None, every: bool = False) -> Tensor:
        a = self.input(inputs)
        a = self.dropout(a + sinusoids(torch.arange(a.shape[1], device=a.device), a))
        for block in self.blocks:
            a = block(a)
        states = self.norm(a if every else last(a, mask)[:, None])
        forecasts: Tensor = self.head(states).unflatten(-1, self.shape)
        return changed(inputs, forecasts, mask) if self.needs_past else forecasts

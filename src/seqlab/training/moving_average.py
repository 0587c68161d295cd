"""A running average of the weights, which generalises better than the last weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """w̄ ← d w̄ + (1 − d) w after each step t, where d = min(decay, (1 + t) / (10 + t)) makes it forget the start.

    Polyak & Juditsky 1992; exponential, as in Tarvainen & Valpola 2017, https://arxiv.org/abs/1703.01780
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.others = {name: p.detach().clone() for name, p in self.weights.items()}
        """The average, or the last weights while the average is in use."""

    @torch.no_grad()
    def update(self, step: int) -> None:
        keep = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.others.values()), list(self.weights.values()), 1 - keep)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Use the average as the weights, to evaluate, sample or save."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def restore(self, last: Mapping[str, Tensor]) -> None:
        """Keep the average, which was loaded into the module, and continue from the last weights."""
        for name, weight in self.weights.items():
            self.others[name].copy_(weight.detach())
            weight.data.copy_(last[name])

    def _swap(self) -> None:
        for name, weight in self.weights.items():
            weight.data, self.others[name] = self.others[name], weight.data

"""Filters, which change logits before a token is chosen. Each is a function (B, V) → (B, V), row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Filter(Protocol):
    def __call__(self, logits: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Temperature:
    """(logits − max) / T: T < 1 sharpens the distribution, T > 1 flattens it. The largest stays at 0 for any T."""

    temperature: float

    def __call__(self, logits: Tensor) -> Tensor:
        return (logits - logits.amax(-1, keepdim=True)) / max(self.temperature, torch.finfo(logits.dtype).tiny)


@dataclass(frozen=True)
class TopK:
    """Keeps only the k most likely tokens, and ties with the last of them."""

    k: int

    def __call__(self, logits: Tensor) -> Tensor:
        border = logits.topk(min(self.k, logits.shape[-1])).values[:, -1:]
        return logits.masked_fill(logits < border, -torch.inf)


@dataclass(frozen=True)
class TopP:
    """Keeps the smallest set of most likely tokens whose total probability reaches p (nucleus sampling).

    Holtzman et al. 2020, https://arxiv.org/abs/1904.09751
    """

    p: float

    def __call__(self, logits: Tensor) -> Tensor:
        ranked, order = logits.sort(descending=True, stable=True)
        probabilities = ranked.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        ranked = ranked.masked_fill(before >= self.p, -torch.inf)
        return torch.empty_like(logits).scatter_(-1, order, ranked)

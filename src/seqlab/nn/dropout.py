"""Dropout in the forms that need to know nothing about the layer they are applied to.

B batch · T time · D width · V vocabulary
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

Mask = Literal["position", "sequence"]
"""The extent of a dropout mask: one position, or a whole sequence (variational)."""


def dropout(rate: float, mask: Mask = "position") -> nn.Module:
    return Dropout(rate) if mask == "position" else VariationalDropout(rate)


class Dropout(nn.Dropout):
    """Sets each number to zero with probability p, and divides the others by 1 − p.

    Hand-written on the CPU, where the library draws 64 random bits per number: sixteen are enough, and take a third of
    the time (benchmarks/small_parts.py).
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        dropped = round(self.p * 2**16)
        kept = bits[: x.numel()] >= dropped - 2**15
        return x * torch.mul(kept, 2**16 / (2**16 - dropped)).to(x.dtype).view(x.shape)


class VariationalDropout(nn.Module):
    """x ∘ m, with one mask m for all positions of a sequence: (B, T, D) ∘ (B, 1, D).

    Gal & Ghahramani 2016, https://arxiv.org/abs/1512.05287
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        return x * nn.functional.dropout(torch.ones_like(x[:, :1]), self.rate)


class EmbeddingDropout(nn.Module):
    """Drops whole words: all occurrences of a word in a batch become zero together.

    Gal & Ghahramani 2016; Merity et al. 2018, https://arxiv.org/abs/1708.02182
    """

    def __init__(self, rate: float, vocab_size: int) -> None:
        super().__init__()
        self.rate, self.vocab_size = rate, vocab_size

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x (..., D), the embeddings of tokens (...)."""
        if not self.training or self.rate == 0:
            return x
        kept = nn.functional.dropout(x.new_ones(self.vocab_size), self.rate)
        return x * kept[tokens][..., None]

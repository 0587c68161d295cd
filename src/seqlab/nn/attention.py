"""Self-attention over heads, with or without a cache of keys and values.

B batch · T time · C capacity of the cache · D width · H heads · K head width = D / H
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BLOCK = 16
"""Lengths in the cache are rounded up to this: on the CPU the bits of a row then do not depend on other rows."""


@dataclass
class Cache:
    """Keys and values of one layer, (B, C, H, K) each; new ones are written at `positions` (B, T)."""

    keys: Tensor
    values: Tensor
    positions: Tensor
    visible: Tensor
    """(B, 1, T, C'): which of the first C' entries a position may look at."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(len(k), device=k.device)[:, None]
        if k.requires_grad:  # earlier positions are still needed as they were, for the backward pass
            self.keys = self.keys.index_put((rows, self.positions), k)
            self.values = self.values.index_put((rows, self.positions), v)
        else:
            self.keys[rows, self.positions] = k
            self.values[rows, self.positions] = v
        length = self.visible.shape[-1]
        return self.keys[:, :length], self.values[:, :length]


class SelfAttention(nn.Module):
    """q, k, v = W x; softmax(q kᵀ / √K) v for each head, causal; then an output map.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads, self.dropout = heads, dropout
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        split = self.query_key_value(x).unflatten(-1, (3, self.heads, -1))  # (B, T, 3, H, K)
        q, k, v = split.unbind(2)
        dropout = self.dropout if self.training else 0.0
        if cache is None:  # padding comes last, where causal attention never looks
            attended = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), dropout_p=dropout, is_causal=True
            )
        else:
            k, v = cache.append(k, v)
            attended = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), cache.visible, dropout_p=dropout
            )
        return self.output(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def room_for(length: int) -> int:
    return -(-length // BLOCK) * BLOCK

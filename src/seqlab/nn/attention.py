"""Attention over heads: to the sequence itself, with or without a cache of keys and values, and to a source.

B batch · T time · C capacity of the cache, C' of it in use · D width · H heads · K head width = D / H
S sources · N source positions
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.nn.recording import note, recording

BLOCK = 16
"""Lengths in the cache are rounded up to this: on the CPU the bits of a row then do not depend on other rows."""


@dataclass
class Places:
    """Where new positions (B, T) belong in the caches, of which the first `length` are in use; one for all layers."""

    positions: Tensor
    length: int
    trace: Tensor | None = None
    """In which row of the caches each position of each row stands, where that is not its own: `State.trace`."""

    @cached_property
    def rows(self) -> Tensor:
        return torch.arange(len(self.positions), device=self.positions.device)[:, None]

    @cached_property
    def hidden(self) -> Tensor:
        """(B, 1, T, C'), added to scores: −∞ where a position may not look, else 0."""
        later = torch.arange(self.length, device=self.positions.device) > self.positions[:, None, :, None]
        return torch.zeros(later.shape, device=later.device).masked_fill_(later, -torch.inf)


@dataclass
class Cache:
    """Keys and values of one layer, (B, H, C, K) each: head by head, the order in which they are read."""

    keys: Tensor
    values: Tensor
    places: Places

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write k and v (B, T, H, K) to their places → all that is in use, (B, H, C', K) each."""
        assert self.places.trace is None
        if k.requires_grad:  # earlier positions are still needed as they were, for the backward pass
            self.keys, self.values = self.keys.clone(), self.values.clone()
        rows, positions, length = self.places.rows, self.places.positions, self.places.length
        self.keys[rows, :, positions] = k
        self.values[rows, :, positions] = v
        return self.keys[:, :, :length], self.values[:, :, :length]


class SelfAttention(nn.Module):
    """q, k, v = W x; softmax(q kᵀ / √K) v for each head; then an output map.

    Where it is causal, a position looks at itself and at those before it. Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, causal: bool = True) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, cache: Cache | None = None, mask: Tensor | None = None) -> Tensor:
        """`mask` (B, T) says which positions are real, for those that look ahead; padding comes last.

        x is (B, T, D), or the R real positions alone, (R, D): nothing is computed where there is padding.
        """
        flat = x.dim() == 2
        qkv = self.query_key_value(x)
        if flat:
            assert mask is not None
            qkv = spread(qkv, mask)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).unbind(2)  # (B, T, H, K) each
        dropout = self.dropout if self.training else 0.0
        if cache is None:  # where padding is, causal attention never looks
            real = None if mask is None or self.causal else mask[:, None, None]
            q, k, v = (one.transpose(1, 2) for one in (q, k, v))
            attended = F.scaled_dot_product_attention(q, k, v, real, dropout_p=dropout, is_causal=self.causal)
        else:
            k, v = cache.append(k, v)
            hidden = cache.places.hidden.to(q.dtype)
            attended = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, hidden, dropout_p=dropout)
        attended = attended.transpose(1, 2).flatten(2)
        return self.output(attended[mask] if flat else attended)  # type: ignore[no-any-return]


@dataclass
class Source:
    """Keys and values of sources for one layer, (S, H, N, K) each, and what is real of them, (S, N).

    Row b looks at source `owner[b]`; without owners, each row at its own.
    """

    keys: Tensor
    values: Tensor
    real: Tensor
    owner: Tensor | None = None

    @cached_property
    def lengths(self) -> Tensor:
        """How many positions are real, which come first: (S,)."""
        return self.real.sum(1)

    def attended(self, q: Tensor, dropout: float = 0.0) -> Tensor:
        """What queries (B, T, H, K) find: the same shape."""
        shape = q.shape
        q, k, v, real = meet(q, self.owner, self.keys, self.values, self.real)
        q = q.transpose(1, 2)
        if recording():
            scores = (q @ k.mT / shape[-1] ** 0.5).masked_fill(~real[:, None, None], -torch.inf)
            note(attention=scores.softmax(-1).transpose(1, 2).reshape(*shape[:3], -1))
        found = F.scaled_dot_product_attention(q, k, v, real[:, None, None], dropout_p=dropout)
        return found.transpose(1, 2).reshape(shape)


def meet(queries: Tensor, owner: Tensor | None, *shared: Tensor) -> tuple[Tensor, ...]:
    """Queries (B, T, ...) and what they look at, (S, ...) each, with the same number of rows.

    Row b looks at `owner[b]`. Where the rows of a source stand together, equally many of each, they become so many
    more positions of one row, and nothing of the source is copied: (S, B / S · T, ...).
    """
    if owner is None:
        return queries, *shared
    sources = len(shared[0])
    each, rest = divmod(len(queries), sources)
    if not rest and torch.equal(owner, torch.arange(sources, device=owner.device).repeat_interleave(each)):
        return queries.reshape(sources, -1, *queries.shape[2:]), *shared
    return queries, *(one.index_select(0, owner) for one in shared)


class CrossAttention(nn.Module):
    """q = W x of the target, k, v = W y of the source; softmax(q kᵀ / √K) v for each head; then an output map.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def read(self, states: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The states of sources (S, N, D), or of their real positions alone, (R, D) → their keys and values,
        (S, H, N, K) each."""
        pairs = self.key_value(states) if real is None else spread(self.key_value(states), real)
        k, v = pairs.unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return k, v

    def forward(self, x: Tensor, source: Source) -> Tensor:
        q = self.query(x).unflatten(-1, (self.heads, -1))
        return self.output(source.attended(q, self.dropout if self.training else 0.0).flatten(2))  # type: ignore[no-any-return]


def spread(flat: Tensor, real: Tensor) -> Tensor:
    """What belongs to the real positions of (B, T), (R, D) → (B, T, D), with zeros elsewhere."""
    spread = flat.new_zeros(*real.shape, flat.shape[1])
    spread[real] = flat
    return spread


def room_for(length: int) -> int:
    return -(-length // BLOCK) * BLOCK

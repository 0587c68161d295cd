"""Multi-head attention: self-attention, with or without a cache of keys and values, and cross-attention to a source.

B batch · T time · C capacity of the cache, C' of it in use · D width · H heads · G key heads · K head width
S sources · N source positions
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.nn.attention_product import attention, computable
from seqlab.nn.fused import Fused, named_apart
from seqlab.nn.normalisers import Normaliser, softmax
from seqlab.nn.pages import PAGE, Pages
from seqlab.nn.part import Part
from seqlab.nn.recording import changed, note, recorded

BLOCK = PAGE
"""Cache lengths are rounded up to a multiple of this, so that on the CPU a row's bits do not depend on other rows."""

Rotation = tuple[Tensor, Tensor]
"""cos and sin of the angles by which pairs of numbers in a head are rotated: (B or 1, T, 1, R / 2) each."""


@dataclass
class Places:
    """The indices of the new positions, (B, T) or (T,), and the number of keys, shared by all layers.

    With caches, `length` is the part of them in use. It also holds what a `Position` adds to attention.
    """

    positions: Tensor
    length: int
    rotation: Rotation | None = None
    bias: Tensor | None = None
    """(B or 1, H, T, C'), added to the scores"""

    @cached_property
    def rows(self) -> Tensor:
        return torch.arange(len(self.positions), device=self.positions.device)[:, None]

    @cached_property
    def score_mask(self) -> Tensor:
        """Added to the scores, (B, 1, T, C'): −∞ where a position may not look, else 0. With a bias, (B, H, T, C')."""
        positions = self.positions if self.positions.dim() == 2 else self.positions[None]
        later = torch.arange(self.length, device=positions.device) > positions[:, None, :, None]
        if self.bias is not None:
            return self.bias.masked_fill(later, -torch.inf)
        return torch.zeros(later.shape, device=later.device).masked_fill_(later, -torch.inf)


class Cache(Protocol):
    """Keys and values of one layer."""

    places: Places

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store k and v (B, T, G, K) → all keys and values in use, (B, G, C', K) each."""


@dataclass
class RowCache:
    """Keys and values in rows, (B, G, C, K) each: head by head, in the order in which they are read."""

    keys: Tensor
    values: Tensor
    places: Places

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if k.requires_grad:  # the backward pass still needs the old contents
            self.keys, self.values = self.keys.clone(), self.values.clone()
        rows, positions, length = self.places.rows, self.places.positions, self.places.length
        self.keys[rows, :, positions] = k
        self.values[rows, :, positions] = v
        return self.keys[:, :, :length], self.values[:, :, :length]


@dataclass
class PagedCache:
    """Keys and values in pages that already have cells for the new positions."""

    pages: Pages
    layer: int
    places: Places
    ends: Tensor
    """The length of each row after this call, (B,); anything beyond is padding."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.pages.write(self.layer, self.places.positions, k, v)
        return self.pages.gathered(self.layer, self.places.length)


class DotProduct(Part):
    """softmax(q kᵀ / √K) v for each head: queries (B, H, T, K), keys and values (B, G, N, K) → (B, H, T, K)

    With fewer key heads than query heads, H / G neighbouring query heads share one key head (Ainslie et al. 2023,
    https://arxiv.org/abs/2305.13245). Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """

    multiply: Callable[[Tensor, Tensor], Tensor] = staticmethod(torch.matmul)
    """The matrix product. Decoding replaces it by one in which a row's bits do not depend on the other rows."""

    compiled_from: int | None = None
    """As in `LinearMap`."""

    multiple: int = 1
    """The number of queries is padded to a multiple of this. With several threads, the library places the threads'
    buffers side by side, and its products have other bits when a buffer is not aligned to 16 bytes; four queries are
    enough to align it."""

    def __init__(self, dropout: float = 0.0, scale: float | None = None, normalise: Normaliser = softmax) -> None:
        """Multiply scores by `scale`, by default 1 / √K."""
        super().__init__()
        self.dropout, self.scale, self.normalise = dropout, scale, normalise

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """A boolean `mask` is True where a score counts; any other mask is added to the scores.

        With the `lengths` of sequences (B,) that attend to themselves, a sequence's bits do not depend on the others.
        """
        dropout = self.dropout if self.training else 0.0
        plain = self.normalise is softmax and not dropout
        if plain and computable(q, k, v, mask, causal, self.compiled_from):
            return attention(q, k, v, mask, causal, self.scale)
        if lengths is not None:
            return self._by_length(q, k, v, mask, causal, lengths)
        if self.normalise is softmax:
            time, grouped = q.shape[2], q.shape[1] != k.shape[1]
            if more := -time % self.multiple:
                q = F.pad(q, [0, 0, 0, more])
                mask = mask if mask is None or mask.shape[2] == 1 else F.pad(mask, [0, 0, 0, more])
            found = F.scaled_dot_product_attention(
                q, k, v, mask, dropout_p=dropout, is_causal=causal, scale=self.scale, enable_gqa=grouped
            )
            return found[:, :, :time] if more else found
        return self.found(self.weights(q, k, mask, causal), v)

    def _by_length(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, lengths: Tensor) -> Tensor:
        """Compute sequences of the same length, rounded up, together: with more keys, even if nobody attends to them,
        the library adds up the others in another order."""
        rooms = [min(room_for(length), q.shape[2]) for length in lengths.tolist()]
        if min(rooms) == q.shape[2]:
            return self.forward(q, k, v, mask, causal)
        found = q.new_zeros(*q.shape[:3], v.shape[3])
        for room in sorted(set(rooms)):
            rows = torch.tensor([row for row, own in enumerate(rooms) if own == room], device=q.device)
            part = None if mask is None else _cut(mask if len(mask) == 1 else mask[rows], room)
            found[rows, :, :room] = self(*(one[rows, :, :room] for one in (q, k, v)), part, causal)
        return found

    def found(self, weights: Tensor, v: Tensor) -> Tensor:
        """Return the average of the values under the given weights (B, H, T, N)."""
        dropout = self.dropout if self.training else 0.0
        weights = F.dropout(weights, dropout, dropout > 0)
        return self.multiply(weights, v.repeat_interleave(weights.shape[1] // v.shape[1], 1))

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Return the attention weights of each query over the keys: (B, H, T, N)."""
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        scores = self.multiply(q, k.mT)
        scores = scores / q.shape[-1] ** 0.5 if self.scale is None else scores * self.scale
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        return self.normalise(scores)


def _cut(mask: Tensor, length: int) -> Tensor:
    """Cut a mask for `length` queries, unless it is the same for all, and as many keys."""
    return mask[..., :length] if mask.shape[2] == 1 else mask[:, :, :length, :length]


def turned(x: Tensor, rotation: Rotation | None) -> Tensor:
    """Rotate the pairs of numbers (i, i + R / 2) of x (B, T, H, K) by their angles; numbers beyond R are unchanged.

    Su et al. 2021, https://arxiv.org/abs/2104.09864
    """
    if rotation is None:
        return x
    (cos, sin), half = rotation, rotation[0].shape[-1]
    a, b = x[..., :half], x[..., half : 2 * half]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)


class SelfAttention(Part):
    """q, k, v = W x; each head attends to the sequence; then an output map.

    If causal, a position attends only to itself and to earlier positions.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        causal: bool = True,
        *,
        key_heads: int | None = None,
        head_width: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        normalise: Normaliser = softmax,
    ) -> None:
        """By default, `key_heads` equals `heads`, and the heads divide the width among them."""
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        if key_heads is not None and heads % key_heads:
            raise ValueError(f"{heads} heads are not a multiple of {key_heads} key heads")
        self.heads, self.key_heads, self.causal = heads, key_heads or heads, causal
        self.head_width = head_width or width // heads
        inner, shared = heads * self.head_width, self.key_heads * self.head_width
        self.query_key_value = Fused(width, {"query": inner, "key": shared, "value": shared}, bias)
        self.product = DotProduct(dropout, scale, normalise)
        self.output = nn.Linear(inner, width, bias=bias)
        named_apart(self)

    def forward(
        self, x: Tensor, cache: Cache | None = None, mask: Tensor | None = None, places: Places | None = None
    ) -> Tensor:
        """`mask` (B, T) marks real positions, for attention that is not causal; padding comes last.

        x is (B, T, D), or only the R real positions, (R, D), so that nothing is computed for padding. `places` carries
        what a `Position` adds; with a cache, the cache's own places are used.
        """
        flat = x.dim() == 2
        qkv = self.query_key_value(x)
        if flat:
            assert mask is not None
            qkv = spread(qkv, mask)
        split = [self.heads, self.key_heads, self.key_heads]
        q, k, v = qkv.unflatten(-1, (-1, self.head_width)).split(split, 2)  # (B, T, H, K), (B, T, G, K) twice
        places = places if cache is None else cache.places
        if places is not None:
            q, k = (turned(one, places.rotation) for one in (q, k))
        if cache is None:
            q, k, v = (one.transpose(1, 2) for one in (q, k, v))
            lengths = mask.sum(1) if flat and mask is not None else None
            heads = attended(self, q, k, v, *self._seen(mask, places), lengths=lengths)
        else:
            k, v = cache.append(k, v)
            heads = attended(self, q.transpose(1, 2), k, v, cache.places.score_mask.to(q.dtype))
        joined = heads.transpose(1, 2).flatten(2)
        return note(self, "output", self.output(joined[mask] if flat else joined))

    def _seen(self, mask: Tensor | None, places: Places | None) -> tuple[Tensor | None, bool]:
        """Return the mask for the scores, and whether attention should be causal besides."""
        real = None if mask is None or self.causal else mask[:, None, None]  # causal attention never sees padding
        if places is None or places.bias is None:
            return real, self.causal
        if self.causal:
            return places.score_mask, False
        return places.bias if real is None else places.bias.masked_fill(~real, -torch.inf), False


@dataclass
class Source:
    """Keys and values of sources for one layer, (S, G, N, K) each, and a mask of real positions, (S, N).

    Row b attends to source `owner[b]`; without owners, to source b.
    """

    keys: Tensor
    values: Tensor
    real: Tensor
    owner: Tensor | None = None

    @cached_property
    def lengths(self) -> Tensor:
        """The number of real positions, which come first: (S,)."""
        return self.real.sum(1)


@lru_cache(maxsize=64)
def _in_order(sources: int, each: int, device: torch.device) -> Tensor:
    """0, 0, ..., 1, 1, ...: the owners of rows grouped by source, `each` rows per source. Cached, since every layer
    needs it at every step."""
    return torch.arange(sources, device=device).repeat_interleave(each)


def meet(queries: Tensor, owner: Tensor | None, *shared: Tensor) -> tuple[Tensor, ...]:
    """Give queries (B, T, ...) and the tensors of their sources, (S, ...) each, the same number of rows.

    Row b attends to `owner[b]`. If rows are grouped by source, with the same number for each, the rows of a source
    become further positions of one row, (S, B / S · T, ...), and no source is copied.
    """
    if owner is None:
        return queries, *shared
    sources = len(shared[0])
    each, rest = divmod(len(queries), sources)
    if not rest and torch.equal(owner, _in_order(sources, each, owner.device)):
        return queries.reshape(sources, -1, *queries.shape[2:]), *shared
    return queries, *(one.index_select(0, owner) for one in shared)


class CrossAttention(Part):
    """q = W x of the target, k, v = W y of the source; each head attends to the source; then an output map."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        *,
        source_width: int | None = None,
        key_heads: int | None = None,
        head_width: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        normalise: Normaliser = softmax,
    ) -> None:
        """By default, the source has the target's width; the other arguments are those of `SelfAttention`."""
        super().__init__()
        self.heads, self.key_heads, self.head_width = heads, key_heads or heads, head_width or width // heads
        inner, shared = heads * self.head_width, self.key_heads * self.head_width
        self.query = nn.Linear(width, inner, bias=bias)
        self.key_value = Fused(source_width or width, {"key": shared, "value": shared}, bias)
        self.product = DotProduct(dropout, scale, normalise)
        self.output = nn.Linear(inner, width, bias=bias)
        named_apart(self)

    def read(self, states: Tensor, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The states of sources (S, N, D), or of their real positions only, (R, D) → their keys and values,
        (S, G, N, K) each."""
        pairs = self.key_value(states) if real is None else spread(self.key_value(states), real)
        k, v = pairs.unflatten(-1, (2, self.key_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return k, v

    def forward(self, x: Tensor, source: Source) -> Tensor:
        queries = self.query(x).unflatten(-1, (self.heads, -1))
        q, k, v, real = meet(queries, source.owner, source.keys, source.values, source.real)
        heads = attended(self, q.transpose(1, 2), k, v, real[:, None, None], rows=len(queries))
        return note(self, "output", self.output(heads.transpose(1, 2).flatten(2)))


def attended(
    part: SelfAttention | CrossAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool = False,
    rows: int | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return the output of each head, (B, H, T, K); note it as `heads`, and its attention weights (B, H, T, N).

    `rows` is B, for queries whose rows `meet` has merged. `lengths` are those of `DotProduct`.
    """
    rows = rows or len(q)
    if changed(part, "weights"):
        weights = note(part, "weights", _apart(part.product.weights(q, k, mask, causal), rows))
        found = part.product.found(_together(weights, len(q)), v)
    else:
        if recorded(part, "weights"):
            with torch.no_grad():  # in addition to the kernel, which does not return them
                note(part, "weights", _apart(part.product.weights(q, k, mask, causal), rows))
        found = part.product(q, k, v, mask, causal, lengths)
    return note(part, "heads", _apart(found, rows))


def _apart(x: Tensor, rows: int) -> Tensor:
    """Separate rows that `meet` has merged: (S, H, B / S · T, N) → (B, H, T, N)"""
    if len(x) == rows:
        return x
    sources, heads, _, width = x.shape
    return x.reshape(sources, heads, rows // sources, -1, width).transpose(1, 2).flatten(0, 1)


def _together(x: Tensor, sources: int) -> Tensor:
    """(B, H, T, N) → (S, H, B / S · T, N)"""
    if len(x) == sources:
        return x
    return x.reshape(sources, -1, *x.shape[1:]).transpose(1, 2).flatten(2, 3)


def spread(flat: Tensor, real: Tensor) -> Tensor:
    """Put (R, D) at the real positions of (B, T) → (B, T, D), with zeros elsewhere."""
    spread = flat.new_zeros(*real.shape, flat.shape[1])
    spread[real] = flat
    return spread


def room_for(length: int) -> int:
    return -(-length // BLOCK) * BLOCK

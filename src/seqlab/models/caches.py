"""Keys and values of Transformers in a State: in pages if all blocks can read them, otherwise in rows `keys.0`,
`values.0`, `keys.1`, ..., each (B, G, C, K).

B rows · T new positions · C capacity · G key heads · K head width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from seqlab.models.language_model import State
from seqlab.nn.attention import Cache, PagedCache, Places, RowCache, room_for
from seqlab.nn.blocks import Block
from seqlab.nn.pages import Pages
from seqlab.nn.positions import Position


def new_state(rows: int, blocks: Sequence[nn.Module], like: Tensor) -> State:
    """Return empty caches for all blocks, with the device and precision of `like`."""
    attend = cast(Block, blocks[0]).attend
    lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
    if all(getattr(block, "reads_pages", False) for block in blocks):
        pages = Pages(rows, len(blocks), attend.key_heads, attend.head_width, like)
        return State({}, lengths, pages={"cache": pages})
    shape = (rows, attend.key_heads, room_for(1), attend.head_width)
    names = [f"{part}.{layer}" for layer in range(len(blocks)) for part in ("keys", "values")]
    return State({name: like.new_zeros(shape) for name in names}, lengths)


def caches(
    state: State, positions: Tensor, mask: Tensor | None, blocks: Sequence[nn.Module], position: Position
) -> Sequence[Cache]:
    """Return the cache of each block, with room for new positions (B, T); `mask` marks the real ones."""
    length = room_for(int(positions.max()) + 1)
    if "cache" in state.pages:
        return _paged(state.pages["cache"], positions, mask, length, position)
    for name, buffer in state.rows.items():
        if (capacity := buffer.shape[2]) < length:  # grow by at least half, so that long texts are rarely copied
            state.rows[name] = _grown(buffer, max(length, room_for(capacity * 3 // 2)))
    places = position.placed(Places(positions, length), state.rows["keys.0"])
    layers = range(len(state.rows) // 2)
    return [RowCache(state.rows[f"keys.{layer}"], state.rows[f"values.{layer}"], places) for layer in layers]


def keep(state: State, layer: int, cache: Cache) -> None:
    """Store the cache of a layer, which may be a copy after it was written to."""
    if isinstance(cache, RowCache):
        state.rows[f"keys.{layer}"], state.rows[f"values.{layer}"] = cache.keys, cache.values


def _paged(
    pages: Pages, positions: Tensor, mask: Tensor | None, length: int, position: Position
) -> Sequence[PagedCache]:
    if len(positions) != len(pages.lengths):
        raise ValueError(f"{len(positions)} rows of tokens for a state of {len(pages.lengths)} rows")
    pages.extend([positions.shape[1]] * len(positions) if mask is None else mask.sum(1).tolist())
    places, ends = position.placed(Places(positions, length), pages.like), torch.tensor(pages.lengths)
    return [PagedCache(pages, layer, places, ends) for layer in range(pages.shape[0])]


def _grown(buffer: Tensor, capacity: int) -> Tensor:
    """Return a larger, zero-padded copy of a cache. (F.pad would write the old part twice.)"""
    rows, heads, length, width = buffer.shape
    grown = buffer.new_empty(rows, heads, capacity, width)
    grown[:, :, :length], grown[:, :, length:] = buffer, 0
    return grown

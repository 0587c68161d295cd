"""Keys and values of Transformers in a State: `keys.0`, `values.0`, `keys.1`, ..., each (B, H, C, K).

B rows · C capacity · H heads · K head width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.models.language_model import State
from seqlab.nn.attention import Cache, Places, room_for
from seqlab.nn.blocks import Block
from seqlab.nn.positions import Position


def new_state(rows: int, blocks: Sequence[nn.Module], like: Tensor) -> State:
    """Caches for blocks that have read nothing, on the device and in the precision of a tensor."""
    attend = cast(Block, blocks[0]).attend
    shape = (rows, attend.key_heads, room_for(1), attend.head_width)
    names = [f"{part}.{layer}" for layer in range(len(blocks)) for part in ("keys", "values")]
    lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
    return State({name: like.new_zeros(shape) for name in names}, lengths, cached=_trace(blocks))


def caches(state: State, positions: Tensor, blocks: Sequence[nn.Module], position: Position) -> list[Cache]:
    """A view of the state for each block, with room for new positions (B, T)."""
    if state.trace is not None and not (positions.shape[1] == 1 and _trace(blocks)):
        state.straighten()
    length = room_for(int(positions.max()) + 1)
    for name, buffer in state.rows.items():
        rows, capacity = max(len(buffer), len(positions)), buffer.shape[2]
        if capacity < length:  # grow by half at least, so that a long text is copied few times
            capacity = max(length, room_for(capacity * 3 // 2))
        if (rows, capacity) != (len(buffer), buffer.shape[2]):
            state.rows[name] = _grown(buffer, rows, capacity)
    places = position.placed(Places(positions, length, _extended(state, positions)), state.rows["keys.0"])
    layers = len(state.rows) // 2
    return [Cache(state.rows[f"keys.{layer}"], state.rows[f"values.{layer}"], places) for layer in range(layers)]


def _trace(blocks: Sequence[nn.Module]) -> bool:
    """Whether they read caches whose rows stand elsewhere; if not, a trace would cost two copies."""
    return all(getattr(block, "traces", False) for block in blocks)


def _extended(state: State, positions: Tensor) -> Tensor | None:
    """The trace of a state, with the new position of each row: it stands in the row of that number, which is free
    there, since rows are of one length."""
    if state.trace is None:
        return None
    capacity = state.rows["keys.0"].shape[2]
    state.trace = F.pad(state.trace, [0, capacity - state.trace.shape[1]])
    own = torch.arange(len(positions), device=positions.device)[:, None]
    return state.trace.scatter_(1, positions, own)


def keep(state: State, layer: int, cache: Cache) -> None:
    """The cache of a layer after it was written to, which may be a copy."""
    state.rows[f"keys.{layer}"], state.rows[f"values.{layer}"] = cache.keys, cache.values


def _grown(buffer: Tensor, rows: int, capacity: int) -> Tensor:
    """A cache with more room, which is zero: F.pad would write the old part twice."""
    old, heads, length, width = buffer.shape
    grown = buffer.new_empty(rows, heads, capacity, width)
    grown[:old, :, :length], grown[:old, :, length:], grown[old:] = buffer, 0, 0
    return grown

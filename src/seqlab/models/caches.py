"""Keys and values of Transformers in a State: `keys.0`, `values.0`, `keys.1`, ..., each (B, H, C, K).

B rows · C capacity · H heads · K head width
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.models.language_model import State
from seqlab.nn.attention import Cache, Places, room_for


def new_state(rows: int, layers: int, heads: int, like: Tensor) -> State:
    """Caches for `layers` that have read nothing, of the device, precision and width of an embedding (V, D)."""
    shape = (rows, heads, room_for(1), like.shape[1] // heads)
    names = [f"{part}.{layer}" for layer in range(layers) for part in ("keys", "values")]
    lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
    return State({name: like.new_zeros(shape) for name in names}, lengths)


def caches(state: State, positions: Tensor, layers: int) -> list[Cache]:
    """A view of the state for each layer, with room for new positions (B, T)."""
    length = room_for(int(positions.max()) + 1)
    for name, buffer in state.rows.items():
        if buffer.shape[2] < length:  # grow by half at least, so that a long text is copied few times
            state.rows[name] = _grown(buffer, max(length, room_for(buffer.shape[2] * 3 // 2)))
    places = Places(positions, length)
    return [Cache(state.rows[f"keys.{layer}"], state.rows[f"values.{layer}"], places) for layer in range(layers)]


def keep(state: State, layer: int, cache: Cache) -> None:
    """The cache of a layer after it was written to, which may be a copy."""
    state.rows[f"keys.{layer}"], state.rows[f"values.{layer}"] = cache.keys, cache.values


def _grown(buffer: Tensor, capacity: int) -> Tensor:
    """A cache with more room, which is zero: F.pad would write the old part twice."""
    rows, heads, length, width = buffer.shape
    grown = buffer.new_empty(rows, heads, capacity, width)
    grown[:, :, :length], grown[:, :, length:] = buffer, 0
    return grown

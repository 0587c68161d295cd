"""`Recurrent` owns what cells do not: time, masks, depth and carried state.

B batch · T time · D width
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqlab.nn.cells import Cell, CellState


class Recurrent(nn.Module):
    """Layers of cells, each over all time before the next, with dropout between them."""

    def __init__(self, cells: Sequence[Cell], dropout: nn.Module | None = None) -> None:
        super().__init__()
        self.layers: Sequence[Cell] = nn.ModuleList(cells)  # type: ignore[assignment]
        self.dropout = dropout or nn.Identity()

    def start(self, rows: int, like: Tensor) -> list[CellState]:
        """All parts of all layers at zero, of the device and the precision of a tensor."""
        return [tuple(like.new_zeros(rows, cell.hidden) for _ in cell.parts) for cell in self.layers]

    def forward(
        self, x: Tensor, state: Sequence[CellState], mask: Tensor | None = None
    ) -> tuple[Tensor, list[CellState]]:
        """x (B, T, D) → outputs (B, T, H) and the states after the last real position of each row."""
        keep = None if mask is None else mask.t()[..., None].unbind(0)
        after = []
        for number, (cell, before) in enumerate(zip(self.layers, state, strict=True)):
            steps = (self.dropout(x) if number else x).transpose(0, 1)  # time first
            whole = cell.library(steps, before) if keep is None and len(steps) > 1 else None
            outputs, last = whole if whole is not None else _unroll(cell, steps, before, keep)
            x = outputs.transpose(0, 1)
            after.append(last)
        return x, after


def _unroll(cell: Cell, x: Tensor, state: CellState, keep: Sequence[Tensor] | None) -> tuple[Tensor, CellState]:
    """One step after the other; where `keep` is False the state stays as it is."""
    outputs = []
    # unbind once: indexing inputs[t] step by step would make the backward pass quadratic in T
    for t, inputs in enumerate(cell.inputs(x).unbind(0)):
        new = cell.step(inputs, state)
        if keep is not None:
            new = tuple(torch.where(keep[t], a, b) for a, b in zip(new, state, strict=True))
        state = new
        outputs.append(state[0])
    return torch.stack(outputs), state

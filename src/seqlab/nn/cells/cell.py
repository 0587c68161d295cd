"""The base class of cells: one step of a recurrence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from seqlab.nn.linear_map import is_plain
from seqlab.recipe import PartSettings

CellState = tuple[Tensor, ...]
"""The parts of a cell's state, each (B, H); the first one is its output."""


class Cell(nn.Module, ABC):
    """A custom cell needs only `step`; `blocks` is the number of vectors of width H that the input map gives it.

    >>> class Leaky(Cell):
    ...     def step(self, inputs, state):
    ...         (h,) = state
    ...         return (0.9 * h + 0.1 * torch.tanh(inputs + self.recurrent(h)),)
    """

    Settings: ClassVar[type[PartSettings]] = PartSettings
    parts: ClassVar[tuple[str, ...]] = ("h",)
    """Names of the parts of the state."""
    blocks: ClassVar[int] = 1
    shrinks: ClassVar[float | None] = None
    """Approximate size of an untrained cell's output relative to its input, when both are small; None if unknown."""
    sigmoid = staticmethod(torch.sigmoid)
    """σ. A cell that calls `torch.sigmoid` directly computes the same, but decodes more slowly."""

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__()
        self.input_width, self.width, self.settings = input_width, width, settings or self.Settings()
        self.input = nn.Linear(input_width, self.blocks * width)
        self.recurrent = orthogonal(nn.Linear(width, self.blocks * width, bias=False))
        nn.init.zeros_(self.input.bias)

    def inputs(self, x: Tensor) -> Tensor:
        """The part that does not depend on the state, for all steps at once: (..., D) → (..., inputs)."""
        return self.input(x)  # type: ignore[no-any-return]

    @abstractmethod
    def step(self, inputs: Tensor, state: CellState) -> CellState:
        """The equations: the inputs of one step and the state before it → the state after it."""

    def library(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        """Run all steps of x (T, B, D) in PyTorch's kernel; None unless it computes exactly this cell."""
        return None


def orthogonal(linear: nn.Linear) -> nn.Linear:
    """Initialise each block to an orthogonal matrix, which preserves the length of vectors."""
    for block in torch.split(linear.weight.data, linear.in_features):
        nn.init.orthogonal_(block)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def is_plainly(cell: Cell, cls: type[Cell]) -> bool:
    """Whether a cell computes exactly what `cls` does: no overridden equations, no replaced linear maps."""
    unchanged = type(cell).step is cls.step and type(cell).inputs is cls.inputs
    return unchanged and is_plain(cell.input) and is_plain(cell.recurrent)


def no_bias(linear: nn.Linear) -> Tensor:
    return torch.zeros(linear.out_features, dtype=linear.weight.dtype, device=linear.weight.device)

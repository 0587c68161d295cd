"""Intercepts the matrix products inside a cell, so that any cell can be regularised from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from seqlab.nn.cells import Cell
from seqlab.nn.recording import unobserved

Change = Callable[[int, Tensor, Tensor, Tensor | None], Tensor]
"""(number of the product in the step, x, W, b) → W x + b, or its replacement."""
MATRIX_PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)


class Products(TorchFunctionMode):
    """Within the context, every product of rows with a matrix goes through `change`."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change, self.count = change, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear:
            x, weight, bias = (*args, kwargs.get("weight"), kwargs.get("bias"))[:3]
        elif func in MATRIX_PRODUCTS:
            (x, matrix), bias = args, None
            weight = matrix.mT
        else:
            return func(*args, **kwargs)
        self.count += 1
        return self.change(self.count - 1, x, weight, bias)


def products(cell: Cell) -> list[tuple[Tensor, int]]:
    """Return the matrices that a step multiplies by, in order, each with the width of its input."""
    found = []

    def add(number: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        found.append((weight, x.shape[-1]))
        return F.linear(x, weight, bias)

    some = next(cell.parameters())
    inputs, zeros = (
        cell.inputs(some.new_zeros(1, cell.input_width)),
        tuple(some.new_zeros(1, cell.width) for _ in cell.parts),
    )
    with unobserved(), Products(add):
        cell.step(inputs, zeros)
    return found

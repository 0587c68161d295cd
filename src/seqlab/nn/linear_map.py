"""Linear maps whose products are computed by PyTorch or, from a certain size on, by the kernels of `multiply.cpp`.

Which of them is faster depends on the processor: `training/routing.py` measures it.

B … batch dimensions · I inputs · O outputs
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.native.multiply import by_kernels, product


class LinearMap(nn.Linear):
    """W x + b"""

    compiled_from: int | None = None
    """The number of multiplications, rows × I × O, from which the kernels are used; None: never."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias, self.compiled_from)


def is_plain(part: nn.Module) -> bool:
    """Whether a part is a linear map and nothing else."""
    return type(part) in (nn.Linear, LinearMap)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, compiled_from: int | None = None) -> Tensor:
    """W x + b: (..., I), (O, I), (O,) → (..., O)"""
    if not by_kernels(x.numel() * len(weight), compiled_from, x, weight, bias):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _applied(x, weight, bias)
    return cast(Tensor, _Linear.apply(x, weight, bias))  # type: ignore[no-untyped-call]


def _applied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return product(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], len(weight))


class _Linear(torch.autograd.Function):
    """y = W x + b; ∂x = Wᵀ ∂y, ∂W = Σ ∂y xᵀ, ∂b = Σ ∂y, summed over rows"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _applied(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows, inputs = gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1])
        # where gradients of gradients are wanted, these must be products that have some
        times = (lambda a, b: a @ b.t()) if torch.is_grad_enabled() else product
        return (
            times(rows, weight.t()).view_as(x) if of_x else None,
            times(rows.t(), inputs.t()) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )

"""The activations of feed-forward parts."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from seqlab.native.compiler import compiled
from seqlab.native.multiply import by_kernels

SOURCE = Path(__file__).with_name("gelu.cpp")
MANY = 1 << 14
"""From this many numbers on, the kernels are faster than PyTorch's gelu."""

Activation = Literal["gelu", "relu", "swish"]


def activated(x: Tensor, activation: Activation, compiled_from: int | None = None) -> Tensor:
    """g(x); where the linear maps are computed by kernels (`LinearMap.compiled_from`), gelu is too."""
    if activation == "gelu" and by_kernels(x.numel(), None if compiled_from is None else MANY, x) and library():
        return cast(Tensor, _Gelu.apply(x))  # type: ignore[no-untyped-call]
    return ACTIVATIONS[activation](x)


def gelu(x: Tensor) -> Tensor:
    """x (1 + tanh u) / 2 = x σ(2 u) with u = √(2 / π) (x + 0.044715 x³)

    Hendrycks & Gimpel 2016, https://arxiv.org/abs/1606.08415
    """
    if torch.compiler.is_compiling():  # the second form: in compiled kernels, exp is four times as fast as tanh
        scale = 2 * math.sqrt(2 / math.pi)
        return x * torch.sigmoid(x * (scale + 0.044715 * scale * x * x))
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "relu": torch.relu, "swish": F.silu}


class _Gelu(torch.autograd.Function):
    """By `gelu.cpp`: PyTorch's takes four to five times as long (benchmarks/small_parts.py)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x)
        y, kernels = torch.empty_like(x), library()
        assert kernels is not None
        kernels.forward(x.data_ptr(), y.data_ptr(), x.numel(), torch.get_num_threads())
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # gradients of gradients
            found: Tensor = torch.autograd.grad(gelu(x), x, gradient, create_graph=True)[0]
            return found
        gradient, slopes, kernels = gradient.contiguous(), torch.empty_like(x), library()
        assert kernels is not None
        parts = (x.data_ptr(), gradient.data_ptr(), slopes.data_ptr())
        kernels.backward(*parts, x.numel(), torch.get_num_threads())
        return slopes


@cache
def library() -> ctypes.CDLL | None:
    """`gelu.cpp` compiled for this machine; None if it cannot be compiled."""
    kernels = compiled(SOURCE.read_text(encoding="utf-8"))
    if kernels is not None:
        pointer, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        kernels.forward.argtypes = [pointer, pointer, count, number]
        kernels.backward.argtypes = [pointer, pointer, pointer, count, number]
        kernels.forward.restype = kernels.backward.restype = None
    return kernels
